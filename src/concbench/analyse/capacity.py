"""How many users a box carries, from cells that were measured: nothing here extrapolates.

A level holds when the upper end of the 95 % interval of every objective is within its limit, at
most 1 % of its requests failed, and no fatal doubt stands on it. The capacity is the largest
measured level below the first that fails. A level whose points are within the limits but whose
intervals are not, or are not known, is open: it neither holds nor fails. Nor does one of which no
request ended, unless the engine refused it or broke down: it was not measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from concbench.analyse.scaling import scaling
from concbench.domain import Doubt, TargetFacts
from concbench.plan.levels import Slo
from concbench.result import CellResult

MOST_FAILED_PCT = 1.0
SERIES = tuple[str, str | None, int, str]

Standing = Literal["holds", "open", "fails", "doubted", "unmeasured"]
BROKE_DOWN = ("context_rejected", "oom", "crashed", "hung")


class Objective(Struct, frozen=True, kw_only=True):
    """One objective at one level, in the unit that its limit has.

    `bound` is the worse end of the 95 % interval of `value`, None where there are too few requests
    for one (72 for a 95th percentile).
    """

    slo: str
    limit: float
    value: float | None
    bound: float | None
    standing: Standing


class LevelCapacity(Struct, frozen=True, kw_only=True):
    """One level: whether it holds, and why not. `users` are those of the level with think time.

    `gain_per_doubling` is against the nearest level at least half a doubling below; the rate is the
    one that all levels share.
    """

    cell: str
    concurrency: int
    tok_per_s: float | None
    gain_per_doubling: float | None
    e2e_mean_s: float | None
    users: float | None
    failed_pct: float | None
    objectives: list[Objective]
    standing: Standing
    why: str


class Capacity(Struct, frozen=True, kw_only=True):
    """One lane, link and context; `context_label` names a kind of content where several were asked.

    `holds` and `fails` bracket the answer; None: not measured.

    `n_kv` is how many requests of this length the KV pool of `pool_tok` tokens holds. `knee` is
    S_max · E2E(1) ÷ G, the level at which throughput must begin to bend. `users` is `holds` with
    the think time.
    """

    lane: str
    link: str | None
    context_tok: int
    context_label: str
    output_tok: float | None
    pool_tok: int | None
    n_kv: int | None
    knee: float | None
    ceiling: str
    holds: int | None
    fails: int | None
    open: list[int]
    users: float | None
    levels: list[LevelCapacity]


def capacity(
    cells: Iterable[CellResult],
    doubts: Sequence[Doubt],
    targets: Mapping[str, TargetFacts],
    slos: Sequence[Slo],
    think_s: float = 0.0,
) -> list[Capacity]:
    """Return the capacity of each lane, link and context of a study; open loops are left out.

    `think_s` is how long a user pauses between an answer and the next question, in seconds.
    """
    groups: dict[SERIES, list[CellResult]] = {}
    for cell in cells:
        if cell.rate_rps is None and cell.concurrency > 0:
            groups.setdefault(_place(cell), []).append(cell)
    fatal = {doubt.cell for doubt in doubts if doubt.severity == "fatal"}
    return [
        _series(sorted(group, key=lambda c: c.concurrency), fatal, targets, slos, think_s)
        for group in groups.values()
    ]


def _place(cell: CellResult) -> SERIES:
    return (cell.lane, cell.link, cell.context_tok, cell.context_label)


def _series(
    cells: Sequence[CellResult],
    fatal: set[str | None],
    targets: Mapping[str, TargetFacts],
    slos: Sequence[Slo],
    think_s: float,
) -> Capacity:
    scale = scaling(cells)
    points = {point.concurrency: point for point in scale.points}
    levels = []
    for cell in cells:
        point = points.get(cell.concurrency)
        levels.append(
            _level(
                cell,
                slos,
                think_s,
                doubted=cell.cell in fatal or None in fatal,
                tok_per_s=None if point is None else point.tok_per_s,
                gain=None if point is None else point.gain_per_doubling,
            )
        )
    fails = next((each.concurrency for each in levels if each.standing == "fails"), None)
    below = [each for each in levels if fails is None or each.concurrency < fails]
    held = [each for each in below if each.standing == "holds"]
    first, output_tok = cells[0], _output_tok(cells)
    pool = _pool_tok(targets.get(first.lane))
    need = None if output_tok is None else first.context_tok + output_tok
    return Capacity(
        lane=first.lane,
        link=first.link,
        context_tok=first.context_tok,
        context_label=first.context_label,
        output_tok=output_tok,
        pool_tok=pool,
        n_kv=None if pool is None or not need else math.floor(pool / need),
        knee=_knee(cells[0], max((p.tok_per_s for p in scale.points), default=None), output_tok),
        ceiling=scale.ceiling,
        holds=held[-1].concurrency if held else None,
        fails=fails,
        open=[each.concurrency for each in below if each.standing in ("open", "doubted")],
        users=held[-1].users if held else None,
        levels=levels,
    )


def _level(
    cell: CellResult,
    slos: Sequence[Slo],
    think_s: float,
    *,
    doubted: bool,
    tok_per_s: float | None,
    gain: float | None,
) -> LevelCapacity:
    failed_pct = failed_pct_of(cell)
    objectives = [objective_of(cell, slo, failed_pct) for slo in slos]
    e2e_ms = cell.client.e2e_ms.mean
    standing, why = standing_of(cell, objectives, failed_pct, doubted=doubted)
    return LevelCapacity(
        cell=cell.cell,
        concurrency=cell.concurrency,
        tok_per_s=tok_per_s,
        gain_per_doubling=gain,
        e2e_mean_s=None if e2e_ms is None else e2e_ms / 1e3,
        users=None if not e2e_ms else cell.concurrency * (1 + think_s / (e2e_ms / 1e3)),
        failed_pct=failed_pct,
        objectives=objectives,
        standing=standing,
        why=why,
    )


def standing_of(
    cell: CellResult, objectives: Sequence[Objective], failed_pct: float | None, *, doubted: bool
) -> tuple[Standing, str]:
    """Return whether a level holds, and the first reason why it does not."""
    if doubted:
        return "doubted", "a fatal doubt stands on it"
    told = cell.outcome_detail or cell.outcome.replace("_", " ")
    if cell.outcome in BROKE_DOWN:
        return "fails", told
    if failed_pct is None:
        return "unmeasured", told if cell.outcome != "measured" else "no request of it ended"
    if failed_pct > MOST_FAILED_PCT:
        return "fails", f"{failed_pct:.1f} % of its requests failed"
    missed = [each.slo for each in objectives if each.standing == "fails"]
    if missed:
        return "fails", f"over the limit of {', '.join(missed)}"
    unsure = [each for each in objectives if each.standing == "open"]
    if any(each.bound is None for each in unsure):
        return "open", "too few requests for an interval"
    if unsure:
        return "open", f"the interval reaches over the limit of {', '.join(e.slo for e in unsure)}"
    return "holds", ""


def objective_of(cell: CellResult, slo: Slo, failed_pct: float | None) -> Objective:
    """Return one objective checked. A floor on tok/s is a limit on TPOT at its 95th percentile."""
    if slo.metric == "failed_pct":
        value = bound = failed_pct
    elif slo.metric == "user_tok_per_s":
        summary = cell.client.tpot_ms
        value, bound = _inverse(summary.p95), _inverse(_upper(summary.ci.get("p95")))
    else:
        summary, quantile = getattr(cell.client, slo.metric), slo.quantile or "p95"
        value, bound = getattr(summary, quantile), _upper(summary.ci.get(quantile))
    if value is None:
        standing: Standing = "open"
    elif not _within(value, slo):
        standing = "fails"
    else:
        standing = "holds" if bound is not None and _within(bound, slo) else "open"
    return Objective(slo=slo.key, limit=slo.limit, value=value, bound=bound, standing=standing)


def _within(value: float, slo: Slo) -> bool:
    return value <= slo.limit if slo.at_most else value >= slo.limit


def _upper(interval: tuple[float, float] | None) -> float | None:
    return None if interval is None else interval[1]


def _inverse(tpot_ms: float | None) -> float | None:
    return None if not tpot_ms else 1e3 / tpot_ms


def failed_pct_of(cell: CellResult) -> float | None:
    """Return the share of the requests that ended which failed, in percent."""
    requests = cell.requests
    ended = requests.ok + requests.failed
    return 100 * requests.failed / ended if ended else None


def _output_tok(cells: Sequence[CellResult]) -> float | None:
    """Return the mean length of an answer, over the levels that have any."""
    ok = sum(cell.requests.ok for cell in cells)
    return sum(cell.tokens.output for cell in cells) / ok if ok else None


def _pool_tok(facts: TargetFacts | None) -> int | None:
    if facts is None:
        return None
    return facts.kv_capacity_tok


def _knee(first: CellResult, best: float | None, output_tok: float | None) -> float | None:
    """Return S_max · E2E(1) ÷ G; None without a level of one request."""
    e2e_ms = first.client.e2e_ms.mean
    if first.concurrency != 1 or best is None or not e2e_ms or not output_tok:
        return None
    return best * e2e_ms / 1e3 / output_tok

"""The largest rate of arrivals that holds objectives, from open loops that were measured. Pure.

A rate holds when the box kept up with it (`openloop`: no growing queue, arrivals completed), when
the upper end of the 95 % interval of every objective is within its limit, at most 1 % of its
requests failed, and no fatal doubt stands on it. A saturated rate fails whatever its latencies
were: they would only tell how long the run was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from concbench.analyse.capacity import Objective, Standing, failed_pct_of, objective_of, standing_of
from concbench.domain import Doubt
from concbench.plan.levels import Slo
from concbench.result import CellResult

SERIES = tuple[str, str | None, int]


class RateLevel(Struct, frozen=True, kw_only=True):
    """One rate, in requests a second. `state` is `stable`, `undetermined` or `saturated`.

    `in_flight` is how many requests were at the box at once, by Little's law: rate · E2E. `users`
    are those with the think time Z between an answer and the next question: rate · (E2E + Z).
    `queue_slope_per_s` is how fast the number in flight grew; where that is saturation the law
    does not hold, and both are None.
    """

    cell: str
    rate_rps: float
    sent_rps: float | None
    rounds: int
    requests: int
    state: str | None
    queue_slope_per_s: float | None
    completions_per_arrival: float | None
    e2e_mean_s: float | None
    in_flight: float | None
    users: float | None
    failed_pct: float | None
    objectives: list[Objective]
    standing: Standing
    why: str


class RateCapacity(Struct, frozen=True, kw_only=True):
    """One lane, link and context. `holds_rps` and `fails_rps` bracket the answer.

    `confirmed_rounds` is how often the rate that holds was measured.
    """

    lane: str
    link: str | None
    context_tok: int
    holds_rps: float | None
    fails_rps: float | None
    confirmed_rounds: int
    open_rps: list[float]
    levels: list[RateLevel]


def rate_capacity(
    cells: Iterable[CellResult],
    doubts: Sequence[Doubt],
    slos: Sequence[Slo],
    think_s: float = 0.0,
) -> list[RateCapacity]:
    """Return the capacity in requests a second of each lane, link and context of a study."""
    groups: dict[SERIES, list[CellResult]] = {}
    for cell in cells:
        if cell.rate_rps is not None:
            groups.setdefault((cell.lane, cell.link, cell.context_tok), []).append(cell)
    return [
        _series(place, [rate_level(cell, doubts, slos, think_s) for cell in group])
        for place, group in groups.items()
    ]


def _series(place: SERIES, found: Sequence[RateLevel]) -> RateCapacity:
    levels = sorted(found, key=lambda level: level.rate_rps)
    fails = next((level.rate_rps for level in levels if level.standing == "fails"), None)
    below = [level for level in levels if fails is None or level.rate_rps < fails]
    held = [level for level in below if level.standing == "holds"]
    return RateCapacity(
        lane=place[0],
        link=place[1],
        context_tok=place[2],
        holds_rps=held[-1].rate_rps if held else None,
        fails_rps=fails,
        confirmed_rounds=held[-1].rounds if held else 0,
        open_rps=[e.rate_rps for e in below if e.standing in ("open", "doubted")],
        levels=levels,
    )


def rate_level(
    cell: CellResult, doubts: Sequence[Doubt], slos: Sequence[Slo], think_s: float = 0.0
) -> RateLevel:
    """Return one rate judged; the cell is one of an open loop."""
    failed_pct = failed_pct_of(cell)
    objectives = [objective_of(cell, slo, failed_pct) for slo in slos]
    standing, why = _standing(cell, doubts, objectives, failed_pct)
    load = cell.saturation or {}
    e2e_ms, rate = cell.client.e2e_ms.mean, cell.rate_rps or 0.0
    e2e_s = None if e2e_ms is None else e2e_ms / 1e3
    grows = load.get("state") == "saturated"
    return RateLevel(
        cell=cell.cell,
        rate_rps=rate,
        sent_rps=load.get("sent_rps"),
        rounds=cell.rounds,
        requests=cell.requests.sent,
        state=load.get("state"),
        queue_slope_per_s=load.get("queue_slope_per_s"),
        completions_per_arrival=load.get("completions_per_arrival"),
        e2e_mean_s=e2e_s,
        in_flight=None if e2e_s is None or grows else rate * e2e_s,
        users=None if e2e_s is None or grows else rate * (e2e_s + think_s),
        failed_pct=failed_pct,
        objectives=objectives,
        standing=standing,
        why=why,
    )


def _standing(
    cell: CellResult,
    doubts: Sequence[Doubt],
    objectives: Sequence[Objective],
    failed_pct: float | None,
) -> tuple[Standing, str]:
    """Return whether a rate holds, and the first reason why it does not."""
    mine = [doubt for doubt in doubts if doubt.cell in (None, cell.cell)]
    doubted = any(doubt.severity == "fatal" for doubt in mine)
    if any(doubt.code == "rate_not_kept" for doubt in mine):
        return "doubted", "the client did not keep the rate"
    load = cell.saturation or {}
    if not doubted and load.get("state") == "saturated":
        return "fails", f"saturated: {load['queue_slope_per_s']:+.2g} more in flight each second"
    standing, why = standing_of(cell, objectives, failed_pct, doubted=doubted)
    if standing == "holds" and load.get("state") != "stable":
        return "open", "too short to tell whether the queue grows"
    return standing, why

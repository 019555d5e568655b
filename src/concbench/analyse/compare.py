"""Sides in, verdicts, crossovers and doubts out: the judgement over lanes.

A side is a lane (with its link) of a study. Every two sides are compared at every level that both
have, in the metrics that all their rounds have. Pure: rows are handed over, nothing is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import Any

from msgspec.structs import replace

from concbench.analyse.crossover import Contest, contests, crossover
from concbench.analyse.pairing import (
    Paired,
    RunRecord,
    mean_of,
    paired_by_order,
    paired_by_runs,
)
from concbench.analyse.runvalues import BETTER, RATES, STEADY, CellKey, RoundValues, common_metrics
from concbench.analyse.severity import doubt
from concbench.analyse.unlike import Measured, unfair_names, unlike, unlike_measured
from concbench.analyse.verdict import DELTA, Comparison, bimodal_side, judge
from concbench.domain import Doubt, TargetFacts
from concbench.result import CellResult, VerdictResult


@dataclass(frozen=True, slots=True)
class Party:
    """One side. `name` is what verdicts call it, `study` tells sides of one study from others.

    `rounds` are those of phase `measured`, retracted ones included: they are named in `gone` with
    the reason. `fatal` are doubts by cell id, "" for the whole study. `starts` is how often the
    server was started, `runs` the runs on record where a comparison was run as such.
    """

    name: str
    study: str
    facts: TargetFacts
    rounds: Sequence[RoundValues]
    cells: Mapping[CellKey, CellResult]
    extra: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)
    fatal: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)
    starts: int = 1
    runs: Sequence[RunRecord] = ()
    looks: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the comparison says; `comparisons` go with `verdicts`."""

    comparisons: tuple[Comparison, ...]
    verdicts: tuple[VerdictResult, ...]
    crossovers: tuple[dict[str, Any], ...]
    doubts: tuple[Doubt, ...]


def compare(
    parties: Sequence[Party], accepted: Sequence[str] = (), delta: float = DELTA
) -> Outcome:
    """Judge every two sides. A is the one that comes first, so that ratios are later ÷ earlier.

    `delta` is the margin within which they count as equal, fixed before anything was measured.
    """
    built = comparisons_of(parties, accepted, delta)
    verdicts = judge(built)
    return Outcome(
        comparisons=tuple(built),
        verdicts=tuple(verdicts),
        crossovers=tuple(crossovers_of(built, verdicts)),
        doubts=tuple(doubts_of_verdicts(verdicts)),
    )


def comparisons_of(
    parties: Sequence[Party], accepted: Sequence[str] = (), delta: float = DELTA
) -> list[Comparison]:
    """Return every two sides at every level that both have, ready to be judged together."""
    built: list[Comparison] = []
    for a, b in combinations(parties, 2):
        for key in sorted(a.cells.keys() & b.cells.keys(), key=_order):
            built += _at_one_level(a, b, key, accepted)
    return [replace(one, delta=delta) for one in built]


def _order(key: CellKey) -> tuple[int, int, float]:
    return (key[0], key[1], key[2] or 0.0)


def _at_one_level(a: Party, b: Party, key: CellKey, accepted: Sequence[str]) -> list[Comparison]:
    """Return the comparisons of two sides at one level, one a metric."""
    of_a = [each for each in a.rounds if each.key == key]
    of_b = [each for each in b.rounds if each.key == key]
    gone = frozenset({*a.gone, *b.gone})
    paired = _paired(a, b, of_a, of_b, gone)
    left_a = [each for each in of_a if each.round_id not in gone]
    left_b = [each for each in of_b if each.round_id not in gone]
    cell_a, cell_b = a.cells[key], b.cells[key]
    names = unlike_parties(a, b, cell_a, cell_b, left_a, left_b, interleaved=paired.interleaved)
    return [
        Comparison(
            metric=metric,
            better=BETTER[metric],
            a=a.name,
            b=b.name,
            cell_a=cell_a.cell,
            cell_b=cell_b.cell,
            concurrency=key[1],
            context_tok=key[0],
            pairs=[(mean_of(x, metric), mean_of(y, metric)) for x, y in paired.pairs],
            controls=[mean_of(run, metric) for run in paired.controls],
            more_a=[each.values[metric] for each in left_a],
            more_b=[each.values[metric] for each in left_b],
            fatal=[*_fatal(a, cell_a), *_fatal(b, cell_b)],
            unlike=names,
            accepted=accepted,
            instrument_error_pct=math.hypot(
                own_error_pct(cell_a, metric), own_error_pct(cell_b, metric)
            ),
            starts_a=a.starts,
            starts_b=b.starts,
            looks=a.looks if a.study == b.study else None,
            corrected=_corrected(a, b, [*of_a, *of_b]),
        )
        for metric in common_metrics(left_a, left_b)
    ]


def _paired(
    a: Party,
    b: Party,
    of_a: Sequence[RoundValues],
    of_b: Sequence[RoundValues],
    gone: frozenset[str],
) -> Paired:
    if a.study == b.study and a.runs:
        return paired_by_runs([*of_a, *of_b], a.runs, gone)
    return paired_by_order(of_a, of_b, gone, same_study=a.study == b.study)


def unlike_parties(
    a: Party,
    b: Party,
    cell_a: CellResult,
    cell_b: CellResult,
    of_a: Sequence[RoundValues],
    of_b: Sequence[RoundValues],
    *,
    interleaved: bool,
) -> list[str]:
    """Return the names of what makes the comparison unfair, of the lanes and of what was done."""
    found = unlike(a.facts, b.facts, a.extra, b.extra, a.flags, b.flags)
    found += unlike_measured(
        measured_of(cell_a, of_a), measured_of(cell_b, of_b), interleaved=interleaved
    )
    return unfair_names(found)


def measured_of(cell: CellResult, rounds: Sequence[RoundValues]) -> Measured:
    """Return what fairness depends on, of what was measured in a cell."""
    lengths = [length for each in rounds for length in each.output_tok]
    prompt, cached = cell.tokens.prompt, cell.tokens.cached
    accepted = (cell.server.acceptance or {}).get("mean_len")
    return Measured(
        output_tok_median=median(lengths) if lengths else None,
        finish=cell.requests.finish,
        hit_rate=None if not prompt or cached is None else cached / prompt,
        acceptance_len=accepted if isinstance(accepted, (int, float)) else None,
    )


def _fatal(party: Party, cell: CellResult) -> list[str]:
    return [f"{code} ({party.name})" for code in party.fatal.get(cell.cell, ())] + [
        f"{code} ({party.name})" for code in party.fatal.get("", ())
    ]


def _corrected(a: Party, b: Party, rounds: Sequence[RoundValues]) -> str | None:
    """Return what was withdrawn from under this comparison, or None."""
    why = {**a.gone, **b.gone}
    told = [f"{each.round_id} retracted ({why[each.round_id]})" for each in rounds
            if each.round_id in why]  # fmt: skip
    return "; ".join(told) or None


def own_error_pct(cell: CellResult, metric: str) -> float:
    """Return the instrument's own error in a metric of a cell, in percent; 0 where unknown.

    A rate's: cutting at the window's edges (one step in `steps`), and the lateness that remains
    after stamping at both ends (p99) over the window's length. A latency's: that lateness over the
    median.
    """
    late = cell.instrument.late_after_stamp_ms
    late_ms = late.p99 if late.p99 is not None else (late.max or 0.0)
    if metric in RATES:
        steady = cell.steady
        if metric == STEADY and steady.steps and steady.start_s is not None:
            length_ms = 1e3 * ((steady.end_s or 0.0) - steady.start_s)
            edge = 100 / steady.steps
            return edge + (200 * late_ms / length_ms if length_ms > 0 else 0.0)
        wall = cell.client.e2e_ms.max
        return 200 * late_ms / wall if wall else 0.0
    middle = getattr(cell.client, metric.partition(".")[0]).mean
    return 100 * late_ms / middle if middle else 0.0


def crossovers_of(
    built: Sequence[Comparison], verdicts: Sequence[VerdictResult]
) -> list[dict[str, Any]]:
    """Return the crossovers of comparisons over pairs."""
    found: list[tuple[VerdictResult, Contest]] = []
    for metric in dict.fromkeys(one.metric for one in built):
        mine = [
            (one, row) for one, row in zip(built, verdicts, strict=True) if one.metric == metric
        ]
        found += contests([one for one, _ in mine], [row for _, row in mine])
    return crossovers_from(found)


def crossovers_from(rows: Sequence[tuple[VerdictResult, Contest]]) -> list[dict[str, Any]]:
    """Return the crossovers: by concurrency for every metric, by context for the rates.

    With three lanes and more each level has one winner among all of them.
    """
    found: list[dict[str, Any] | None] = []
    for metric in dict.fromkeys(row.metric for row, _ in rows):
        mine = [(row, one) for row, one in rows if row.metric == metric]
        for context in dict.fromkeys(row.context_tok for row, _ in mine):
            part = [one for row, one in mine if row.context_tok == context]
            found.append(crossover(metric, part, context_tok=context))
        if not metric.endswith("tok_per_s"):
            continue
        for level in dict.fromkeys(row.concurrency for row, _ in mine):
            part = [
                replace(one, level=row.context_tok) for row, one in mine if row.concurrency == level
            ]
            found.append(crossover(metric, part, "context", concurrency=level))
    return [entry for entry in found if entry is not None]


def doubts_of_verdicts(verdicts: Sequence[VerdictResult]) -> list[Doubt]:
    """Return the doubts that verdicts raise, each once.

    A drift of a rate is fatal for the cell that was compared with that control; other metrics only
    lose their own verdict.
    """
    found = [item for row in verdicts for item in _doubts_of(row)]
    return list({(item.code, item.message): item for item in found}.values())


def _doubts_of(row: VerdictResult) -> list[Doubt]:
    pair = f"{row.b} against {row.a}"
    at = f"{row.metric} at N = {row.concurrency}"
    found: list[Doubt] = []
    if row.verdict == "drifted" and row.metric in RATES:
        message = f"{pair}, {at}: {row.why}. Run the comparison again."
        found.append(doubt("drifted", row.cell_b, message, {"drift_pct": row.drift_pct}))
    if row.verdict == "not_comparable":
        found.append(doubt("not_comparable", None, f"{pair}: {row.why}", {"unlike": row.unlike}))
    for side, cell in ((row.a, row.cell_a), (row.b, row.cell_b)):
        states = bimodal_side(row.why, side)
        if states is not None:
            message = f"{at}: {states}. A mean describes neither state."
            found.append(doubt("bimodal", cell, message, {}))
    if row.provisional and row.verdict in ("a_faster", "b_faster", "equivalent"):
        message = (
            f"{pair}: one start of a server, or one lane after the other; another start may come "
            "out otherwise."
        )
        found.append(doubt("provisional", None, message, {}))
    return found

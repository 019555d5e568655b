"""A whole study judged: rounds by cell in, the result document out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from concbench.analyse.cell import cell_result
from concbench.analyse.prefill import PrefillPoint, prefill_point, prefill_slope
from concbench.domain import Cell, Doubt, Estimate, Round, TargetFacts
from concbench.result import CellResult, Result, WorkloadResult

SEVERITY_ORDER = {"fatal": 0, "warning": 1, "note": 2}

COMPANIONS = ("half",)
"""Labels of cells that are not listed: their rounds speak through the cell they stand beside."""


@dataclass(frozen=True, slots=True)
class StudyFacts:
    """What a result needs besides rounds: where they come from and what they were measured with.

    `ended_by` is by cell id; `template_tok` by lane.
    """

    tool_version: str
    command: str
    study: str | None
    began_utc: str
    machine: Mapping[str, Any]
    targets: Mapping[str, TargetFacts]
    seed: int = 0
    interrupted: bool = False
    ended_by: Mapping[str, str] = field(default_factory=dict)
    template_tok: Mapping[str, int] = field(default_factory=dict)
    corrections: Sequence[dict[str, Any]] = ()
    target_half_width: float = 0.01


def judge(rounds: Iterable[Round], facts: StudyFacts) -> Result:
    """Return the result of all rounds: cells in order of lane, context and concurrency.

    Rounds of other phases than `measured` only speak through their cell's doubts, those of
    companion cells through the prefill rate.
    """
    grouped: dict[str, list[Round]] = {}
    beside: dict[str, list[Round]] = {}
    for each in rounds:
        kind = beside if each.cell.context_label in COMPANIONS else grouped
        kind.setdefault(each.cell.cell, []).append(each)
    order = sorted(grouped.values(), key=lambda group: _place(group[0].cell))
    baselines: dict[tuple[str, int, str | None], CellResult] = {}
    results: list[CellResult] = []
    doubts: list[Doubt] = []
    for group in order:
        cell = group[0].cell
        key = (cell.lane, cell.context_tok, cell.link)
        result, found = cell_result(
            group,
            facts.targets.get(cell.lane),
            baselines.get(key),
            facts.target_half_width,
            template_tok=facts.template_tok.get(cell.lane, 0),
            ended_by=facts.ended_by.get(cell.cell),
        )
        result.client.prefill_tok_per_s = _prefill(group, beside.get(f"{cell.cell}.half", ()))
        if cell.concurrency == 1:
            baselines[key] = result
        results.append(result)
        doubts.extend(found)
    single = next(iter(facts.targets.values())) if len(facts.targets) == 1 else None
    return Result(
        tool_version=facts.tool_version,
        command=facts.command,
        study=facts.study,
        began_utc=facts.began_utc,
        interrupted=facts.interrupted,
        target=single,
        targets=dict(facts.targets),
        machine=dict(facts.machine),
        workload=_workload([each for group in order for each in group], facts.seed),
        doubts=sorted(doubts, key=lambda doubt: SEVERITY_ORDER[doubt.severity]),
        corrections=list(facts.corrections),
        cells=results,
    )


def _prefill(whole: Sequence[Round], half: Sequence[Round]) -> Estimate | None:
    """Return the prefill rate from rounds at two prompt lengths, paired by their number."""
    longer, shorter = _points(whole), _points(half)
    both = sorted(longer.keys() & shorter.keys())
    return prefill_slope([shorter[k] for k in both], [longer[k] for k in both])


def _points(rounds: Iterable[Round]) -> dict[int, PrefillPoint]:
    found = {each.index: prefill_point(each) for each in rounds if each.phase == "measured"}
    return {index: point for index, point in found.items() if point is not None}


def _place(cell: Cell) -> tuple[str, str, int, int, float]:
    return (cell.lane, cell.link or "", cell.context_tok, cell.concurrency, cell.rate_rps or 0.0)


def _workload(rounds: Sequence[Round], seed: int) -> WorkloadResult | None:
    measured = [each for each in rounds if each.phase == "measured"]
    if not measured:
        return None
    first = measured[0].workload
    return WorkloadResult(
        prompt_tokens=first.prompt_tokens,
        output_tokens=first.output_tokens,
        seed=seed,
        arrival=first.arrival,
        distinct_prompts=all(each.workload.distinct_prompts for each in measured),
        content=first.content,
        endpoint=first.endpoint,
        stream=first.stream,
        temperature=first.temperature,
        ignore_eos=first.ignore_eos,
        extra_body=first.extra_body,
    )


def exit_code(result: Result) -> int:
    """Return 4 when a fatal doubt stands or no request succeeded, 130 when interrupted, else 0."""
    if result.interrupted:
        return 130
    if any(doubt.severity == "fatal" for doubt in result.doubts):
        return 4
    return 0 if any(cell.requests.ok for cell in result.cells) else 4

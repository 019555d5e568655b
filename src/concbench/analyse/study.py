"""A whole study judged: rounds by cell in, the result document out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Generic, Protocol, TypeVar

from concbench.analyse.cell import cell_result
from concbench.analyse.evidence import Evidence
from concbench.analyse.lanes import inflight_limit, lane_doubts, traps_of
from concbench.analyse.prefill import PrefillPoint, prefill_point, prefill_slope
from concbench.analyse.streams import samples, streams_of
from concbench.domain import (
    Cell,
    Doubt,
    Estimate,
    Round,
    RoundPhase,
    TargetFacts,
    Workload,
)
from concbench.plan.levels import Slo
from concbench.result import CellResult, LaneResult, Result, WorkloadResult

SEVERITY_ORDER = {"fatal": 0, "warning": 1, "note": 2}

COMPANIONS = ("half", "idle", "control", "ceiling")
"""Labels of cells that are not listed: their rounds speak through the cell they stand beside."""


@dataclass(frozen=True, slots=True)
class StudyFacts:
    """What a result needs besides rounds: where they come from and what they were measured with.

    `ended_by` and `ceilings` (the client's own, tok/s) are by cell id; `template_tok` and
    `lanes` by lane.
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
    target_half_width: float | None = 0.01
    ceilings: Mapping[str, float] = field(default_factory=dict)
    lanes: Mapping[str, LaneResult] = field(default_factory=dict)
    slos: Sequence[Slo] = ()


class Head(Protocol):
    """A round without its tables: what decides where it belongs."""

    @property
    def cell(self) -> Cell:
        """The cell that it is a round of."""
        ...

    @property
    def phase(self) -> RoundPhase:
        """What it counts as."""
        ...

    @property
    def workload(self) -> Workload:
        """What was asked for."""
        ...

    @property
    def end_ns(self) -> int:
        """When its last response ended."""
        ...


H = TypeVar("H", bound=Head)


@dataclass(frozen=True, slots=True)
class CellGroup(Generic[H]):
    """The rounds of one cell, and those of the cells that stand beside it."""

    own: list[H]
    beside: list[H]

    @property
    def all(self) -> list[H]:
        """Both."""
        return [*self.own, *self.beside]


def grouped(rounds: Iterable[H]) -> list[CellGroup[H]]:
    """Return the rounds by cell, in order of lane, link, context and concurrency."""
    groups: dict[str, CellGroup[H]] = {}
    companions: list[H] = []
    for each in rounds:
        if each.cell.context_label in COMPANIONS:
            companions.append(each)
        else:
            groups.setdefault(each.cell.cell, CellGroup([], [])).own.append(each)
    for each in companions:
        group = groups.get(each.cell.cell.removesuffix(f".{each.cell.context_label}"))
        if group is not None:
            group.beside.append(each)
    return sorted(groups.values(), key=lambda group: _place(group.own[0].cell))


def judge(
    rounds: Iterable[Round],
    facts: StudyFacts,
    see: Callable[[Evidence], object] | None = None,
) -> Result:
    """Return the result of all rounds: cells in order of lane, context and concurrency.

    Rounds of other phases than `measured` only speak through their cell's doubts. Those of
    companion cells give the prefill rate, and the request after a silence in `payload`.
    `see` is given each cell's evidence.
    """
    groups = grouped(rounds)
    return judge_groups(groups, (group.all for group in groups), facts, see)


def judge_groups(
    groups: Sequence[CellGroup[H]],
    loaded: Iterable[Sequence[Round]],
    facts: StudyFacts,
    see: Callable[[Evidence], object] | None = None,
) -> Result:
    """Return the result of rounds that are loaded cell by cell: only one cell's are held.

    `loaded` yields for each group of `grouped` its `all` rounds in that order;
    `see` is given each cell's evidence.
    """
    baselines: dict[tuple[str, int, str, str | None], CellResult] = {}
    results: list[CellResult] = []
    doubts: list[Doubt] = lane_doubts(facts.lanes)
    silences: list[dict[str, Any]] = []
    ends = [head.end_ns for group in groups for head in group.own]
    for heads, every in zip(groups, loaded, strict=True):
        group, beside = every[: len(heads.own)], every[len(heads.own) :]
        cell = heads.own[0].cell
        key = (cell.lane, cell.context_tok, cell.context_label, cell.link)
        result, found = cell_result(
            group,
            facts.targets.get(cell.lane),
            baselines.get(key),
            facts.target_half_width,
            template_tok=facts.template_tok.get(cell.lane, 0),
            ceiling_tok_per_s=facts.ceilings.get(cell.cell),
            ended_by=facts.ended_by.get(cell.cell),
            traps=traps_of(facts.lanes.get(cell.lane)),
            inflight_limit=inflight_limit(facts.lanes.get(cell.lane)),
            slos=facts.slos,
            see=see,
        )
        result.client.prefill_tok_per_s = _prefill(group, _labelled(beside, "half"))
        silences += _idle(cell.cell, _labelled(beside, "idle"), ends)
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
        lanes=dict(facts.lanes),
        machine=dict(facts.machine),
        workload=_workload([head for group in groups for head in group.own], facts.seed),
        doubts=sorted(doubts, key=lambda doubt: SEVERITY_ORDER[doubt.severity]),
        corrections=list(facts.corrections),
        cells=results,
        payload={"idle": silences} if silences else None,
    )


def _labelled(rounds: Sequence[Round], label: str) -> list[Round]:
    return [each for each in rounds if each.cell.context_label == label]


def _prefill(whole: Sequence[Round], half: Sequence[Round]) -> Estimate | None:
    """Return the prefill rate from rounds at two prompt lengths, paired by their number."""
    if not half:
        return None
    longer, shorter = _points(whole), _points(half)
    both = sorted(longer.keys() & shorter.keys())
    return prefill_slope([shorter[k] for k in both], [longer[k] for k in both])


def _points(rounds: Iterable[Round]) -> dict[int, PrefillPoint]:
    found = {each.index: prefill_point(each) for each in rounds if each.phase == "measured"}
    return {index: point for index, point in found.items() if point is not None}


def _idle(cell: str, silent: Sequence[Round], ends_ns: Sequence[int]) -> list[dict[str, Any]]:
    """Return what the cell's first request after a silence felt, and later ones warm; or nothing.

    `idle_s` is the silence there really was, from the last response before it to the request.
    """
    rounds = sorted(silent, key=lambda each: each.start_ns)
    felt = [(each, latency) for each in rounds if (latency := _latency_ms(each)) is not None]
    if len(felt) < 2 or felt[0][0] is not rounds[0]:
        return []
    first, (ttft_ms, e2e_ms) = felt[0]
    warm = [latency for _, latency in felt[1:]]
    before = max((end for end in ends_ns if end <= first.start_ns), default=first.start_ns)
    entry = {
        "cell": cell,
        "idle_s": (first.start_ns - before) / 1e9,
        "ttft_ms": ttft_ms,
        "e2e_ms": e2e_ms,
        "warm_ttft_ms": _median([ttft for ttft, _ in warm]),
        "warm_e2e_ms": _median([e2e for _, e2e in warm]),
        "n_warm": len(warm),
    }
    return [entry]


def _latency_ms(round_: Round) -> tuple[float | None, float] | None:
    """Return TTFT (None without streaming) and E2E of a round of one request that went well."""
    if len(round_.requests) != 1 or round_.requests[0].outcome != "ok":
        return None
    felt = samples(streams_of(round_), streaming=round_.workload.stream, buffered=False)
    if not felt.e2e_ms.size:
        return None
    return (float(felt.ttft_ms[0]) if felt.ttft_ms.size else None), float(felt.e2e_ms[0])


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _place(cell: Cell) -> tuple[str, str, int, int, float]:
    return (cell.lane, cell.link or "", cell.context_tok, cell.concurrency, cell.rate_rps or 0.0)


def _workload(rounds: Sequence[Head], seed: int) -> WorkloadResult | None:
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

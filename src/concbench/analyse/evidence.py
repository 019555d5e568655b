"""What a cell's result and its doubts are seen from: the rounds and all that is derived of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concbench.analyse.acceptance import simulated
from concbench.analyse.books import Books, books
from concbench.analyse.bundling import Bundling, bundling
from concbench.analyse.instrument import ClientError, client_error, loop_lag_ms, p99
from concbench.analyse.openloop import OPEN, OpenLoop, judge
from concbench.analyse.rates import steady_window
from concbench.analyse.server import Agreement, agreement
from concbench.analyse.streams import (
    Samples,
    Stream,
    pooled,
    samples,
    streams_of,
    without_gaps,
)
from concbench.analyse.windows import NoWindow, Window
from concbench.domain import Cell, RequestRecord, Round, TargetFacts
from concbench.engines.spec import Trap

MIN_AFTER_CUT = 20


@dataclass(frozen=True, slots=True)
class Evidence:
    """One cell's measured rounds, with one entry a round in `streams`, `felt` and `windows`.

    `every` holds the rounds of all phases. `felt` is what the requests felt after the ramp.
    `template_tok` is the chat template's own length, `ceiling_tok_per_s` the client's calibrated
    limit, None where unknown. `simulated` is what says that acceptance is only simulated,
    `inflight_limit` how many requests a proxy in front lets in by default.
    """

    cell: Cell
    every: tuple[Round, ...]
    rounds: tuple[Round, ...]
    streams: tuple[list[Stream], ...]
    felt: tuple[Samples, ...]
    windows: tuple[Window | NoWindow, ...]
    open_loops: tuple[OpenLoop | None, ...]
    agreed: tuple[Agreement | None, ...]
    books: Books
    bundled: Bundling
    buffered: bool
    error: ClientError
    facts: TargetFacts | None = None
    template_tok: int = 0
    ceiling_tok_per_s: float | None = None
    target_half_width: float | None = None
    ended_by: str | None = None
    simulated: str | None = None
    inflight_limit: int | None = None

    @property
    def records(self) -> list[RequestRecord]:
        """The requests of all measured rounds."""
        return [record for each in self.rounds for record in each.requests]

    @property
    def ok(self) -> list[RequestRecord]:
        """The requests that were answered in full."""
        return [record for record in self.records if record.outcome == "ok"]

    @property
    def failed(self) -> list[RequestRecord]:
        """The requests that failed."""
        return [record for record in self.records if record.outcome == "failed"]


def gather(
    rounds: Sequence[Round],
    facts: TargetFacts | None = None,
    *,
    template_tok: int = 0,
    ceiling_tok_per_s: float | None = None,
    target_half_width: float | None = None,
    ended_by: str | None = None,
    traps: Sequence[Trap] = (),
    inflight_limit: int | None = None,
) -> Evidence:
    """Derive everything once. Raises ValueError without a round: no cell would be known."""
    if not rounds:
        raise ValueError("a cell's result needs at least one round")
    measured = tuple(each for each in rounds if each.phase == "measured")
    streams = tuple(streams_of(each) for each in measured)
    flat = [stream for part in streams for stream in part]
    speculation = facts is not None and facts.speculation not in (None, "", "none", "off")
    found = bundling(flat, 1e6 * (p99(loop_lag_ms(measured)) or 0.0))
    buffered = found.buffered(speculation=speculation)
    windows = tuple(
        steady_window(each, part, facts) for each, part in zip(measured, streams, strict=True)
    )
    loops = tuple(
        judge(each, part) if each.workload.arrival in OPEN else None
        for each, part in zip(measured, streams, strict=True)
    )
    ramped = [after_ramp(*each) for each in zip(measured, streams, loops, strict=True)]
    felt = tuple(
        samples(after, streaming=each.workload.stream, buffered=buffered)
        for each, after in zip(measured, ramped, strict=True)
    )
    everyone = [
        without_gaps(known)
        if after is part
        else samples(part, streaming=each.workload.stream, buffered=True)
        for each, part, after, known in zip(measured, streams, ramped, felt, strict=True)
    ]
    return Evidence(
        cell=rounds[0].cell,
        every=tuple(rounds),
        rounds=measured,
        streams=streams,
        felt=felt,
        windows=windows,
        open_loops=loops,
        agreed=tuple(
            agreement(each, part, window)
            for each, part, window in zip(measured, streams, windows, strict=True)
        ),
        books=books(measured, streams),
        bundled=found,
        buffered=buffered,
        error=client_error(measured, flat, found, pooled(everyone)),
        facts=facts,
        template_tok=template_tok,
        ceiling_tok_per_s=ceiling_tok_per_s,
        target_half_width=target_half_width,
        ended_by=ended_by,
        simulated=simulated(facts, traps),
        inflight_limit=inflight_limit,
    )


def after_ramp(
    round_: Round, streams: Sequence[Stream], open_loop: OpenLoop | None
) -> Sequence[Stream]:
    """Return the streams whose latencies count: those past the start wave or the warm-up.

    In a closed loop each worker's first request meets a burst and has a length of its own. A
    round that holds nothing else keeps them: some number with a doubt beats none.
    """
    if round_.workload.arrival == "closed":
        first: dict[int, int] = {}
        for record in round_.requests:
            first[record.worker] = min(record.due_ns, first.get(record.worker, record.due_ns))
        later = [s for s in streams if s.record.due_ns > first[s.record.worker]]
        return later if any(s.record.outcome == "ok" for s in later) else streams
    if open_loop is not None:
        later = [s for s in streams if s.record.due_ns >= open_loop.cut_ns]
        done = sum(s.record.outcome == "ok" for s in later)
        return later if done >= MIN_AFTER_CUT else streams
    return streams


def first_wave(round_: Round, streams: Sequence[Stream]) -> Samples:
    """Return what each worker's first request felt: the burst that a closed loop starts with."""
    later = {id(stream) for stream in after_ramp(round_, streams, None)}
    firsts = [stream for stream in streams if id(stream) not in later]
    return samples(firsts or streams, streaming=round_.workload.stream, buffered=False)


def start_wave(round_: Round) -> Samples:
    """Return `first_wave` of a round alone."""
    return first_wave(round_, streams_of(round_))

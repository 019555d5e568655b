"""From another tool's per-request data to a round of ours, recomputed under our definitions."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from concbench.domain import (
    KIND_CONTENT,
    Arrival,
    Cell,
    Events,
    RequestOutcome,
    RequestRecord,
    Round,
    RoundInstrument,
    TokenSource,
    Workload,
)

MOST_EVENTS = 20_000_000
MOST_S = 10_000_000.0
"""No benchmark runs for four months: a longer time is a wrong unit or a clock that jumped."""

NOTE = "imported"


class RawRequest(Struct, frozen=True, kw_only=True):
    """One request as the other tool kept it. Times in seconds.

    `start_s` counts from any common instant, `ttft_s`, `last_s` and `end_s` from the request's own
    start, `gaps_s` are the gaps between chunks. None is unknown.
    """

    start_s: float | None = None
    due_s: float | None = None
    ttft_s: float | None = None
    visible_s: float | None = None
    gaps_s: Sequence[float] = ()
    last_s: float | None = None
    end_s: float | None = None
    chunks: int | None = None
    prompt_tok: int | None = None
    output_tok: int | None = None
    error: str | None = None
    cut: bool = False


def plausible(raw: RawRequest) -> bool:
    """Return whether the times can be true: 0 ≤ TTFT ≤ end, no gap below 0, nothing endless."""
    spans = [raw.ttft_s, raw.last_s, raw.end_s, raw.visible_s, *raw.gaps_s]
    known = [span for span in spans if span is not None]
    if any(not 0 <= span <= MOST_S for span in known):
        return False
    end = raw.last_s if raw.last_s is not None else raw.end_s
    return raw.ttft_s is None or end is None or raw.ttft_s <= end + 1e-6


def round_of(
    raws: Sequence[RawRequest],
    cell: Cell,
    *,
    arrival: Arrival,
    source: TokenSource,
    began_utc: str,
    tool: str,
    index: int = 0,
) -> tuple[Round, int]:
    """Return the round, and how many requests were left out because their times cannot be true.

    Without starts every request begins at 0, each a worker of its own: latencies hold, rates do
    not. Requests are told to workers so that none has two at a time.
    """
    usable = [raw for raw in raws if plausible(raw)]
    starts = [raw.start_s for raw in usable if raw.start_s is not None]
    origin = min([*starts, *(r.due_s for r in usable if r.due_s is not None)], default=0.0)
    timed = len(starts) == len(usable) and bool(usable) and max(starts) - origin <= MOST_S
    order = sorted(usable, key=lambda raw: raw.start_s or 0.0) if timed else usable
    workers = _workers(order, origin) if timed else list(range(len(order)))
    events = Events()
    records = [
        _record(number, raw, worker, origin if timed else None, source, events)
        for number, (raw, worker) in enumerate(zip(order, workers, strict=True))
    ]
    ends = [record.end_ns for record in records if record.end_ns is not None]
    lengths = [record.output_tok for record in records if record.outcome == "ok"]
    made = Round(
        round_id=f"{index:05d}-{cell.cell}",
        cell=cell,
        index=index,
        phase="measured",
        workload=Workload(
            prompt_tokens=cell.context_tok,
            output_tokens=int(median(lengths)) if lengths else 0,
            seed=0,
            arrival=arrival if timed else "burst",
            content=NOTE,
        ),
        began_utc=began_utc,
        start_ns=0,
        end_ns=max(ends, default=0),
        requests=records,
        events=events,
        instrument=RoundInstrument(stamp="user"),
        outcome_detail=f"{NOTE} from {tool}",
    )
    return made, len(raws) - len(usable)


def _workers(order: Sequence[RawRequest], origin: float) -> list[int]:
    """Return a worker for each request, in order of start: the first that is free again."""
    free: list[tuple[float, int]] = []
    found: list[int] = []
    for raw in order:
        begin = (raw.start_s or origin) - origin
        length = raw.end_s or raw.last_s or raw.ttft_s or 0.0
        again = bool(free) and free[0][0] <= begin + 1e-9
        worker = heapq.heappop(free)[1] if again else len(free)
        found.append(worker)
        heapq.heappush(free, (begin + length, worker))
    return found


def _record(
    number: int,
    raw: RawRequest,
    worker: int,
    origin: float | None,
    source: TokenSource,
    events: Events,
) -> RequestRecord:
    """Return the request's record; its token events are appended to `events`."""
    sent_ns = 0 if origin is None else _ns((raw.start_s or 0.0) - origin)
    due_ns = sent_ns if origin is None or raw.due_s is None else _ns(raw.due_s - origin)
    times = _event_times(raw, sent_ns)
    outcome: RequestOutcome = "failed" if raw.error else "incomplete" if raw.cut else "ok"
    output = raw.output_tok or 0
    count = len(times) or raw.chunks or 0
    each = output / count if count else 0.0
    if len(events) + len(times) <= MOST_EVENTS:
        for position, stamp in enumerate(times):
            events.request.append(number)
            events.read.append(position)
            events.kernel_ns.append(0)
            events.user_ns.append(stamp)
            events.kind.append(KIND_CONTENT)
            events.tokens.append(each)
    first = times[0] if times else _after(sent_ns, raw.ttft_s)
    last = times[-1] if times else _after(sent_ns, raw.last_s)
    return RequestRecord(
        index=number,
        worker=worker,
        due_ns=min(due_ns, sent_ns),
        sent_ns=sent_ns,
        outcome=outcome,
        first_token_ns=first,
        first_visible_ns=_after(sent_ns, raw.visible_s) or first,
        last_token_ns=last,
        end_ns=_after(sent_ns, raw.end_s) or last,
        error=None if outcome != "failed" else "other_tool",
        error_detail=raw.error,
        asked_output_tok=output,
        prompt_tok=raw.prompt_tok,
        output_tok=output,
        token_source=source,
        events=count,
        # One token in the first chunk is what every other tool takes for granted.
        first_event_tok=each if times else 1.0,
        reads=count,
        notes=(NOTE,),
    )


def _event_times(raw: RawRequest, sent_ns: int) -> list[int]:
    """Return when each chunk came, from TTFT and the gaps; none where the gaps are not kept."""
    if raw.ttft_s is None or not raw.gaps_s:
        return []
    times, now = [], raw.ttft_s
    times.append(sent_ns + _ns(now))
    for gap in raw.gaps_s:
        now += gap
        times.append(sent_ns + _ns(now))
    return times


def _after(sent_ns: int, span_s: float | None) -> int | None:
    return None if span_s is None else sent_ns + _ns(span_s)


def _ns(span_s: float) -> int:
    return round(span_s * 1e9)

"""Per-request quantities derived from a round's stamps.

The time of an event is the kernel's stamp where there is one, else ours. Nothing here pools
rounds or judges; what cannot be is left out and counted (`Samples.impossible`), never clipped.
Definitions: `concbench report --definitions`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concbench.domain import KIND_REASONING, RequestRecord, Round

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_TOKENS_FOR_RATE = 16
"""Shorter answers carry too few gaps for a rate: left out of tok/s, TPOT and decode rates."""

STAMP_TOLERANCE_NS = 1_000_000
"""How far a converted kernel stamp may lie before a send without proving that a clock stepped."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One request with its token events in order of arrival.

    All arrays have one entry an event. `times_ns` never decreases; `lateness_ns` is user stamp −
    kernel stamp and meaningful only where `stamped`.
    """

    record: RequestRecord
    times_ns: Ints
    tokens: Floats
    kinds: NDArray[np.int8]
    lateness_ns: Ints
    user_ns: Ints
    stamped: NDArray[np.bool_]

    @property
    def first_ns(self) -> int | None:
        """First token event; the record's own stamp where no events were kept."""
        return int(self.times_ns[0]) if self.times_ns.size else self.record.first_token_ns

    @property
    def last_ns(self) -> int | None:
        """Last token event; the record's own stamp where no events were kept."""
        return int(self.times_ns[-1]) if self.times_ns.size else self.record.last_token_ns

    @property
    def first_visible_ns(self) -> int | None:
        """First token event that is not reasoning, None when there was none."""
        if not self.times_ns.size:
            return self.record.first_visible_ns
        if self.kinds[0] != KIND_REASONING:
            return int(self.times_ns[0])
        visible = np.flatnonzero(self.kinds != KIND_REASONING)
        return int(self.times_ns[visible[0]]) if visible.size else None

    @property
    def first_event_tok(self) -> float:
        """Tokens of the first event; 1 where it is not known."""
        known = float(self.tokens[0]) if self.tokens.size else self.record.first_event_tok
        return known if known > 0 else 1.0

    @property
    def event_count(self) -> int:
        """Token events, by the events kept or else by the record."""
        return int(self.times_ns.size) or self.record.events


@dataclass(frozen=True, slots=True)
class Samples:
    """What a set of requests felt: one array a quantity, milliseconds or tokens per second.

    Latencies come from `ok` requests alone; `send_delay_ms` from every request that was sent.
    `impossible` counts requests whose stamps contradict 0 ≤ TTFT ≤ E2E by more than the
    tolerance; their samples are left out.
    """

    ttft_ms: Floats
    ttft_from_due_ms: Floats
    ttfo_ms: Floats
    icl_ms: Floats
    itl_ms: Floats
    tpot_ms: Floats
    e2e_ms: Floats
    e2e_from_due_ms: Floats
    send_delay_ms: Floats
    per_request_tok_per_s: Floats
    impossible: int = 0


def column(values: array[Any], dtype: str) -> NDArray[Any]:
    """Return a numpy view of a column of `Events`; numpy refuses to view an empty buffer."""
    return np.frombuffer(values, dtype=dtype) if len(values) else np.empty(0, dtype=dtype)


def streams_of(round_: Round) -> list[Stream]:
    """Return the round's requests with their events, in the order of the records."""
    events = round_.events
    request = column(events.request, "i4")
    order = _by_request(request, column(events.read, "i4"))
    request = request[order]
    kernel = column(events.kernel_ns, "i8")[order]
    user = column(events.user_ns, "i8")[order]
    tokens = column(events.tokens, "f4")[order].astype(np.float64)
    kinds = column(events.kind, "i1")[order]
    stamped = kernel != 0
    times = np.where(stamped, kernel, user)
    lateness = np.where(stamped, user - kernel, 0)
    ordered = not np.any((times[1:] < times[:-1]) & (request[1:] == request[:-1]))
    numbers = np.array([record.index for record in round_.requests], dtype=np.int64)
    begins = np.searchsorted(request, numbers, side="left").tolist()
    ends = np.searchsorted(request, numbers, side="right").tolist()
    found = []
    for record, begin, end in zip(round_.requests, begins, ends, strict=True):
        part = slice(begin, end)
        found.append(
            Stream(
                record=record,
                times_ns=times[part] if ordered else _in_order(times[part]),
                tokens=tokens[part],
                kinds=kinds[part],
                lateness_ns=lateness[part],
                user_ns=user[part],
                stamped=stamped[part],
            )
        )
    return found


def _by_request(request: NDArray[np.int32], read: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the order by request and read; events of one read keep theirs."""
    # A round's events are stored as they arrived, so one stable sort is enough; of 16 bits it
    # is a radix sort, five times as fast as that of 32.
    small = request.size and request.min() >= 0 and request.max() < 1 << 16
    keys = request.astype(np.uint16) if small else request
    order: NDArray[np.int64] = np.argsort(keys, kind="stable")
    sorted_request, sorted_read = request[order], read[order]
    falls = sorted_read[1:] < sorted_read[:-1]
    if np.any(falls & (sorted_request[1:] == sorted_request[:-1])):
        return np.lexsort((read, request))
    return order


def ttft_ns(stream: Stream) -> int | None:
    """First token event − sent, None where one of the two never came."""
    first, sent = stream.first_ns, stream.record.sent_ns
    return None if first is None or sent is None else first - sent


def e2e_ns(stream: Stream, *, streaming: bool = True) -> int | None:
    """Last token event − sent; without streaming, end − sent."""
    done = stream.last_ns if streaming else stream.record.end_ns
    return None if done is None or stream.record.sent_ns is None else done - stream.record.sent_ns


def tpot_ns(stream: Stream) -> float | None:
    """(last − first token event) ÷ (output tokens − tokens of the first event).

    None for one event, for events that all came at one instant, and where the clock went back.
    When the first event claims all tokens although others followed, the counts disagree: an even
    share of the tokens is taken for it.
    """
    first, last, events = stream.first_ns, stream.last_ns, stream.event_count
    if first is None or last is None or events < 2 or last <= first:
        return None
    output = stream.record.output_tok
    later = output - stream.first_event_tok
    if later <= 0:
        later = output * (1 - 1 / events)
    return (last - first) / later if later > 0 else None


def icl_ns(*streams: Stream) -> Ints:
    """Gaps between successive token events of each stream, one after the other, in ns."""
    times = times_of(streams)
    return np.diff(times)[_within(streams)]


def itl_ns(*streams: Stream) -> Floats:
    """Gaps ÷ tokens of the later event; events without tokens are left out."""
    later = tokens_of(streams)[1:]
    carried = _within(streams) & (later > 0)
    return np.diff(times_of(streams))[carried] / later[carried]


def times_of(streams: Sequence[Stream]) -> Ints:
    """Return the events' times of all streams, one stream after the other, in ns."""
    parts = [stream.times_ns for stream in streams]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def tokens_of(streams: Sequence[Stream]) -> Floats:
    """Return the events' tokens in the order of `times_of`."""
    return _joined([stream.tokens for stream in streams])


def starts_of(streams: Sequence[Stream]) -> Ints:
    """Return where in `times_of` the events of each stream that has any begin."""
    sizes = np.array([stream.times_ns.size for stream in streams], dtype=np.int64)
    sizes = sizes[sizes > 0]
    return np.cumsum(sizes) - sizes


def _within(streams: Sequence[Stream]) -> NDArray[np.bool_]:
    """Return for each difference of `times_of` whether both events are of one stream."""
    starts = starts_of(streams)
    events = sum(stream.times_ns.size for stream in streams)
    kept = np.ones(max(0, events - 1), dtype=np.bool_)
    kept[starts[1:] - 1] = False
    return kept


def samples(streams: Iterable[Stream], *, streaming: bool, buffered: bool) -> Samples:
    """Return what the requests felt.

    Without `streaming` there is no TTFT nor any gap, and E2E runs to the response's end. With
    `buffered` the gaps tell of a proxy's buffer, so ICL, ITL and TPOT stay empty.
    """
    rows: dict[str, list[float]] = {field.name: [] for field in fields(Samples)}
    gapped: list[Stream] = []
    impossible = 0
    for stream in streams:
        record = stream.record
        if record.sent_ns is not None:
            rows["send_delay_ms"].append((record.sent_ns - record.due_ns) / 1e6)
        if record.outcome != "ok":
            continue
        live = streaming and "not_streamed" not in record.notes
        latencies = _latencies(stream, streaming=live)
        if latencies is None:
            impossible += _contradicts(stream)
            continue
        for name, value in latencies.items():
            rows[name].append(value)
        if not live or buffered:
            continue
        gapped.append(stream)
        tpot = tpot_ns(stream)
        if tpot is not None and record.output_tok >= MIN_TOKENS_FOR_RATE:
            rows["tpot_ms"].append(tpot / 1e6)
    arrays = {name: np.array(values, dtype=np.float64) for name, values in rows.items()}
    arrays |= {"icl_ms": icl_ns(*gapped) / 1e6, "itl_ms": itl_ns(*gapped) / 1e6}
    del arrays["impossible"]
    return Samples(**arrays, impossible=impossible)


def pooled(parts: Sequence[Samples]) -> Samples:
    """Return the samples of several rounds as one."""
    names = [field.name for field in fields(Samples) if field.name != "impossible"]
    arrays = {name: pooled_one(parts, name) for name in names}
    return Samples(**arrays, impossible=sum(part.impossible for part in parts))


def pooled_one(parts: Sequence[Samples], name: str) -> Floats:
    """Return one quantity of several rounds as one array."""
    return _joined([getattr(part, name) for part in parts])


def without_gaps(part: Samples) -> Samples:
    """Return the samples without those that there is one of for each token event."""
    nothing = np.empty(0, dtype=np.float64)
    return replace(part, icl_ms=nothing, itl_ms=nothing)


def received_tok(stream: Stream) -> float:
    """Output tokens received: the record's count, or what its events carried if that is more.

    A stream that was cut may never have told its usage.
    """
    return max(float(stream.record.output_tok), float(stream.tokens.sum()))


def _latencies(stream: Stream, *, streaming: bool) -> dict[str, float] | None:
    """The request's own latencies, or None when it has none that can be true."""
    record, total, first = stream.record, e2e_ns(stream, streaming=streaming), ttft_ns(stream)
    if total is None or record.sent_ns is None or total < 0:
        return None
    delay = record.sent_ns - record.due_ns
    found = {"e2e_ms": total / 1e6, "e2e_from_due_ms": (total + delay) / 1e6}
    if record.output_tok >= MIN_TOKENS_FOR_RATE and total > 0:
        found["per_request_tok_per_s"] = record.output_tok / total * 1e9
    if not streaming:
        return found
    if first is None or not 0 <= first <= total:
        return None
    found |= {"ttft_ms": first / 1e6, "ttft_from_due_ms": (first + delay) / 1e6}
    visible = stream.first_visible_ns
    if visible is not None and visible >= record.sent_ns:
        found["ttfo_ms"] = (visible - record.sent_ns) / 1e6
    return found


def _contradicts(stream: Stream) -> int:
    first, last, sent = stream.first_ns, stream.last_ns, stream.record.sent_ns
    if first is None or last is None or sent is None:
        return 0
    return int(first < sent - STAMP_TOLERANCE_NS or last < first - STAMP_TOLERANCE_NS)


def _in_order(times: Ints) -> Ints:
    """Bytes arrive in order, so a later event's stamp also bounds the earlier ones.

    Only a mix of kernel and user stamps can be out of order: ours is taken after the read.
    """
    if times.size < 2 or bool(np.all(times[1:] >= times[:-1])):
        return times
    return np.minimum.accumulate(times[::-1])[::-1]


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.float64)

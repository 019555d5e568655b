"""After the round: from kept bytes to records and token events.

The reads are replayed in order of arrival. Each passes the request's own HTTP framing, SSE parser
and stream reader, and a token event gets the stamps of the read that completed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from concbench.domain import (
    Cell,
    Events,
    RequestRecord,
    Round,
    RoundInstrument,
    RoundPhase,
    Workload,
)
from concbench.load.generator import RawRound, Share
from concbench.load.stream import RawRequest
from concbench.measure.stamped import Ints, Stamps, grouped
from concbench.wire.http import ResponseFramer, decompress
from concbench.wire.sse import SseParser
from concbench.wire.tokens import StreamOutcome, StreamReader, read_body

Endpoint = Literal["chat", "completions"]

KEPT_LATENESS = 100_000
FEW_READS = 10_000
"""Up to so many reads the lateness of each is kept, then of every other at most: memory."""

ERROR_TEXT_CHARS = 300
LOST_NOTE = "worker_lost"


@dataclass(slots=True)
class _Response:
    """What is being put together for one request."""

    raw: RawRequest
    reader: StreamReader
    framer: ResponseFramer = field(default_factory=ResponseFramer)
    parser: SseParser = field(default_factory=SseParser)
    body: bytearray = field(default_factory=bytearray)
    reads: int = 0

    def take(self, data: bytes) -> None:
        """Feed one read through framing, SSE and tokens."""
        read = self.reads
        self.reads = read + 1
        self.framer.feed(data, len(data), self.body)
        if self.is_stream and self.body:
            for event in self.parser.feed(bytes(self.body)):
                self.reader.feed(event.data, event.event, read)
            self.body.clear()

    @property
    def is_stream(self) -> bool:
        """Whether the answer is server-sent events that can be read as they come."""
        framer = self.framer
        return (
            framer.status == 200
            and "text/event-stream" in framer.headers.get("content-type", "").lower()
            and framer.headers.get("content-encoding", "identity").lower() in ("", "identity")
        )


def digest(
    raw: RawRound,
    *,
    round_id: str,
    cell: Cell,
    index: int,
    phase: RoundPhase,
    workload: Workload,
    prompts: list[tuple[str, int | None]],
    keep_text: bool = False,
) -> Round:
    """Return the round's records. `prompts` are `(sha256, tokens asked)` by prompt number.

    Closes the raw round's payload.
    """
    events, lateness = Events(), _Lateness()
    records: list[RequestRecord] = []
    for share in raw.parts():
        # A process that was lost has no share; its requests stand between the others'.
        records += _unread(raw.requests[len(records) : share.first], prompts)
        parsed = _parsed(raw, share, workload.endpoint, keep_text, lateness)
        records += [
            _record(response, stamps, events, workload.endpoint, prompts, keep_text)
            for response, stamps in parsed
        ]
    records += _unread(raw.requests[len(records) :], prompts)
    return Round(
        round_id=round_id,
        cell=cell,
        index=index,
        phase=phase,
        workload=workload,
        began_utc=raw.began_utc,
        start_ns=raw.start_ns,
        end_ns=raw.end_ns,
        requests=records,
        events=events,
        instrument=_instrument(raw, lateness),
        outcome="interrupted" if raw.interrupted else "measured",
        interrupted=raw.interrupted,
    )


def _parsed(
    raw: RawRound,
    share: Share,
    endpoint: Endpoint,
    keep_text: bool,  # noqa: FBT001
    lateness: _Lateness,
) -> Iterator[tuple[_Response, tuple[Ints, Ints]]]:
    """Yield the responses of a share, each with the kernel's and our stamps of its reads."""
    responses = [
        _Response(r, StreamReader(endpoint, r.asked_output_tok, keep_text))
        for r in raw.requests[share.first : share.first + share.requests]
    ]
    log = share.open_log()
    request = log.request
    for row, data in log.replay():
        responses[request[row]].take(data)
    stamps = grouped(log, share.offsets, len(responses), share.clock)
    log.close()
    lateness.add(stamps)
    responses.reverse()
    for number in range(len(responses)):
        # Taken off the list, so that what its reader holds goes when its record is made.
        yield responses.pop(), stamps.of(number)


def _unread(
    requests: list[RawRequest], prompts: list[tuple[str, int | None]]
) -> list[RequestRecord]:
    """Return records of requests of which nothing was kept: whoever carried them died."""
    found = []
    for raw in requests:
        sha256, asked_tok = _prompt(raw, prompts)
        found.append(
            RequestRecord(
                index=raw.number,
                worker=raw.worker,
                due_ns=raw.due_ns,
                sent_ns=raw.sent_ns,
                outcome="incomplete",
                error_detail=raw.detail,
                asked_output_tok=raw.asked_output_tok,
                asked_prompt_tok=asked_tok,
                notes=(LOST_NOTE,) if raw.lost else (),
                prompt_sha256=sha256,
            )
        )
    return found


def _prompt(
    raw: RawRequest, prompts: list[tuple[str, int | None]]
) -> tuple[str | None, int | None]:
    return prompts[raw.prompt] if 0 <= raw.prompt < len(prompts) else (None, None)


def _record(
    response: _Response,
    stamps: tuple[Ints, Ints],
    events: Events,
    endpoint: Endpoint,
    prompts: list[tuple[str, int | None]],
    keep_text: bool,  # noqa: FBT001
) -> RequestRecord:
    raw, framer = response.raw, response.framer
    outcome, notes = _outcome(response, endpoint, keep_text)
    error, detail = _error(response, outcome)
    first, visible, last = _append_events(raw.number, stamps, outcome, events)
    sha256, asked_tok = _prompt(raw, prompts)
    return RequestRecord(
        index=raw.number,
        worker=raw.worker,
        due_ns=raw.due_ns,
        sent_ns=raw.sent_ns,
        outcome="incomplete" if raw.ending == "stopped" else "failed" if error else "ok",
        connect_ns=raw.connect_ns,
        send_done_ns=raw.send_done_ns,
        first_byte_ns=_event_ns(stamps, 0) if response.reads else None,
        first_token_ns=first,
        first_visible_ns=visible,
        last_token_ns=last,
        end_ns=_event_ns(stamps, -1) if raw.ending == "complete" and response.reads else raw.end_ns,
        http_status=framer.status,
        error=error,
        error_detail=detail,
        finish_reason=outcome.finish_reason,
        asked_output_tok=raw.asked_output_tok,
        asked_prompt_tok=asked_tok,
        prompt_tok=outcome.prompt_tok,
        cached_tok=outcome.cached_tok,
        output_tok=outcome.output_tok or 0,
        reasoning_tok=outcome.reasoning_tok,
        token_source=outcome.token_source,
        events=outcome.events,
        first_event_tok=outcome.first_event_tok,
        reads=response.reads,
        notes=notes,
        prompt_sha256=sha256,
        text=outcome.text if keep_text else None,
    )


def _outcome(
    response: _Response,
    endpoint: Endpoint,
    keep_text: bool,  # noqa: FBT001
) -> tuple[StreamOutcome, tuple[str, ...]]:
    """Close the stream, or read the body where the answer was not (or not plainly) a stream."""
    framer, raw = response.framer, response.raw
    extra: list[str] = []
    if raw.ending != "complete":
        framer.eof()
    if response.is_stream:
        for event in response.parser.close():
            response.reader.feed(event.data, event.event, max(0, response.reads - 1))
        outcome = response.reader.finish(clean_end=raw.ending == "complete")
    else:
        body = bytes(response.body)
        encoding = framer.headers.get("content-encoding", "")
        if encoding and encoding.lower() != "identity":
            extra.append("compressed_response")
            body = decompress(body, encoding) or b""
        if "text/event-stream" in framer.headers.get("content-type", "").lower():
            outcome = _whole_stream(response, body)
        else:
            outcome = read_body(body, endpoint, raw.asked_output_tok, keep_text)
            if raw.stream and framer.status == 200:
                extra.append("not_streamed")
    if raw.stale:
        extra.append("stale_connection")
    if raw.excess_bytes:
        extra.append("bytes_after_end")
    return outcome, (*outcome.notes, *extra)


def _whole_stream(response: _Response, body: bytes) -> StreamOutcome:
    """A stream that came compressed: its tokens count, its times are those of the last read."""
    last = max(0, response.reads - 1)
    for event in (*response.parser.feed(body), *response.parser.close()):
        response.reader.feed(event.data, event.event, last)
    return response.reader.finish(clean_end=response.raw.ending == "complete")


def _error(response: _Response, outcome: StreamOutcome) -> tuple[str | None, str | None]:
    """Return the kind of failure and its detail, or (None, None). Kinds are never empty."""
    raw, status = response.raw, response.framer.status
    if raw.ending == "stopped":
        return None, None
    if status is not None and status != 200:
        location = response.framer.headers.get("location")
        said = outcome.error_detail or _text(bytes(response.body))
        return f"http_{status}", f"to {location}" if location and 300 <= status < 400 else said
    elapsed_s = ((raw.end_ns or 0) - (raw.sent_ns or 0)) / 1e9
    detail = outcome.error_detail or raw.detail or f"after {elapsed_s:.1f} s"
    if raw.ending not in ("complete", "truncated"):
        return raw.ending, raw.detail or detail
    if raw.ending == "truncated" and outcome.error_kind != "in_stream_error":
        return "truncated", detail  # a body that was cut is unreadable because it was cut
    return (None, None) if outcome.error_kind is None else (outcome.error_kind, detail)


def _text(body: bytes) -> str | None:
    return body[:ERROR_TEXT_CHARS].decode("utf-8", "replace").strip() or None


def _event_ns(stamps: tuple[Ints, Ints], read: int) -> int:
    """The time of a read: the kernel's stamp where there is one, else ours."""
    kernel_ns, user_ns = stamps
    return int(kernel_ns[read]) or int(user_ns[read])


def _append_events(
    number: int, stamps: tuple[Ints, Ints], outcome: StreamOutcome, events: Events
) -> tuple[int | None, int | None, int | None]:
    """Add the token events; return the times of the first, the first visible and the last."""
    rows = outcome.rows
    if not rows:
        return None, None, None
    reads, kinds, tokens = zip(*rows, strict=True)
    at = np.array(reads, dtype=np.int64)
    events.request.extend([number] * len(rows))
    events.read.extend(reads)
    events.kernel_ns.frombytes(stamps[0][at].tobytes())
    events.user_ns.frombytes(stamps[1][at].tobytes())
    events.kind.extend(kinds)
    events.tokens.extend(tokens)
    visible = outcome.first_visible_index
    return (
        _event_ns(stamps, reads[0]),
        None if visible is None else _event_ns(stamps, reads[visible]),
        _event_ns(stamps, reads[-1]),
    )


class _Lateness:
    """Our stamp − the kernel's of the stamped reads of all shares, thinned."""

    def __init__(self) -> None:
        self.stamped = 0
        self._parts: list[Ints] = []

    def add(self, stamps: Stamps) -> None:
        """Take a share's reads."""
        known = stamps.kernel_ns != 0
        self.stamped += int(np.count_nonzero(known))
        self._parts.append((stamps.user_ns - stamps.kernel_ns)[known])

    def kept(self) -> list[int]:
        """Return what is kept: evenly spread over the requests."""
        most = min(KEPT_LATENESS, max(FEW_READS, self.stamped // 2))
        step = max(1, -(-self.stamped // most))
        return [int(late) for part in self._parts for late in part[::step]]


def _instrument(raw: RawRound, lateness: _Lateness) -> RoundInstrument:
    parts = raw.parts()
    elapsed_ns = max(1, raw.end_ns - raw.start_ns)
    jumps = [
        abs(later[1] - before[1]) for share in parts for before, later in pairwise(share.offsets)
    ]
    return RoundInstrument(
        stamp="kernel" if lateness.stamped else "user",
        reads=sum(share.rows for share in parts),
        stamped_reads=lateness.stamped,
        read_lateness_ns=lateness.kept(),
        loop_lag_ns=list(raw.loop_lag_ns),
        min_rtt_ns=raw.min_rtt_ns,
        client_cpu=raw.client_cpu_ns / elapsed_ns,
        offset_step_ns=max(jumps, default=0),
        received_bytes=sum(share.payload_bytes for share in parts),
        clock_bound_ns=raw.clock_bound_ns,
    )

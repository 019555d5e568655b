"""After the round: from kept bytes to records and token events.

The reads are replayed in order of arrival. Each passes the request's own HTTP framing, SSE parser
and stream reader, and a token event gets the stamps of the read that completed it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from concbench.domain import (
    Cell,
    Events,
    RequestRecord,
    Round,
    RoundInstrument,
    RoundPhase,
    Workload,
)
from concbench.load import stamps
from concbench.load.generator import RawRound
from concbench.load.stream import RawRequest
from concbench.wire.http import ResponseFramer, decompress
from concbench.wire.sse import SseParser
from concbench.wire.tokens import StreamOutcome, StreamReader, read_body

Endpoint = Literal["chat", "completions"]

KEPT_LATENESS = 100_000
ERROR_TEXT_CHARS = 300


@dataclass(slots=True)
class _Response:
    """What is being put together for one request."""

    raw: RawRequest
    reader: StreamReader
    framer: ResponseFramer = field(default_factory=ResponseFramer)
    parser: SseParser = field(default_factory=SseParser)
    body: bytearray = field(default_factory=bytearray)
    user_ns: list[int] = field(default_factory=list)
    kernel_ns: list[int] = field(default_factory=list)

    def take(self, data: bytes, kernel_ns: int, user_ns: int) -> None:
        """Feed one read through framing, SSE and tokens."""
        read = len(self.user_ns)
        self.user_ns.append(user_ns)
        self.kernel_ns.append(kernel_ns)
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
    responses = [
        _Response(r, StreamReader(workload.endpoint, r.asked_output_tok, keep_text))
        for r in raw.requests
    ]
    kernel_ns = stamps.to_monotonic(raw.log.kernel, raw.offsets)
    for row, data in raw.log.replay():
        responses[raw.log.request[row]].take(data, kernel_ns[row], raw.log.user_ns[row])
    raw.log.close()
    events = Events()
    records = [_record(r, events, workload.endpoint, prompts, keep_text) for r in responses]
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
        instrument=_instrument(raw, kernel_ns),
        outcome="interrupted" if raw.interrupted else "measured",
        interrupted=raw.interrupted,
    )


def _record(
    response: _Response,
    events: Events,
    endpoint: Endpoint,
    prompts: list[tuple[str, int | None]],
    keep_text: bool,  # noqa: FBT001
) -> RequestRecord:
    raw, framer = response.raw, response.framer
    outcome, notes = _outcome(response, endpoint, keep_text)
    error, detail = _error(response, outcome)
    first, visible, last = _append_events(response, outcome, events)
    sha256, asked_tok = prompts[raw.prompt] if 0 <= raw.prompt < len(prompts) else (None, None)
    return RequestRecord(
        index=raw.number,
        worker=raw.worker,
        due_ns=raw.due_ns,
        sent_ns=raw.sent_ns,
        outcome="incomplete" if raw.ending == "stopped" else "failed" if error else "ok",
        connect_ns=raw.connect_ns,
        send_done_ns=raw.send_done_ns,
        first_byte_ns=_event_ns(response, 0) if response.user_ns else None,
        first_token_ns=first,
        first_visible_ns=visible,
        last_token_ns=last,
        end_ns=_event_ns(response, -1)
        if raw.ending == "complete" and response.user_ns
        else raw.end_ns,
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
        reads=len(response.user_ns),
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
            response.reader.feed(event.data, event.event, max(0, len(response.user_ns) - 1))
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
    last = max(0, len(response.user_ns) - 1)
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


def _event_ns(response: _Response, read: int) -> int:
    """The time of a read: the kernel's stamp where there is one, else ours."""
    return response.kernel_ns[read] or response.user_ns[read]


def _append_events(
    response: _Response, outcome: StreamOutcome, events: Events
) -> tuple[int | None, int | None, int | None]:
    """Add the token events; return the times of the first, the first visible and the last."""
    number = response.raw.number
    for read, kind, tokens in outcome.rows:
        events.request.append(number)
        events.read.append(read)
        events.kernel_ns.append(response.kernel_ns[read])
        events.user_ns.append(response.user_ns[read])
        events.kind.append(kind)
        events.tokens.append(tokens)
    if not outcome.rows:
        return None, None, None
    visible = outcome.first_visible_index
    return (
        _event_ns(response, outcome.rows[0][0]),
        None if visible is None else _event_ns(response, outcome.rows[visible][0]),
        _event_ns(response, outcome.rows[-1][0]),
    )


def _instrument(raw: RawRound, kernel_ns: Any) -> RoundInstrument:  # noqa: ANN401 - array of int
    lateness = [u - k for u, k in zip(raw.log.user_ns, kernel_ns, strict=True) if k]
    stamped = len(lateness)
    step = max(1, -(-stamped // KEPT_LATENESS))
    elapsed_ns = max(1, raw.end_ns - raw.start_ns)
    jumps = [abs(b[1] - a[1]) for a, b in zip(raw.offsets, raw.offsets[1:], strict=False)]
    return RoundInstrument(
        stamp="kernel" if stamped else "user",
        reads=len(raw.log),
        stamped_reads=stamped,
        read_lateness_ns=lateness[::step],
        loop_lag_ns=list(raw.loop_lag_ns),
        min_rtt_ns=raw.min_rtt_ns,
        client_cpu=raw.client_cpu_ns / elapsed_ns,
        offset_step_ns=max(jumps, default=0),
        received_bytes=raw.log.payload_bytes,
    )

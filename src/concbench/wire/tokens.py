"""From a stream's events, or a whole JSON body, to token events and an outcome.

A *token event* is a stream event that carries content, reasoning or tool-call text. A role-only
or null opener, a usage chunk, a ping and `[DONE]` are not. Token counts come from the server's
usage, else from its timings, else each event counts as one (`chunks`); never from the length that
was asked for. Whatever bytes come, nothing here raises.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, Literal

from concbench.domain import KIND_REASONING, TokenSource
from concbench.wire.chunks import (
    DECODE_ERRORS,
    MAX_NAME_CHARS,
    Choice,
    Chunk,
    bare_error,
    choice_text,
    chunk_from,
    clean,
    decode_any,
    decode_chunk,
    durations,
    error_text,
    plain_dict,
)
from concbench.wire.usage import UsageLedger

Endpoint = Literal["chat", "completions"]

_DONE = b"[DONE]"
_NO_KIND = -1
# What a server that gave up says in place of `stop` or `length`; the output is only a part.
_FAILED_REASONS = frozenset({"error", "abort"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOutcome:
    """What one answer came to.

    `rows` holds `(read, kind, tokens)` of each token event in order; the tokens add up to
    `output_tok` where there are rows. `events` is their number, `first_event_tok` the tokens of
    the first, `first_visible_index` the position of the first that is not reasoning.

    `error_kind`: `in_stream_error` (the server sent an error object), `truncated` (the stream was
    cut, or ended with neither a finish reason nor `[DONE]`; no detail), `empty_response` (it ended
    well without a token), `unreadable_body` (no JSON object), or None.

    `notes`: `no_done`, `tokens_after_end`, `usage_inconsistent`, `output_over_cap`,
    `unparsed_events`. `unparsed` counts events that were no JSON object. `role_read` is the read
    of the role-only opener. `server_timings` are the server's own, in its own names and units.
    `text` is None unless it was to be kept. Every text can be encoded as UTF-8.
    """

    rows: list[tuple[int, int, float]]
    events: int
    first_event_tok: float
    first_visible_index: int | None
    role_read: int | None
    done_seen: bool
    finish_reason: str | None
    prompt_tok: int | None
    cached_tok: int | None
    output_tok: int | None
    reasoning_tok: int | None
    token_source: TokenSource | None
    error_kind: str | None
    error_detail: str | None
    unparsed: int
    notes: tuple[str, ...]
    text: str | None
    server_timings: dict[str, Any] | None


class StreamReader:
    """Reads one stream, event by event, into columns; `finish` settles what it came to."""

    __slots__ = (
        "_after_end",
        "_asked_output_tok",
        "_completions",
        "_done",
        "_error",
        "_finished",
        "_keep_text",
        "_kinds",
        "_ledger",
        "_no_done",
        "_other_choices",
        "_reads",
        "_role_read",
        "_text",
        "_text_seen",
        "_timings",
        "_unparsed",
    )

    def __init__(self, endpoint: Endpoint, asked_output_tok: int, keep_text: bool) -> None:  # noqa: FBT001
        self._completions = endpoint == "completions"
        self._asked_output_tok = asked_output_tok
        self._keep_text = keep_text
        self._reads = array("q")
        self._kinds = array("b")
        self._ledger = UsageLedger()
        self._finished: dict[int, str] = {}
        self._other_choices: set[int] = set()
        self._text: dict[int, list[str]] = {}
        self._text_seen = False
        self._timings: dict[str, Any] | None = None
        self._role_read: int | None = None
        self._error: str | None = None
        self._done = False
        self._no_done = False
        self._after_end = False
        self._unparsed = 0

    def feed(self, data: bytes, event_name: str, read: int) -> None:
        """Take one event, completed by read number `read` (0 or more) of this answer."""
        if event_name == "error":
            self._take_error_event(data)
            return
        try:
            chunk = decode_chunk(data)
        except DECODE_ERRORS:
            other = self._decode_other(data)
            if other is None:
                return
            chunk = other
        choices = chunk.choices
        if choices:
            kind = self._take_choices(choices, read)
            if kind != _NO_KIND:
                self._reads.append(read)
                self._kinds.append(kind)
        if not choices or chunk.usage or chunk.timings or chunk.metrics or chunk.error:
            self._take_rest(chunk, data)

    def finish(self, clean_end: bool) -> StreamOutcome:  # noqa: FBT001
        """Settle the outcome. `clean_end`: HTTP said that the response was complete."""
        ended = self._done or bool(self._finished)
        self._no_done = clean_end and ended and not self._done
        return self._settle(cut=not clean_end or not ended)

    def take_body(self, body: bytes) -> StreamOutcome:
        """Take a whole JSON body in place of a stream; it has no token events."""
        try:
            value = decode_any(body)
        except DECODE_ERRORS:
            value = None
        if not isinstance(value, dict):
            blank = not body.strip()
            kind = "empty_response" if blank else "unreadable_body"
            detail = "the body is empty" if blank else "the body is no JSON object"
            return self._outcome(None, None, [], (kind, detail))
        chunk = chunk_from(value)
        if chunk.choices:
            self._take_choices(chunk.choices, 0)
        if chunk.error or not chunk.choices:
            self._error = bare_error(value)
        self._take_values(chunk)
        return self._settle(cut=False)

    def _decode_other(self, data: bytes) -> Chunk | None:
        """Return the chunk of an unusual object; None for `[DONE]` and for what is no object."""
        if data.strip() == _DONE:
            self._done = True
            return None
        try:
            value = decode_any(data)
        except DECODE_ERRORS:
            value = None
        if isinstance(value, dict):
            return chunk_from(value)
        self._unparsed += 1
        return None

    def _take_choices(self, choices: list[Choice], read: int) -> int:
        """Return the kind of the token event, or `_NO_KIND` where there is no text."""
        found = _NO_KIND
        for choice in choices:
            kind, text = choice_text(choice, completions=self._completions)
            index = choice.index
            if text:
                if self._done or index in self._finished:
                    self._after_end = True
                if found in (_NO_KIND, KIND_REASONING):
                    found = kind
                if self._keep_text:
                    self._text.setdefault(index, []).append(text)
            elif choice.delta is not None and choice.delta.role and not self._reads:
                self._role_read = read if self._role_read is None else self._role_read
            if choice.finish_reason:
                self._finished.setdefault(index, choice.finish_reason)
            if index:
                self._other_choices.add(index)
        if found != _NO_KIND:
            self._text_seen = True
        return found

    def _take_rest(self, chunk: Chunk, data: bytes) -> None:
        """Take what is not text. An object without choices may be an error of another shape."""
        if chunk.error or not (chunk.choices or chunk.usage):
            self._take_bare(data)
        self._take_values(chunk)

    def _take_values(self, chunk: Chunk) -> None:
        """Take usage and timings, after the choices of the same chunk were counted."""
        choice = chunk.choices[0].index if chunk.choices else None
        self._ledger.take_usage(chunk.usage, len(self._reads), choice)
        self._ledger.take_timings(chunk.timings)
        timings = plain_dict(chunk.timings or chunk.metrics)
        if timings:
            self._timings = timings

    def _take_bare(self, data: bytes) -> None:
        try:
            value = decode_any(data)
        except DECODE_ERRORS:
            return
        if isinstance(value, dict):
            self._error = self._error or bare_error(value)
            self._timings = durations(value) or self._timings

    def _take_error_event(self, data: bytes) -> None:
        """Take an event that says by its name that it is an error."""
        try:
            value = decode_any(data)
        except DECODE_ERRORS:
            value = data.decode("utf-8", "replace")
        known = bare_error(value) if isinstance(value, dict) else None
        self._error = self._error or known or error_text(value)

    def _settle(self, *, cut: bool) -> StreamOutcome:
        output_tok, source, shares = self._ledger.settle(len(self._reads))
        error: tuple[str | None, str | None] = (None, None)
        failed = next((r for r in self._finished.values() if r in _FAILED_REASONS), None)
        if self._error is not None:
            error = "in_stream_error", self._error
        elif failed is not None:
            error = "in_stream_error", f"finish_reason {failed}"
        elif cut:
            error = "truncated", None
        elif not self._text_seen and not output_tok:
            error = "empty_response", "the answer ended without a token"
        return self._outcome(output_tok, source, shares, error)

    def _outcome(
        self,
        output_tok: int | None,
        source: TokenSource | None,
        shares: list[float],
        error: tuple[str | None, str | None],
    ) -> StreamOutcome:
        ledger, kinds = self._ledger, self._kinds
        visible = next((i for i, kind in enumerate(kinds) if kind != KIND_REASONING), None)
        reason = self._finished[min(self._finished)] if self._finished else None
        texts = ["".join(self._text[index]) for index in sorted(self._text)]
        return StreamOutcome(
            rows=list(zip(self._reads, kinds, shares, strict=True)),
            events=len(kinds),
            first_event_tok=shares[0] if shares else 0.0,
            first_visible_index=visible,
            role_read=self._role_read,
            done_seen=self._done,
            finish_reason=None if reason is None else clean(reason[:MAX_NAME_CHARS]),
            prompt_tok=ledger.prompt_tok,
            cached_tok=ledger.cached_tok,
            output_tok=output_tok,
            reasoning_tok=ledger.reasoning_tok,
            token_source=source,
            error_kind=error[0],
            error_detail=error[1],
            unparsed=self._unparsed,
            notes=self._notes(output_tok),
            text=clean("\n".join(texts)) if self._keep_text else None,
            server_timings=self._timings,
        )

    def _notes(self, output_tok: int | None) -> tuple[str, ...]:
        asked = self._asked_output_tok * (1 + len(self._other_choices))
        notes = {
            "no_done": self._no_done,
            "tokens_after_end": self._after_end,
            "usage_inconsistent": self._ledger.inconsistent,
            "output_over_cap": 0 < asked < (output_tok or 0),
            "unparsed_events": self._unparsed > 0,
        }
        return tuple(name for name, holds in notes.items() if holds)


def read_body(
    body: bytes,
    endpoint: Endpoint,
    asked_output_tok: int,
    keep_text: bool,  # noqa: FBT001
) -> StreamOutcome:
    """Return what a whole JSON body came to: no token events, counts from usage or timings.

    `output_tok` is None where the server gave no count. An error object gives
    `in_stream_error` with its code and message, whatever the HTTP status was.
    """
    return StreamReader(endpoint, asked_output_tok, keep_text).take_body(body)

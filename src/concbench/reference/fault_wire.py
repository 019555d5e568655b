"""Faults in how it is said: SSE lines, HTTP framing, bytes on the wire, whole answers. Pure."""

from __future__ import annotations

import zlib
from dataclasses import replace
from http import HTTPStatus

import msgspec

from concbench.errors import UsageError
from concbench.reference.http import LAST_CHUNK, chunk, response_head
from concbench.reference.parts import After, Part, Scene, Transform, number

_BODY = ("opener", "token", "finish", "usage", "done", "event", "end", "body")
_EVENTS = ("opener", "token", "finish", "usage", "done", "event")


def _each_event(change: Transform) -> Transform:
    def transform(parts: list[Part]) -> list[Part]:
        out: list[Part] = []
        for part in parts:
            out += change([part]) if part.kind in _EVENTS and part.data else [part]
        return out

    return transform


def _rewrite(old: bytes, new: bytes) -> Transform:
    def change(parts: list[Part]) -> list[Part]:
        return [replace(parts[0], data=(parts[0].data or b"").replace(old, new))]

    return _each_event(change)


def crlf(_scene: Scene, _argument: str) -> Transform:
    """Lines end in CR LF."""
    return _rewrite(b"\n", b"\r\n")


def lone_cr(_scene: Scene, _argument: str) -> Transform:
    """Lines end in a lone CR."""
    return _rewrite(b"\n", b"\r")


def no_space(_scene: Scene, _argument: str) -> Transform:
    """`data:` without the space after it."""
    return _rewrite(b"data: ", b"data:")


def more_space(_scene: Scene, _argument: str) -> Transform:
    """Three blanks after `data:`."""
    return _rewrite(b"data: ", b"data:   ")


def named_events(_scene: Scene, _argument: str) -> Transform:
    """Each event has `event:` and `id:` lines before its data."""
    return _rewrite(b"data: ", b"event: message\nid: 1\ndata: ")


def bom(_scene: Scene, _argument: str) -> Transform:
    """The stream begins with a byte order mark."""
    return _once_before(b"\xef\xbb\xbf")


def pings(_scene: Scene, argument: str) -> Transform:
    """Comments before the first event, and one after each `argument` (1) events."""
    every = number(argument, 1, least=1)
    state = {"events": 0}

    def change(parts: list[Part]) -> list[Part]:
        state["events"] += 1
        before = [Part("event", b":\n\n:\n\n: keep-alive\n\n")] if state["events"] == 1 else []
        after = [Part("event", b": ping\n\n")] if state["events"] % every == 0 else []
        return [*before, *parts, *after]

    return _each_event(change)


def empty_pings(_scene: Scene, _argument: str) -> Transform:
    """Pings that look like data: an empty `data:` and a comment wrapped in one."""
    return _once_before(b"event: ping\ndata: \n\ndata: : PROCESSING\n\n")


def wrong_json(_scene: Scene, _argument: str) -> Transform:
    """The second event is broken JSON."""
    return _once_before(b'data: {"choices":[{"index":0,\n\n', after_events=1)


def _once_before(extra: bytes, *, after_events: int = 0) -> Transform:
    state = {"events": 0}

    def change(parts: list[Part]) -> list[Part]:
        state["events"] += 1
        return [Part("event", extra), *parts] if state["events"] == after_events + 1 else parts

    return _each_event(change)


def merge_events(_scene: Scene, _argument: str) -> Transform:
    """Everything that one emission says leaves as one HTTP chunk."""

    def transform(parts: list[Part]) -> list[Part]:
        events = [p for p in parts if p.kind in _EVENTS and p.data]
        if len(events) < 2:
            return parts
        joined = replace(events[0], data=b"".join(p.data or b"" for p in events))
        joined.tokens = sum(p.tokens for p in events)
        rest = [p for p in parts if p not in events]
        at = next((i + 1 for i, p in enumerate(rest) if p.kind == "head"), 0)
        return [*rest[:at], joined, *rest[at:]]

    return transform


def split(_scene: Scene, argument: str) -> Transform:
    """Every write leaves `argument` (1) bytes at a time."""
    size = number(argument, 1, least=1)

    def transform(parts: list[Part]) -> list[Part]:
        return [piece for part in parts for piece in _pieces(part, size, 0)]

    return transform


def slow_head(_scene: Scene, argument: str) -> Transform:
    """The head leaves byte by byte, `argument` (5) ms apart."""
    gap_ns = number(argument, 5) * 1_000_000

    def transform(parts: list[Part]) -> list[Part]:
        return [
            piece
            for part in parts
            for piece in (_pieces(part, 1, gap_ns) if part.kind == "head" else [part])
        ]

    return transform


def _pieces(part: Part, size: int, gap_ns: int) -> list[Part]:
    """Cut a part; its tokens and its ending go with the last piece."""
    data = part.data or b""
    if len(data) <= size:
        return [part]
    out = [
        Part("raw", data[i : i + size], wait_ns=gap_ns if i else part.wait_ns, framed=True)
        for i in range(0, len(data), size)
    ]
    out[-1].kind = part.kind
    out[-1].tokens, out[-1].total_tok, out[-1].after = part.tokens, part.total_tok, part.after
    return out


def delay(_scene: Scene, argument: str) -> Transform:
    """The answer begins `argument` (100) ms late."""
    wait_ns = number(argument, 100) * 1_000_000
    state = {"first": True}

    def transform(parts: list[Part]) -> list[Part]:
        if parts and state["first"]:
            state["first"] = False
            return [replace(parts[0], wait_ns=parts[0].wait_ns + wait_ns), *parts[1:]]
        return parts

    return transform


def _on_head(change: Transform) -> Transform:
    def transform(parts: list[Part]) -> list[Part]:
        out: list[Part] = []
        for part in parts:
            out += change([part]) if part.kind == "head" else [part]
        return out

    return transform


def _edit_head(old: str, new: str) -> Transform:
    def change(parts: list[Part]) -> list[Part]:
        lines = (parts[0].data or b"").decode("latin-1").split("\r\n")
        kept = [new if line.lower().startswith(old.lower()) else line for line in lines]
        text = "\r\n".join(line for i, line in enumerate(kept) if line or i >= len(kept) - 2)
        return [replace(parts[0], data=text.encode("latin-1"))]

    return _on_head(change)


def _add_to_head(lines: bytes) -> Transform:
    def change(parts: list[Part]) -> list[Part]:
        return [replace(parts[0], data=(parts[0].data or b"")[:-2] + lines + b"\r\n")]

    return _on_head(change)


def http10(scene: Scene, _argument: str) -> Transform:
    """HTTP/1.0 without any length: the body ends where the connection does."""
    scene.framing = "close"
    drop_length = _edit_head("content-length:", "")
    drop_chunked = _edit_head("transfer-encoding:", "")
    status = _edit_head("HTTP/1.1 ", "HTTP/1.0 200 OK")

    def transform(parts: list[Part]) -> list[Part]:
        parts = status(drop_chunked(drop_length(parts)))
        return [replace(p, after=p.after or "close") if p.kind == "body" else p for p in parts]

    return transform


def wrong_length(scene: Scene, argument: str) -> Transform:
    """A Content-Length of `argument` (10,000,000) that does not fit; the connection then closes."""
    scene.framing = "length"
    length = f"Content-Length: {number(argument, 10_000_000)}"
    chunked, plain = _edit_head("transfer-encoding:", length), _edit_head("content-length:", length)

    def transform(parts: list[Part]) -> list[Part]:
        parts = plain(chunked(parts))
        return [replace(p, after=p.after or "close") if p.kind == "body" else p for p in parts]

    return transform


def huge_headers(_scene: Scene, argument: str) -> Transform:
    """`argument` (60) more headers of a kilobyte each."""
    lines = (f"X-Pad-{i}: {'p' * 1000}\r\n" for i in range(number(argument, 60)))
    return _add_to_head("".join(lines).encode())


def interim(_scene: Scene, argument: str) -> Transform:
    """A 1xx answer (103) comes first."""
    status = number(argument, 103, least=100)
    early = response_head(status, {"Link": "</style.css>; rel=preload"} if status == 103 else {})
    return _on_head(lambda parts: [Part("raw", early, framed=True), *parts])


def gzip(scene: Scene, argument: str) -> Transform:
    """The body is compressed, asked for or not; `hold` lets the compressor keep bytes back."""
    packer = zlib.compressobj(wbits=31)
    hold = argument == "hold"
    head = _add_to_head(b"Content-Encoding: gzip\r\n")

    def pack(part: Part) -> Part:
        data = packer.compress(part.data or b"")
        last = part.kind in ("end", "body")
        if last:
            data += packer.flush()
        elif not hold:
            data += packer.flush(zlib.Z_SYNC_FLUSH)
        return replace(part, data=data)

    def transform(parts: list[Part]) -> list[Part]:
        parts = [pack(p) if p.kind in _BODY else p for p in head(parts)]
        if scene.streamed:
            return [_gzip_end(p) if p.kind == "end" else p for p in parts]
        length = sum(len(p.data or b"") for p in parts if p.kind == "body")
        return _edit_head("content-length:", f"Content-Length: {length}")(parts)

    def _gzip_end(part: Part) -> Part:
        if scene.framing != "chunked":
            return replace(part, framed=True, after=part.after or "close")
        return replace(part, data=chunk(part.data or b"") + LAST_CHUNK, framed=True)

    return transform


def status(_scene: Scene, argument: str) -> list[Part]:
    """An error page of status `argument` (503) instead of an answer; 429 and 503 say when again."""
    code = number(argument, 503, least=200)
    error = {"message": _phrase(code), "type": "reference_fault", "param": None, "code": code}
    headers = {"Content-Type": "application/json"}
    if code in (429, 503):
        headers["Retry-After"] = "1"
    if 300 <= code < 400:
        headers["Location"] = "/v1/elsewhere"
    return _answer(code, headers, msgspec.json.encode({"error": error}))


def html(_scene: Scene, argument: str) -> list[Part]:
    """A proxy's page of status `argument` (502) instead of an answer."""
    code = number(argument, 502, least=200)
    page = f"<html><body><h1>{code} {_phrase(code)}</h1></body></html>".encode()
    return _answer(code, {"Content-Type": "text/html"}, page)


def refuse(_scene: Scene, argument: str) -> list[Part]:
    """The connection ends without a byte: `close` (the default) or `reset`."""
    if argument not in ("", "close", "reset"):
        raise UsageError(f"the fault 'refuse' takes close or reset, not {argument!r}")
    after: After = "reset" if argument == "reset" else "close"
    return [Part("raw", b"", after=after, framed=True)]


def garbage(_scene: Scene, _argument: str) -> list[Part]:
    """Bytes that are no HTTP at all."""
    return [Part("raw", b"\x00\x01SSH-2.0-nothing\r\n", after="close", framed=True)]


def no_bytes(_scene: Scene, _argument: str) -> list[Part]:
    """No answer at all; the connection stays open."""
    return []


def _answer(code: int, headers: dict[str, str], body: bytes) -> list[Part]:
    head = response_head(code, headers, length=len(body))
    return [Part("head", head, framed=True), Part("body", body, framed=True)]


def _phrase(code: int) -> str:
    try:
        return HTTPStatus(code).phrase
    except ValueError:
        return "Status"

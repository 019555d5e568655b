"""HTTP/1.1 response framing: where a response ends, and what its body is.

The same state machine runs twice. While the load is on, `feed` only finds the end (nothing is
copied); after the round, a second instance is fed the kept bytes with `body=` to collect the
body. Any split of the bytes gives the same answer.
"""

from __future__ import annotations

import zlib

MAX_HEAD_BYTES = 1 << 20
MAX_SIZE_LINE_BYTES = 1 << 12

_HEX = b"0123456789abcdefABCDEF"

_HEAD, _CHUNKED, _LENGTH, _UNTIL_CLOSE, _DONE, _BROKEN = range(6)


class ResponseFramer:
    """Follows one response to its end. Never raises: a broken response sets `error`.

    Attributes after the head: `status`, `headers` (names lower case, the last value counts),
    `keep_alive`. `complete` is True once the response has ended as HTTP says it must; `excess`
    counts bytes that came after that.
    """

    __slots__ = (
        "_head",
        "_line",
        "_need",
        "_opening",
        "_state",
        "_trailers",
        "_whole",
        "complete",
        "error",
        "excess",
        "headers",
        "interim",
        "keep_alive",
        "status",
    )

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.keep_alive = False
        self.complete = False
        self.error: str | None = None
        self.excess = 0
        self.interim = 0
        self._state = _HEAD
        self._head = bytearray()
        self._line = bytearray()
        self._need = 0
        self._trailers = False
        # The last read that was one whole chunk: its size line, and its length in all.
        self._opening = b""
        self._whole = 0

    def feed(self, data: bytes | bytearray, size: int, body: bytearray | None = None) -> bool:
        """Take the first `size` bytes of `data`; return whether the response has ended.

        Body bytes are appended to `body` where one is given.
        """
        state = self._state
        if state == _CHUNKED:
            if body is None and not self._need and not self._line and not self._trailers:
                # A server that streams writes one whole chunk at a time, and a read mostly holds
                # just that, often of the same size as the last: see whether it does before the
                # general case.
                if (
                    size == self._whole
                    and data.startswith(self._opening)
                    and data.startswith(b"\r\n", size - 2)
                ):
                    return False
                end = data.find(b"\r\n", 0, 18)
                if (
                    end > 0
                    and not data[:end].strip(_HEX)
                    and int(data[:end], 16) + end + 4 == size > end + 4
                    and data.startswith(b"\r\n", size - 2)
                ):
                    self._whole, self._opening = size, bytes(data[: end + 2])
                    return False
            self._feed_chunked(data, 0, size, body)
        elif state == _HEAD:
            self._feed_head(data, size, body)
        elif state == _LENGTH:
            self._feed_length(data, 0, size, body)
        elif state == _UNTIL_CLOSE:
            if body is not None:
                body += data[:size]
        else:
            self.excess += size
        return self._state >= _DONE

    def eof(self) -> bool:
        """Say that the connection has closed; return whether the response is complete."""
        if self._state == _UNTIL_CLOSE:
            self._finish()
        elif self._state == _CHUNKED and self._trailers:
            # Some servers close right after the last chunk's line, without the final CRLF.
            self._finish()
        elif self._state < _DONE:
            self._state = _BROKEN
            self.error = "truncated" if self.status is not None else "no_response"
        return self.complete

    def _finish(self) -> None:
        self._state = _DONE
        self.complete = True

    def _break(self, why: str) -> None:
        self._state = _BROKEN
        self.error = why
        self.keep_alive = False

    def _feed_head(self, data: bytes | bytearray, size: int, body: bytearray | None) -> None:
        head = self._head
        seen = max(0, len(head) - 3)
        head += data[:size]
        while True:
            end, skip = _head_end(head, seen)
            if end < 0:
                if len(head) > MAX_HEAD_BYTES:
                    self._break("head_too_long")
                return
            rest = bytes(head[end + skip :])
            if not self._parse_head(bytes(head[:end])):
                return
            del head[:]
            if self._state != _HEAD:
                break
            head += rest
            seen = 0
        if self._state >= _DONE:
            self.excess += len(rest)
        elif rest:
            self.feed(rest, len(rest), body)

    def _parse_head(self, head: bytes) -> bool:
        """Read status line and headers and choose how the body ends; False when broken."""
        lines = head.replace(b"\r\n", b"\n").split(b"\n")
        parts = lines[0].split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            self._break("not_http")
            return False
        status = int(parts[1])
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if colon:
                headers[name.strip().lower().decode("latin-1")] = value.strip().decode("latin-1")
        if 100 <= status < 200 and status != 101:
            self.interim += 1
            return True
        self.status, self.headers = status, headers
        connection = headers.get("connection", "").lower()
        self.keep_alive = "close" not in connection and (
            parts[0] != b"HTTP/1.0" or "keep-alive" in connection
        )
        return self._choose_body(status, headers)

    def _choose_body(self, status: int, headers: dict[str, str]) -> bool:
        # RFC 9112, section 6.3: chunked overrides a length; neither means "until close".
        if status in (204, 304):
            self._finish()
        elif "chunked" in headers.get("transfer-encoding", "").lower():
            self._state = _CHUNKED
        elif "content-length" in headers:
            length = headers["content-length"].split(",")[0].strip()
            if not length.isascii() or not length.isdigit() or len(length) > 18:
                self._break("bad_length")
                return False
            self._need = int(length)
            self._state = _LENGTH
            if not self._need:
                self._finish()
        else:
            self._state = _UNTIL_CLOSE
            self.keep_alive = False
        return True

    def _feed_length(
        self, data: bytes | bytearray, pos: int, size: int, body: bytearray | None
    ) -> None:
        take = min(self._need, size - pos)
        if body is not None:
            body += data[pos : pos + take]
        self._need -= take
        if not self._need:
            self._finish()
            self.excess += size - pos - take

    def _feed_chunked(
        self, data: bytes | bytearray, pos: int, size: int, body: bytearray | None
    ) -> None:
        while pos < size and self._state == _CHUNKED:
            if self._need:
                pos = self._chunk_data(data, pos, size, body)
                continue
            end = data.find(b"\n", pos, size)
            if end < 0:
                self._line += data[pos:size]
                if len(self._line) > MAX_SIZE_LINE_BYTES:
                    self._break("bad_chunk")
                return
            line = bytes(self._line) + bytes(data[pos:end])
            self._line.clear()
            pos = end + 1
            self._chunk_line(line)
        if self._state == _DONE:
            self.excess += size - pos

    def _chunk_line(self, line: bytes) -> None:
        """Take a size line, or a trailer line after the last chunk."""
        if self._trailers:
            if line in (b"", b"\r"):
                self._finish()
            return
        length = _chunk_size(line)
        if length < 0:
            self._break("bad_chunk")
        elif length:
            self._need = length + 2  # the data and the CRLF behind it
        else:
            self._trailers = True

    def _chunk_data(
        self, data: bytes | bytearray, pos: int, size: int, body: bytearray | None
    ) -> int:
        """Take chunk data and the CRLF behind it; return the position after what was taken."""
        need = self._need
        take = min(need, size - pos)
        if body is not None and need > 2:
            body += data[pos : pos + min(take, need - 2)]
        if not self._chunk_end_is_sound(data, pos, need, take):
            self._break("bad_chunk")
        self._need = need - take
        return pos + take

    @staticmethod
    def _chunk_end_is_sound(data: bytes | bytearray, pos: int, need: int, take: int) -> bool:
        """Whether the part of the closing CRLF that lies in this take is what it must be."""
        if take <= need - 2:
            return True
        tail = data[pos + max(0, need - 2) : pos + take]
        return tail == b"\r\n"[2 - min(2, need) :][: len(tail)]


def _head_end(head: bytearray, start: int) -> tuple[int, int]:
    """Return where the blank line begins and how long it is, or (-1, 0)."""
    strict = head.find(b"\r\n\r\n", start)
    bare = head.find(b"\n\n", start)
    if bare >= 0 and (strict < 0 or bare < strict):
        return bare, 2
    return (strict, 4) if strict >= 0 else (-1, 0)


def _chunk_size(line: bytes) -> int:
    """Return the size that a chunk's first line gives, extensions ignored; -1 when malformed."""
    text = line.split(b";", 1)[0].strip()
    if not text or len(text) > 16 or text.strip(_HEX):
        return -1
    return int(text, 16)


def decompress(body: bytes, encoding: str, limit_bytes: int = 1 << 30) -> bytes | None:
    """Undo a Content-Encoding that was not asked for; None when it cannot be undone.

    A body that ends early gives what could be decoded. At most `limit_bytes` are produced.
    """
    kind = encoding.strip().lower()
    if kind in ("", "identity"):
        return body
    if kind not in ("gzip", "x-gzip", "deflate"):
        return None
    windows = (31,) if "gzip" in kind else (15, -15)
    for window in windows:
        try:
            return zlib.decompressobj(window).decompress(body, limit_bytes)
        except zlib.error:
            continue
    return None


def render_request(
    method: str, path: str, host: str, headers: dict[str, str], body: bytes = b""
) -> bytes:
    """Return the bytes of an HTTP/1.1 request. Raises ValueError for CR or LF in a header."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or method in ("POST", "PUT"):
        lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header must not contain a line break")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body

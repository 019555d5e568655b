"""The little of HTTP/1.1 that the server needs: requests in, response heads out. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

MAX_HEAD_BYTES = 64 * 1024


class BadRequest(Exception):
    """The bytes are no request that can be answered; the connection is to be closed."""


@dataclass(slots=True)
class Request:
    """One request. Header names are lower case; `query` is undecoded."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool
    size_bytes: int


@dataclass(slots=True)
class Reply:
    """A whole answer. `headers` come on top of those the persona always sends."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


def json_reply(value: object, status: int = 200) -> Reply:
    """Return a reply whose body is that value as JSON."""
    return Reply(status, msgspec.json.encode(value))


def parse_request(data: bytearray) -> Request | int:
    """Return the first request in `data`, or how many bytes to wait for (0: not known yet).

    Raises BadRequest for bytes that are no HTTP/1.x request.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > MAX_HEAD_BYTES:
            raise BadRequest("the head is too long")
        return 0
    lines = data[:end].decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest("no HTTP/1.x request line")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest("a header line has no colon")
        headers[name.lower()] = value.strip()
    start = end + 4
    found = _body(data, start, headers)
    if isinstance(found, int):
        return found
    body, size = found
    connection = headers.get("connection", "").lower()
    keep = connection != "close" if parts[2] == "HTTP/1.1" else connection == "keep-alive"
    path, _, query = parts[1].partition("?")
    return Request(parts[0], path, query, headers, body, keep, size)


def _body(data: bytearray, start: int, headers: dict[str, str]) -> tuple[bytes, int] | int:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return _chunked_body(data, start)
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise BadRequest("Content-Length is no number")
    size = start + int(text)
    return (bytes(data[start:size]), size) if len(data) >= size else size


def _chunked_body(data: bytearray, position: int) -> tuple[bytes, int] | int:
    body = bytearray()
    while True:
        line_end = data.find(b"\r\n", position)
        if line_end < 0:
            return 0
        try:
            size = int(bytes(data[position:line_end]).split(b";")[0], 16)
        except ValueError:
            raise BadRequest("a chunk size is no number") from None
        position = line_end + 2
        if len(data) < position + size + 2:
            return position + size + 2
        body += data[position : position + size]
        position += size + 2
        if size == 0:
            return bytes(body), position


def query_value(query: str, name: str) -> str | None:
    """Return the first value of a query parameter, undecoded, or None."""
    for pair in query.split("&"):
        key, _, value = pair.partition("=")
        if key == name:
            return value
    return None


def response_head(
    status: int, headers: dict[str, str], *, length: int | None = None, chunked: bool = False
) -> bytes:
    """Return the status line and headers, with the blank line after them."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Status"
    lines = [f"HTTP/1.1 {status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    elif length is not None:
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"

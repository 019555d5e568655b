from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.reference.http import (
    BadRequest,
    Request,
    chunk,
    parse_request,
    query_value,
    response_head,
)

POST = b"POST /v1/x?a=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nX-Two:  b \r\n\r\nhello"
CHUNKED = (
    b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;q=1\r\nde\r\n0\r\n\r\n"
)


def test_a_request_is_taken_apart():
    request = parse_request(bytearray(POST + b"GET"))
    assert isinstance(request, Request)
    assert (request.method, request.path, request.query) == ("POST", "/v1/x", "a=1")
    assert request.headers == {"host": "h", "content-length": "5", "x-two": "b"}
    assert (request.body, request.keep_alive, request.size_bytes) == (b"hello", True, len(POST))


@pytest.mark.parametrize("whole", [POST, CHUNKED])
def test_no_part_of_a_request_is_taken_for_a_whole(whole: bytes):
    for size in range(len(whole)):
        needed = parse_request(bytearray(whole[:size]))
        assert isinstance(needed, int)
        assert needed == 0 or size < needed <= len(whole)
    assert isinstance(parse_request(bytearray(whole)), Request)


def test_a_chunked_request_body_is_joined():
    request = parse_request(bytearray(CHUNKED))
    assert isinstance(request, Request)
    assert request.body == b"abcde"


@pytest.mark.parametrize(
    ("version", "connection", "kept"),
    [("1.1", "", True), ("1.1", "close", False), ("1.0", "", False), ("1.0", "Keep-Alive", True)],
)
def test_keep_alive_follows_the_version(version: str, connection: str, kept: bool):
    line = f"Connection: {connection}\r\n" if connection else ""
    request = parse_request(bytearray(f"GET / HTTP/{version}\r\n{line}\r\n".encode()))
    assert isinstance(request, Request)
    assert request.keep_alive is kept


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01 tls?\r\n\r\n",
        b"GET / SPDY/3\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -4\r\n\r\n",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"a" * 70_000,
    ],
)
def test_what_is_no_request_is_refused(data: bytes):
    with pytest.raises(BadRequest):
        parse_request(bytearray(data))


@given(st.binary(max_size=300))
def test_any_bytes_give_a_request_a_number_or_a_refusal(data: bytes):
    try:
        found = parse_request(bytearray(data))
    except BadRequest:
        return
    assert isinstance(found, (Request, int))


def test_response_pieces():
    assert response_head(200, {"A": "b"}, length=3) == (
        b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 3\r\n\r\n"
    )
    assert response_head(799, {}, chunked=True).startswith(b"HTTP/1.1 799 Status\r\nTransfer")
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
    assert query_value("a=1&b=2", "b") == "2"
    assert query_value("", "b") is None

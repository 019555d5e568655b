"""Framing: the end and the body are the same for any split of the bytes."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.wire.http import ResponseFramer, decompress, render_request

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def chunked(parts: list[bytes], trailers: bytes = b"") -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n" + trailers + b"\r\n"


def sized(body: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def split_at(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(edges)]


def follow(pieces: list[bytes], *, collect: bool = True) -> tuple[ResponseFramer, bytes]:
    framer, body = ResponseFramer(), bytearray()
    for piece in pieces:
        framer.feed(piece, len(piece), body if collect else None)
    return framer, bytes(body)


@given(
    parts=st.lists(st.binary(min_size=1, max_size=60), max_size=8),
    cuts=st.lists(st.integers(0, 10_000), max_size=20),
    trailers=st.sampled_from([b"", b"X-Sum: 1\r\n", b"A: b\r\nC: d\r\n"]),
)
def test_any_split_of_a_chunked_response_is_the_same(
    parts: list[bytes], cuts: list[int], trailers: bytes
) -> None:
    data = chunked(parts, trailers)
    for pieces in (split_at(data, cuts), [data], [data[i : i + 1] for i in range(len(data))]):
        framer, body = follow(pieces)
        assert framer.complete
        assert framer.error is None
        assert framer.excess == 0
        assert framer.status == 200
        assert body == b"".join(parts)
        blind, _ = follow(pieces, collect=False)
        assert blind.complete


@given(
    parts=st.lists(st.binary(min_size=1, max_size=60), max_size=8),
    cuts=st.lists(st.integers(0, 10_000), max_size=20),
)
def test_it_never_ends_early(parts: list[bytes], cuts: list[int]) -> None:
    data = chunked(parts)[:-1]
    framer, _ = follow(split_at(data, cuts))
    assert not framer.complete


@given(body=st.binary(max_size=200), cuts=st.lists(st.integers(0, 1000), max_size=10))
def test_content_length(body: bytes, cuts: list[int]) -> None:
    framer, got = follow(split_at(sized(body), cuts))
    assert framer.complete
    assert framer.keep_alive
    assert got == body


@given(body=st.binary(max_size=200), cuts=st.lists(st.integers(0, 1000), max_size=10))
def test_close_delimited(body: bytes, cuts: list[int]) -> None:
    framer, got = follow(split_at(HEAD + b"\r\n" + body, cuts))
    assert not framer.complete
    assert framer.eof()
    assert got == body
    assert not framer.keep_alive


@given(data=st.binary(max_size=400), cuts=st.lists(st.integers(0, 1000), max_size=10))
def test_arbitrary_bytes_never_raise(data: bytes, cuts: list[int]) -> None:
    for prefix in (b"", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", HEAD, b"HTTP/1.1 "):
        framer, _ = follow(split_at(prefix + data, cuts))
        framer.eof()
        assert framer.complete or framer.error


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "bad_chunk"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", "bad_chunk"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n", "bad_chunk"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 5000, "bad_chunk"),
        (HEAD + b"Content-Length: many\r\n\r\n", "bad_length"),
        (HEAD + b"Content-Length: -1\r\n\r\n", "bad_length"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not_http"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * (1 << 20), "head_too_long"),
    ],
)
def test_what_is_broken_is_named(bad: bytes, error: str) -> None:
    framer, _ = follow([bad])
    assert framer.error == error
    assert not framer.complete


def test_interim_responses_are_passed_over() -> None:
    data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + sized(
        b"ok"
    )
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        framer, body = follow(pieces)
        assert (framer.status, framer.interim, body) == (200, 2, b"ok")


def test_chunk_extensions_and_bare_line_feeds() -> None:
    head = b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n"
    framer, body = follow([head + b"3;name=value\nabc\r\n0\n\n"])
    assert framer.complete
    assert body == b"abc"


def test_excess_is_counted() -> None:
    framer, body = follow([sized(b"ok") + b"more", b"!"])
    assert (body, framer.excess) == (b"ok", 5)


def test_a_status_without_a_body_ends_with_its_head() -> None:
    assert follow([b"HTTP/1.1 204 No Content\r\n\r\n"])[0].complete


def test_http_1_0_keeps_alive_only_where_it_says_so() -> None:
    assert not follow([b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"])[0].keep_alive
    said = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"
    assert follow([said])[0].keep_alive


def test_no_answer_and_half_an_answer_are_told_apart() -> None:
    nothing = ResponseFramer()
    nothing.eof()
    half, _ = follow([sized(b"hello")[:-2]])
    half.eof()
    assert (nothing.error, half.error) == ("no_response", "truncated")


def test_the_last_chunk_without_its_final_line_counts_as_the_end() -> None:
    framer, body = follow([HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"])
    assert not framer.complete
    assert framer.eof()
    assert body == b"ok"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity", ""])
def test_decompress(encoding: str) -> None:
    packed = {"gzip": gzip.compress(b"tokens"), "deflate": zlib.compress(b"tokens")}
    assert decompress(packed.get(encoding, b"tokens"), encoding) == b"tokens"


def test_decompress_gives_up_politely() -> None:
    assert decompress(b"x", "br") is None
    assert decompress(b"not gzip", "gzip") is None
    assert decompress(gzip.compress(b"a" * 1000), "gzip", limit_bytes=10) == b"a" * 10


def test_render_request_refuses_header_injection() -> None:
    with pytest.raises(ValueError, match="line break"):
        render_request("GET", "/", "host", {"X": "a\r\nB: c"})
    assert render_request("POST", "/p", "h", {}, b"{}").endswith(b"Content-Length: 2\r\n\r\n{}")

"""From bytes and stamps to records: what was sent is what is recorded."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence

import pytest

from concbench.domain import Cell, Round, Workload
from concbench.load.generator import RawRound
from concbench.load.log import NO_STAMP, ReadLog
from concbench.load.stream import RawRequest
from concbench.measure.digest import digest

MS = 1_000_000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
OFFSET = 1_700_000_000_000_000_000


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def token(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()


OPENER = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def usage(prompt: int, output: int) -> bytes:
    return (
        b'data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,'
        b'"total_tokens":%d}}\n\n' % (prompt, output, prompt + output)
    )


def parsed(
    reads: Sequence[tuple[int, int | None, bytes]],
    ending: str = "complete",
    *,
    stream: bool = True,
    keep_text: bool = False,
) -> Round:
    """Digest one request whose reads are (user ms, kernel ms or None, bytes)."""
    log = ReadLog()
    for user_ms, kernel_ms, data in reads:
        log.request.append(0)
        log.user_ns.append(user_ms * MS)
        log.size.append(len(data))
        log.payload += data
        if kernel_ms is None:
            log.kernel += NO_STAMP
        else:
            real_ns = OFFSET + kernel_ms * MS
            log.kernel += struct.pack("=qq", *divmod(real_ns, 1_000_000_000))
    request = RawRequest(
        number=0, worker=0, prompt=0, stream=stream, asked_output_tok=16, due_ns=0, sent_ns=MS
    )
    request.end_ns, request.ending = (reads[-1][0] if reads else 9) * MS, ending
    raw = RawRound(
        stamp="kernel",
        began_utc="2026-01-01T00:00:00Z",
        log=log,
        requests=[request],
        end_ns=100 * MS,
        offsets=[(0, OFFSET), (10_000 * MS, OFFSET)],
    )
    workload = Workload(prompt_tokens=5, output_tokens=16, seed=0, arrival="burst", stream=stream)
    return digest(
        raw,
        round_id="r",
        cell=Cell(cell="c", lane="l", concurrency=1, context_tok=5),
        index=0,
        phase="measured",
        workload=workload,
        prompts=[("abc", 5)],
        keep_text=keep_text,
    )


def test_a_token_has_the_kernels_stamp_of_the_read_that_completed_it() -> None:
    half = chunk(token("b"))
    found = parsed(
        [
            (11, 10, HEAD + chunk(OPENER)),
            (21, 20, chunk(token("a"))),
            (31, 30, half[:30]),
            (42, 40, half[30:]),
            (51, 50, chunk(FINISH) + chunk(usage(5, 2)) + chunk(DONE) + b"0\r\n\r\n"),
        ],
        keep_text=True,
    )
    record = found.requests[0]
    assert record.outcome == "ok"
    assert record.first_byte_ns == 10 * MS
    assert record.first_token_ns == 20 * MS
    assert record.last_token_ns == 40 * MS
    assert record.end_ns == 50 * MS
    assert list(found.events.kernel_ns) == [20 * MS, 40 * MS]
    assert list(found.events.user_ns) == [21 * MS, 42 * MS]
    assert list(found.events.read) == [1, 3]
    assert (record.prompt_tok, record.output_tok, record.token_source) == (5, 2, "usage")
    assert (record.prompt_sha256, record.asked_prompt_tok) == ("abc", 5)
    assert record.text == "ab"
    assert found.instrument.stamped_reads == 5
    assert found.instrument.read_lateness_ns == [MS, MS, MS, 2 * MS, MS]


def test_without_kernel_stamps_ours_count_and_it_is_said() -> None:
    end = chunk(FINISH) + chunk(DONE) + b"0\r\n\r\n"
    found = parsed([(11, None, HEAD + chunk(token("a"))), (12, None, end)])
    assert found.requests[0].first_token_ns == 11 * MS
    assert list(found.events.kernel_ns) == [0]
    assert found.instrument.stamp == "user"


def test_events_in_one_read_share_its_stamp() -> None:
    body = chunk(token("a") + token("b")) + chunk(FINISH + DONE) + b"0\r\n\r\n"
    found = parsed([(11, 10, HEAD + body)])
    assert list(found.events.kernel_ns) == [10 * MS, 10 * MS]
    assert found.requests[0].events == 2


@pytest.mark.parametrize(
    ("reads", "ending", "error"),
    [
        ([(11, 10, HEAD + chunk(token("a")))], "truncated", "truncated"),
        ([(11, 10, HEAD)], "reset", "reset"),
        ([], "connect_refused", "connect_refused"),
        ([(11, 10, HEAD + chunk(token("a")))], "timeout", "timeout"),
        ([(11, 10, HEAD + b"zz")], "bad_chunk", "bad_chunk"),
        (
            [(11, 10, b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy")],
            "complete",
            "http_503",
        ),
        (
            [
                (
                    11,
                    10,
                    HEAD
                    + chunk(token("a"))
                    + chunk(b'data: {"error":{"message":"boom","code":500}}\n\n' + DONE)
                    + b"0\r\n\r\n",
                )
            ],
            "complete",
            "in_stream_error",
        ),
        ([(11, 10, HEAD + chunk(DONE) + b"0\r\n\r\n")], "complete", "empty_response"),
    ],
)
def test_what_went_wrong_is_named(
    reads: list[tuple[int, int, bytes]], ending: str, error: str
) -> None:
    record = parsed(reads, ending).requests[0]
    assert (record.outcome, record.error) == ("failed", error)
    assert error == "reset" or record.error_detail or not reads


def test_a_cut_body_is_truncated_not_unreadable() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n"
    record = parsed([(11, 10, head + b'{"choices":[{"mess')], "truncated", stream=False).requests[0]
    assert record.error == "truncated"


def test_stopped_is_incomplete_and_keeps_its_tokens() -> None:
    record = parsed([(11, 10, HEAD + chunk(token("a")))], "stopped").requests[0]
    assert (record.outcome, record.error, record.events) == ("incomplete", None, 1)
    assert record.output_tok == 1


def test_a_redirect_says_where_to_and_is_not_followed() -> None:
    answer = b"HTTP/1.1 307 T\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n"
    record = parsed([(11, 10, answer)]).requests[0]
    assert record.error == "http_307"
    assert record.error_detail == "to http://elsewhere/"


def test_a_compressed_stream_is_read_and_flagged() -> None:
    packed = gzip.compress(token("a") + token("b") + FINISH + DONE)
    head = HEAD.replace(b"Transfer", b"Content-Encoding: gzip\r\nTransfer")
    record = parsed([(11, 10, head + chunk(packed) + b"0\r\n\r\n")]).requests[0]
    assert (record.outcome, record.events) == ("ok", 2)
    assert "compressed_response" in record.notes


def test_json_where_a_stream_was_asked_for_has_counts_and_no_token_times() -> None:
    body = (
        b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}'
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    record = parsed([(11, 10, head % len(body) + body)]).requests[0]
    assert (record.outcome, record.output_tok, record.first_token_ns) == ("ok", 3, None)
    assert "not_streamed" in record.notes

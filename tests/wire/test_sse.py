"""Server-sent events: the same events for any split of the bytes."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.wire.sse import SseEvent, SseParser

A = SseEvent("message", b'{"a":1}')
B = SseEvent("message", b'{"b":2}')


def parse(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


def counts(*pieces: bytes) -> tuple[list[SseEvent], int, int]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    events += parser.close()
    return events, parser.comments, parser.unusable


def by_bytes(stream: bytes) -> list[bytes]:
    return [stream[i : i + 1] for i in range(len(stream))]


def plainly(stream: bytes) -> list[SseEvent]:
    """The format in its shortest form, over the whole stream at once."""
    events, data, name = [], [], ""
    stream = stream.removeprefix(b"\xef\xbb\xbf")
    lines = re.split(rb"\r\n|\r|\n", stream)
    last = lines.pop()
    if last.rstrip().endswith((b"}", b"]")):
        lines.append(last)

    def end() -> None:
        nonlocal data, name
        joined = b"\n".join(data)
        if joined.strip(b" \t\n\r\x0b\x0c"):
            events.append(SseEvent(name or "message", joined))
        data, name = [], ""

    for line in lines:
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if not line:
            end()
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"error":
            end()
            name, data = "error", [value]
    end()
    return events


LINES = st.sampled_from(
    [
        b'data: {"a":1}',
        b'data:{"b":2}',
        b"data:",
        b"data: ",
        b"data",
        b"data: [DONE]",
        b"data: \xff\xfe}",
        b": ping",
        b":",
        b"event: ping",
        b"event:error",
        b'error: {"code":500}',
        b"id: 7",
        b"retry: 100",
        b"dataset: x",
        b'{"bare":1}',
        b"",
        b"",
        b"",
    ]
)
ENDS = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])
STREAMS = st.builds(
    lambda bom, lines, tail: bom + b"".join(a + b for a, b in lines) + tail,
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(st.tuples(LINES, ENDS), max_size=14),
    st.one_of(LINES, st.just(b"")),
)


@given(
    stream=st.one_of(STREAMS, st.binary(max_size=80)),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_any_split_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    edges = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    expected = counts(stream)
    assert expected[0] == plainly(stream)
    assert counts(*pieces) == expected
    assert counts(*by_bytes(stream)) == expected


@pytest.mark.parametrize("space", [b"", b" ", b"   "])
def test_space_after_the_colon_does_not_matter(space: bytes) -> None:
    """S03: `data:` without the space, and with several (JSON allows the rest)."""
    (event,) = parse(b"data:" + space + b'{"a":1}\n\n')
    assert event.data.strip() == A.data


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends(end: bytes) -> None:
    """S04: LF, CRLF, lone CR, whole and byte by byte."""
    stream = b"".join(b"data: " + event.data + end + end for event in (A, B))
    assert parse(stream) == parse(*by_bytes(stream)) == [A, B]


def test_crlf_cut_between_reads() -> None:
    """S04: `…}\\r`, then `\\n\\r\\n`."""
    assert parse(b'data: {"a":1}\r', b"\n\r\n", b'data: {"b":2}\r\n\r', b"\n") == [A, B]


def test_lone_cr_ends_the_event_at_once() -> None:
    """S04: nothing waits for a byte that may not come."""
    assert SseParser().feed(b'data: {"a":1}\r\r') == [A]


def test_two_events_in_one_read() -> None:
    """S02: two events in one network read stay two."""
    parser = SseParser()
    parser.feed(b": hello\n\n")
    assert parser.feed(b'data: {"a":1}\n\ndata: {"b":2}\n\n') == [A, B]


def test_comment_pings_are_counted_and_give_no_event() -> None:
    """S06: `:` three times and `: keep-alive` before the data."""
    stream = b":\n\n" * 3 + b": keep-alive\n\n" + b'data: {"a":1}\n\n'
    assert counts(stream) == ([A], 4, 0)


def test_empty_data_is_skipped_and_its_name_forgotten() -> None:
    """S07: `event: ping` with blank data."""
    assert parse(b'event: ping\ndata: \n\ndata: {"a":1}\n\n') == [A]


def test_odd_data_is_handed_on() -> None:
    """S07: `data: : PROCESSING` is data, for the reader of tokens to judge."""
    assert parse(b"data: : PROCESSING\n\n") == [SseEvent("message", b": PROCESSING")]


def test_several_data_lines_are_joined() -> None:
    assert parse(b"data: {\ndata: }\n\n") == [SseEvent("message", b"{\n}")]


def test_byte_order_mark_at_the_start_only() -> None:
    mark = b"\xef\xbb\xbf"
    stream = mark + b'data: {"a":1}\n\n' + mark + b'data: {"b":2}\n\n'
    assert counts(stream) == counts(*by_bytes(stream)) == ([A], 0, 1)


def test_named_events_and_other_fields() -> None:
    stream = b'id: 1\nretry: 5\nevent: error\ndata: {"a":1}\n\ndata: {"b":2}\n\n'
    assert counts(stream) == ([SseEvent("error", A.data), B], 0, 0)


def test_error_as_a_field_name() -> None:
    """S09: older llama.cpp wrote `error: {…}` in place of `data:`."""
    stream = b'data: {"a":1}\n\nerror: {"code":500}\n\ndata: [DONE]\n\n'
    error = SseEvent("error", b'{"code":500}')
    assert parse(stream) == [A, error, SseEvent("message", b"[DONE]")]
    assert parse(b'data: {"a":1}\nerror: {"code":500}\n\n') == [A, error]


def test_lines_that_are_no_fields_are_counted() -> None:
    assert counts(b'<html>\n{"error":"x"}\n\ndata: {"a":1}\n\n') == ([A], 0, 2)


def test_invalid_utf8_is_kept() -> None:
    assert parse(b"data: \xff\xed\xa0\x80\n\n") == [SseEvent("message", b"\xff\xed\xa0\x80")]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_last_event_without_its_blank_line_counts(end: bytes) -> None:
    """S08: a stream that ends right after its last line."""
    stream = b'data: {"a":1}\n\ndata: [DONE]' + end
    assert parse(stream) == [A, SseEvent("message", b"[DONE]")]


def test_a_line_cut_in_the_middle_is_dropped() -> None:
    """S19: half an object is not an event."""
    parser = SseParser()
    assert parser.feed(b'data: {"a":1}\n\ndata: {"b":') == [A]
    assert parser.close() == []
    assert parser.close() == []


@pytest.mark.parametrize("step", [1, 1400, 1 << 21])
def test_line_of_a_megabyte(step: int) -> None:
    """S16: one line of any size. Quadratic copying would take minutes byte by byte."""
    payload = b'{"a":"' + b"x" * (1 << 20) + b'"}'
    stream = b"data: " + payload + b"\n\n"
    pieces = [stream[i : i + step] for i in range(0, len(stream), step)]
    assert parse(*pieces) == [SseEvent("message", payload)]

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from concbench.errors import UsageError
from concbench.reference.answer import Answer
from concbench.reference.faults import FAULTS, Named, parse_faults
from concbench.reference.parts import Part
from concbench.reference.personas import PERSONAS
from concbench.reference.render import Ids, Usage

OUTPUT_TOK = 6


def play(faults: str, persona: str = "vllm", *, streamed: bool = True) -> list[Part]:
    """All parts of an answer of six tokens under these faults."""
    answer = Answer(
        PERSONAS[persona],
        Ids("id-1", 1700000000, "m", chat=True),
        streamed=streamed,
        include_usage=True,
        continuous_usage=False,
        offset=0,
        prompt_tok=10,
        output_tok=OUTPUT_TOK,
        faults=parse_faults(faults),
    )
    script = answer.script
    if script is not None and script.reply is not None:
        return script.to_wire(script.reply)
    parts = answer.opening()
    total = min(answer.scene.output_tok, 50)
    for index in range(total):
        reason = "length" if index == total - 1 else None
        parts += answer.emission(index, 1, Usage(10, index + 1), reason)
    return parts


def wire(parts: list[Part]) -> bytes:
    return b"".join(part.data or b"" for part in parts)


def body(parts: list[Part]) -> bytes:
    """The body after the head, with the chunk framing taken off."""
    data = wire(parts).partition(b"\r\n\r\n")[2]
    out = b""
    while data:
        line, _, rest = data.partition(b"\r\n")
        size = int(line, 16)
        out, data = out + rest[:size], rest[size + 2 :]
        if size == 0:
            break
    return out


def events(parts: list[Part]) -> list[Any]:
    blocks = [b for b in body(parts).decode().split("\n\n") if b.startswith("data: ")]
    return [b[6:] if b == "data: [DONE]" else json.loads(b[6:]) for b in blocks]


def deltas(parts: list[Part], field: str = "content") -> list[str]:
    chunks = [e for e in events(parts) if e != "[DONE]" and e.get("choices")]
    return [t for c in chunks if (t := c["choices"][0]["delta"].get(field))]


def test_without_faults_an_answer_is_whole():
    parts = play("")
    assert len(deltas(parts)) == OUTPUT_TOK
    assert events(parts)[-1] == "[DONE]"
    assert events(parts)[-2]["usage"]["completion_tokens"] == OUTPUT_TOK
    assert wire(parts).endswith(b"0\r\n\r\n")
    assert sum(part.tokens for part in parts) == OUTPUT_TOK
    assert not any(part.after or part.wait_ns for part in parts)


@pytest.mark.parametrize("persona", PERSONAS)
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_plays_with_every_persona(name: str, persona: str, streamed: bool):
    for part in play(name, persona, streamed=streamed):
        assert part.data is not None
        assert part.framed
        assert part.wait_ns >= 0


def usages(parts: list[Part]) -> list[int]:
    return [
        e["usage"]["completion_tokens"]
        for e in events(parts)
        if e != "[DONE]" and not e["choices"] and e.get("usage")
    ]


def reasons(parts: list[Part]) -> list[str]:
    chunks = [e for e in events(parts) if e != "[DONE]" and e.get("choices")]
    return [r for c in chunks if (r := c["choices"][0]["finish_reason"])]


@pytest.mark.parametrize("persona", ["vllm", "llamacpp"])
def test_faults_in_endings(persona: str):
    assert "[DONE]" not in events(play("no-done", persona))
    assert reasons(play("no-done", persona)) == ["length"]
    assert reasons(play("no-finish", persona)) == []
    assert len(deltas(play("no-finish", persona))) == OUTPUT_TOK
    assert usages(play("no-usage", persona)) == []
    assert usages(play("usage-twice", persona)) == [6, 6]
    assert usages(play("usage-cumulative", persona)) == [1, 2, 3, 4, 5, 6, 6]
    assert usages(play("usage-wrong=4", persona)) == [10]
    late = [part.wait_ns for part in play("usage-late=50", persona) if part.kind == "usage"]
    assert late == [50_000_000]


def test_faults_in_openers():
    early = play("opener-early", "llamacpp")
    assert [part.kind for part in early[:3]] == ["head", "opener", "token"]
    vllm = play("opener-early")
    assert [part.kind for part in vllm[:3]] == ["head", "opener", "token"]
    assert sum(part.kind == "opener" for part in vllm) == 1
    assert not any(part.kind == "opener" for part in play("no-opener"))
    assert events(play("null-content"))[0]["choices"][0]["delta"]["content"] is None


def test_channels():
    parts = play("reasoning=2")
    assert len(deltas(parts, "reasoning")) == 2
    assert len(deltas(parts)) == 4
    assert len(deltas(play("reasoning=99", "llamacpp"), "reasoning_content")) == 6
    assert deltas(play("reasoning=99")) == []
    assert len(deltas(play("tool-calls=2"), "tool_calls")) == 4
    assert len(deltas(play("reasoning=0"))) == 6


@pytest.mark.parametrize("persona", ["vllm", "openai"])
def test_merged_chunks_keep_their_tokens(persona: str):
    parts = play("first-chunk=4", persona)
    assert [len(text.split()) for text in deltas(parts)] == [4, 1, 1]
    assert [part.tokens for part in parts if part.tokens] == [4, 1, 1]
    one = play("one-chunk", persona)
    assert [len(text.split()) for text in deltas(one)] == [6]
    assert reasons(one) == ["length"]
    assert deltas(one) == ["".join(deltas(play("", persona)))]


def test_an_error_object_ends_the_stream_as_the_engine_does():
    parts = events(play("error=2"))
    assert parts[-2]["error"]["code"] == 500
    assert parts[-1] == "[DONE]"
    assert len(deltas(play("error=2"))) == 2
    assert events(play("error=2", "llamacpp"))[-1]["error"]["code"] == 500


@pytest.mark.parametrize(
    ("fault", "after"), [("truncate", "close"), ("reset", "reset"), ("half-close", "half_close")]
)
def test_a_cut_comes_after_so_many_tokens(fault: str, after: str):
    parts = play(f"{fault}=2")
    assert sum(part.tokens for part in parts) == 2
    assert parts[-1].after == after
    assert not wire(parts).endswith(b"0\r\n\r\n")
    assert [part.after for part in play(f"{fault}=0")][-1] == after
    assert sum(part.tokens for part in play(f"{fault}=0")) == 0
    whole = play(fault, streamed=False)
    declared = int(wire(whole).partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    assert len(wire(whole).partition(b"\r\n\r\n")[2]) < declared
    assert whole[-1].after == after


def test_clean_end_and_hang():
    parts = play("clean-end=2")
    assert wire(parts).endswith(b"0\r\n\r\n")
    assert reasons(parts) == []
    assert "[DONE]" not in events(parts)
    hung = play("hang=2")
    assert sum(part.tokens for part in hung) == 2
    assert not any(part.after or part.kind == "end" for part in hung)


def test_pause_and_delay_wait():
    waits = [part.wait_ns for part in play("pause=2,30") if part.kind == "token"]
    assert waits == [0, 0, 30_000_000, 0, 0, 0]
    delayed = play("delay=7")
    assert [part.wait_ns for part in delayed][:2] == [7_000_000, 0]


def test_nothing_or_less():
    assert body(play("empty")) == b""
    assert wire(play("empty")).endswith(b"\r\n\r\n0\r\n\r\n")
    assert deltas(play("no-tokens")) == []
    assert usages(play("no-tokens")) == [6]
    assert deltas(play("empty-text")) == []
    assert usages(play("empty-text")) == [6]
    assert "".join(deltas(play("spaces"))) == " " * 6


def test_too_much():
    assert len(deltas(play("over-cap=3"))) == 9
    assert len(deltas(play("endless"))) == 50
    listed = events(play("after-end=2"))
    assert len(listed) - listed.index("[DONE]") == 3


def test_texts_that_break_parsers():
    assert b"\xff" in body(play("bad-utf8=2"))
    assert deltas(play("lone-surrogate=2"))[1] == " \ud835"
    assert len(deltas(play("long-line"))[0]) == 1 << 20
    assert set(deltas(play("garble"))) == {" aaaa"}


@pytest.mark.parametrize(
    ("fault", "undo"),
    [
        ("crlf", lambda b: b.replace(b"\r\n", b"\n")),
        ("cr", lambda b: b.replace(b"\r", b"\n")),
        ("no-space", lambda b: b.replace(b"data:", b"data: ")),
        ("more-space", lambda b: b.replace(b"data:   ", b"data: ")),
        ("named-events", lambda b: b.replace(b"event: message\nid: 1\n", b"")),
        ("bom", lambda b: b.removeprefix(b"\xef\xbb\xbf")),
        ("merge", lambda b: b),
        ("split=7", lambda b: b),
    ],
)
def test_line_forms_say_the_same(fault: str, undo: Callable[[bytes], bytes]):
    parts, plain = play(fault), play("")
    if fault not in ("merge", "split=7"):
        assert body(parts) != body(plain)
    assert undo(body(parts)) == body(plain)


def test_pings_come_before_and_between():
    text = body(play("pings=2"))
    assert text.startswith(b":\n\n:\n\n: keep-alive\n\ndata: ")
    assert text.count(b": ping\n\n") == 4
    assert body(play("empty-pings")).startswith(b"event: ping\ndata: \n\ndata: : PROCESSING\n\n")
    assert b'data: {"choices":[{"index":0,\n\n' in body(play("wrong-json"))


def test_split_sends_so_many_bytes_at_a_time_and_counts_tokens_with_the_last():
    parts = play("split=10")
    assert max(len(part.data or b"") for part in parts) == 10
    assert wire(parts) == wire(play(""))
    assert sum(part.tokens for part in parts) == 6
    assert sum(part.kind == "end" for part in parts) == 1


def test_slow_head_spaces_single_bytes():
    parts = play("slow-head=3")
    head = [part for part in parts if len(part.data or b"") == 1]
    assert {part.wait_ns for part in head[1:]} == {3_000_000}
    assert wire(parts) == wire(play(""))


def test_http10_has_no_framing_and_closes():
    parts = play("http10")
    head, _, rest = wire(parts).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"chunked" not in head
    assert rest == body(play(""))
    assert parts[-1].after == "close"
    whole = play("http10", streamed=False)
    assert b"Content-Length" not in wire(whole)
    assert whole[-1].after == "close"


def test_a_wrong_length_does_not_fit():
    for streamed in (True, False):
        parts = play("wrong-length=3", streamed=streamed)
        head, _, rest = wire(parts).partition(b"\r\n\r\n")
        assert b"Content-Length: 3" in head
        assert b"chunked" not in head
        assert len(rest) > 3
        assert parts[-1].after == "close"


def test_heads():
    assert len(wire(play("huge-headers=20")).partition(b"\r\n\r\n")[0]) > 20_000
    assert wire(play("interim=100")).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert wire(play("interim")).startswith(b"HTTP/1.1 103 Early Hints\r\nLink: ")


@pytest.mark.parametrize("argument", ["", "=hold"])
def test_gzip_unpacks_to_the_same(argument: str):
    parts = play(f"gzip{argument}")
    assert b"Content-Encoding: gzip" in wire(parts)
    assert zlib.decompress(body(parts), wbits=31) == body(play(""))
    whole, plain = play("gzip", streamed=False), play("", streamed=False)
    head, _, rest = wire(whole).partition(b"\r\n\r\n")
    assert zlib.decompress(rest, wbits=31) == wire(plain).partition(b"\r\n\r\n")[2]
    assert f"Content-Length: {len(rest)}".encode() in head


def test_held_gzip_keeps_bytes_back():
    flushed = [bool(p.data) for p in play("gzip") if p.kind == "token"]
    held = [p for p in play("gzip=hold") if p.kind == "token" and p.data]
    assert all(flushed)
    assert len(held) < len(flushed)


def test_whole_answers_of_another_kind():
    busy = wire(play("status=429"))
    assert busy.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    assert b"Retry-After: 1" in busy
    assert b"Location: /v1/elsewhere" in wire(play("status=307"))
    assert wire(play("html")).startswith(b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html")
    assert play("no-bytes") == []
    assert [(p.data, p.after) for p in play("refuse=reset")] == [(b"", "reset")]
    assert not wire(play("garbage")).startswith(b"HTTP")
    assert max(len(p.data or b"") for p in play("status=503;split=4")) == 4


def test_faults_compose():
    parts = play("reasoning=2;no-done;crlf;pings;split=3")
    text = body(parts)
    assert b"reasoning" in text
    assert b"[DONE]" not in text
    assert text.startswith(b":\n\n")
    assert b"\r\n\r\n" in text


def test_faults_are_read_with_their_limits():
    assert parse_faults("reset=5@every=3@first=9; no-done") == [
        Named("reset", "5", every=3, first=9),
        Named("no-done"),
    ]
    fault = Named("reset", "5", every=3, first=9)
    assert [n for n in range(1, 20) if fault.applies(n)] == [3, 6, 9]


@pytest.mark.parametrize("text", ["nonsense", "reset@every=0", "reset@often=2", "reset@every=x"])
def test_unknown_faults_are_refused(text: str):
    with pytest.raises(UsageError):
        parse_faults(text)


@pytest.mark.parametrize("text", ["reset=x", "split=0", "refuse=perhaps", "status=5"])
def test_wrong_arguments_are_refused(text: str):
    with pytest.raises(UsageError):
        play(text)

"""Token events, counts and outcomes, from real captures and from streams that went wrong."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.domain import KIND_CONTENT, KIND_REASONING, KIND_TOOL
from concbench.wire.sse import SseParser
from concbench.wire.tokens import Endpoint, StreamOutcome, StreamReader, read_body

FIXTURES = Path(__file__).parent.parent / "fixtures"
ENGINES = ("vllm", "llamacpp")
GREETING = "Hello there! I'm here to help with any kind of"


def body_of(engine: str, name: str) -> bytes:
    return (FIXTURES / engine / f"{name}.http").read_bytes().partition(b"\r\n\r\n")[2]


def delta(text: str | None = None, reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "choices": [{"index": 0, "delta": {"content": text, **fields}, "finish_reason": reason}]
    }


def usage(output: Any, prompt: Any = 10, **fields: Any) -> dict[str, Any]:
    total = prompt + output if isinstance(output, int) and isinstance(prompt, int) else None
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": total} | fields


def read(
    *events: Any,
    done: bool = True,
    clean: bool = True,
    asked: int = 0,
    endpoint: Endpoint = "chat",
) -> StreamOutcome:
    """Each event (an object, or bytes as they are) comes with a read of its own."""
    reader = StreamReader(endpoint, asked, True)
    number = -1
    for number, event in enumerate(events):
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        reader.feed(data, "message", number)
    if done:
        reader.feed(b"[DONE]", "message", number + 1)
    return reader.finish(clean)


def stream(body: bytes, endpoint: Endpoint = "chat", asked: int = 0) -> StreamOutcome:
    parser, reader = SseParser(), StreamReader(endpoint, asked, True)
    for number, (a, b) in enumerate(pairwise([*range(0, len(body), 700), len(body)])):
        for event in parser.feed(body[a:b]):
            reader.feed(event.data, event.event, number)
    for event in parser.close():
        reader.feed(event.data, event.event, 0)
    return reader.finish(True)


def tokens(outcome: StreamOutcome) -> list[float]:
    return [row[2] for row in outcome.rows]


# --- real captures ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "name", "events", "output_tok", "prompt_tok", "cached_tok", "source"),
    [
        ("vllm", "chat_stream", 12, 12, 33, None, "usage"),
        ("vllm", "chat_stream_one_token", 1, 1, 33, None, "usage"),
        ("vllm", "chat_stream_continuous_usage", 9, 24, 42, None, "continuous_usage"),
        ("vllm", "completion_stream", 12, 12, 4, None, "usage"),
        ("llamacpp", "chat_stream", 12, 12, 33, 24, "usage"),
        ("llamacpp", "chat_stream_one_token", 1, 1, 33, 32, "usage"),
        ("llamacpp", "chat_stream_continuous_usage", 24, 24, 42, 24, "usage"),
        ("llamacpp", "completion_stream", 12, 12, 4, 0, "usage"),
    ],
)
def test_captured_streams(
    engine: str,
    name: str,
    events: int,
    output_tok: int,
    prompt_tok: int,
    cached_tok: int | None,
    source: str,
) -> None:
    """T13: what was really generated, with its finish reason."""
    endpoint: Endpoint = "completions" if name.startswith("completion") else "chat"
    outcome = stream(body_of(engine, name), endpoint, asked=output_tok)
    assert outcome.error_kind is None
    assert outcome.notes == ()
    assert outcome.done_seen
    assert outcome.finish_reason == "length"
    assert outcome.events == len(outcome.rows) == events
    assert outcome.output_tok == sum(tokens(outcome)) == output_tok
    assert outcome.prompt_tok == prompt_tok
    assert outcome.cached_tok == cached_tok
    assert outcome.token_source == source
    assert {row[1] for row in outcome.rows} == {KIND_CONTENT}
    assert outcome.first_visible_index == 0
    assert (outcome.role_read is None) == (endpoint == "completions")
    assert (outcome.server_timings is not None) == (engine == "llamacpp")


@pytest.mark.parametrize("engine", ENGINES)
def test_captured_text(engine: str) -> None:
    assert stream(body_of(engine, "chat_stream")).text == GREETING
    assert stream(body_of(engine, "chat_stream_one_token")).text == "Hello"
    text = stream(body_of(engine, "completion_stream"), "completions").text
    assert text is not None
    assert text.startswith(", the city of New" if engine == "llamacpp" else ", the city of Nova")
    assert text.endswith(" Haven was a thriving metropolis, with")


def test_half_characters_belong_to_the_event_that_shows_them() -> None:
    """T07: tokens without text go to the next event that has some, at the end to the last."""
    outcome = stream(body_of("vllm", "chat_stream_continuous_usage"))
    assert tokens(outcome) == [3, 3, 3, 3, 3, 1, 1, 3, 4]
    assert outcome.first_event_tok == 3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"])
def test_line_ends_change_nothing(engine: str, line_end: bytes) -> None:
    """S04: text and usage of a real stream for LF, CRLF and CR."""
    body = body_of(engine, "chat_stream")
    odd, plain = stream(body.replace(b"\n", line_end)), stream(body)
    assert (odd.text, odd.output_tok, odd.notes) == (plain.text, plain.output_tok, plain.notes)


@pytest.mark.parametrize(
    ("engine", "name", "output_tok", "prompt_tok", "text"),
    [
        ("vllm", "chat_body", 12, 33, GREETING),
        ("llamacpp", "chat_body", 12, 33, GREETING),
        ("llamacpp", "unknown_model", 2, 33, "\ufffd"),
        ("vllm", "completion_body_token_ids", 6, 4, "space dimension is a dimension that"),
        ("llamacpp", "completion_body_token_ids", 6, 4, "space dimension is a dimension that"),
    ],
)
def test_captured_bodies(
    engine: str, name: str, output_tok: int, prompt_tok: int, text: str
) -> None:
    """D08: a body gives counts and text, and no token event that could have a time."""
    endpoint: Endpoint = "completions" if name.startswith("completion") else "chat"
    outcome = read_body(body_of(engine, name), endpoint, output_tok, True)
    assert outcome.error_kind is None
    assert outcome.notes == ()
    assert (outcome.output_tok, outcome.prompt_tok) == (output_tok, prompt_tok)
    assert (outcome.text, outcome.finish_reason) == (text, "length")
    assert (outcome.rows, outcome.events, outcome.first_event_tok) == ([], 0, 0.0)
    assert outcome.token_source == "usage"


@pytest.mark.parametrize(
    ("engine", "name", "code", "words"),
    [
        ("vllm", "error_bad_json", "400", "JSON decode error"),
        ("vllm", "unknown_model", "404", "does not exist"),
        ("vllm", "error_prompt_too_long", "400", "maximum context length is 4096"),
        ("llamacpp", "error_bad_json", "400", "parse error at line 1"),
        ("llamacpp", "error_prompt_too_long", "400", "exceeds the available context size"),
    ],
)
def test_captured_errors(engine: str, name: str, code: str, words: str) -> None:
    outcome = read_body(body_of(engine, name), "chat", 10, False)
    assert outcome.error_kind == "in_stream_error"
    assert outcome.error_detail is not None
    assert outcome.error_detail.startswith(f"{code}: ")
    assert words in outcome.error_detail
    assert "\n" not in outcome.error_detail
    assert outcome.output_tok is None


def test_every_capture_was_read() -> None:
    names = {path.stem for engine in ENGINES for path in (FIXTURES / engine).glob("*.http")}
    assert names == {
        "chat_stream",
        "chat_stream_one_token",
        "chat_stream_continuous_usage",
        "completion_stream",
        "chat_body",
        "completion_body_token_ids",
        "unknown_model",
        "error_bad_json",
        "error_prompt_too_long",
    }


# --- what is a token event -------------------------------------------------------------------


@pytest.mark.parametrize("opening", ["", None])
def test_role_only_opener_is_no_token(opening: str | None) -> None:
    """S01, S02: an opener with empty or null content."""
    outcome = read(delta(opening, role="assistant"), delta("A"), delta("B", "stop"))
    assert outcome.rows == [(1, KIND_CONTENT, 1.0), (2, KIND_CONTENT, 1.0)]
    assert outcome.role_read == 0


def test_role_beside_text_is_a_token() -> None:
    outcome = read(delta("A", role="assistant"), delta("B", "stop", role="assistant"))
    assert (outcome.events, outcome.role_read) == (2, None)


def test_a_stream_without_tokens_gives_none() -> None:
    """S01: no token, so nothing that a TTFT could be taken from; and a failed request."""
    outcome = read(delta("", role="assistant"), delta("", "stop"))
    assert (outcome.rows, outcome.error_kind) == ([], "empty_response")
    assert (outcome.output_tok, outcome.token_source) == (None, None)


def test_pings_are_no_tokens_and_end_nothing() -> None:
    """S07: bad JSON, JSON that is no object, and a ping object."""
    outcome = read(b": PROCESSING", b"[1]", b"12", b'{"type":"ping"}', delta("A", "stop"))
    assert (outcome.events, outcome.unparsed, outcome.error_kind) == (1, 3, None)
    assert outcome.notes == ("unparsed_events",)


def test_spaces_around_the_data_do_not_matter() -> None:
    """S03: what is left of `data:   {…}`, and a padded end mark."""
    event = b"  " + json.dumps(delta("A", "stop")).encode() + b" "
    outcome = read(event, b" [DONE] ", done=False)
    assert (outcome.events, outcome.done_seen, outcome.unparsed) == (1, True, 0)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_first(field: str) -> None:
    """S14: reasoning is the first token; the first visible one is told apart."""
    events = [delta(None, **{field: "hm"})] * 3
    outcome = read(*events, delta("A", "stop"))
    assert [row[1] for row in outcome.rows] == [KIND_REASONING] * 3 + [KIND_CONTENT]
    assert outcome.first_visible_index == 3
    assert outcome.text == "hmhmhmA"


def test_reasoning_only() -> None:
    """S14: the length ran out before any content."""
    outcome = read(
        delta(None, "length", reasoning="hm"),
        {"choices": [], "usage": usage(1, completion_tokens_details={"reasoning_tokens": 1})},
    )
    assert (outcome.first_visible_index, outcome.error_kind) == (None, None)
    assert (outcome.output_tok, outcome.reasoning_tok) == (1, 1)


def test_both_reasoning_names_carry_one_text() -> None:
    """S14: some releases send the same text under both names."""
    outcome = read(delta(None, "stop", reasoning="hm", reasoning_content="hm"))
    assert (outcome.text, outcome.events) == ("hm", 1)


def test_tool_calls_count() -> None:
    """S15: 31 tokens in three events, the last two tool calls."""
    calls = [
        [{"index": 0, "function": {"name": "find", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": '{"x":1}'}}],
    ]
    outcome = read(
        delta("I", usage=None) | {"usage": usage(1)},
        delta(None, tool_calls=calls[0]) | {"usage": usage(17)},
        delta(None, "tool_calls", tool_calls=calls[1]) | {"usage": usage(31)},
        asked=512,
    )
    assert outcome.rows == [(0, KIND_CONTENT, 1), (1, KIND_TOOL, 16), (2, KIND_TOOL, 14)]
    assert (outcome.output_tok, outcome.token_source) == (31, "continuous_usage")
    assert outcome.text == 'Ifind{"x":1}'


def test_tool_arguments_as_an_object() -> None:
    """S15: some servers send the arguments as an object."""
    call = {"function": {"name": "f", "arguments": {"x": 1}}}
    outcome = read(delta(None, "tool_calls", tool_calls=[call]))
    assert (outcome.events, outcome.text) == (1, 'f{"x": 1}')


def test_content_in_parts() -> None:
    outcome = read(delta([{"type": "text", "text": "A"}, {"text": "B"}], "stop"))  # type: ignore[arg-type]
    assert (outcome.text, outcome.events) == ("AB", 1)


# --- counts ----------------------------------------------------------------------------------


def test_usage_without_choices() -> None:
    """S11: usage in a `choices: []` chunk, and in one without choices."""
    for closing in ({"choices": [], "usage": usage(2)}, {"usage": usage(2)}):
        outcome = read(delta("A"), delta("B", "stop"), closing)
        assert (outcome.output_tok, outcome.token_source, outcome.events) == (2, "usage", 2)
        assert outcome.prompt_tok == 10


def test_usage_and_end_mark_add_no_event() -> None:
    """S13: the last token event is the last with text, however late the usage comes."""
    outcome = read(*[delta("x")] * 9, delta("x", "stop"), {"choices": [], "usage": usage(10)})
    assert [row[0] for row in outcome.rows] == list(range(10))


def test_final_usage_is_spread_over_the_chunks() -> None:
    """T01, T03: 60 chunks, 150 tokens: 2.5 each, in every chunk, never 60 tokens."""
    outcome = read(*[delta("xyz")] * 59, delta("x", "stop"), {"choices": [], "usage": usage(150)})
    assert tokens(outcome) == [2.5] * 60
    assert (outcome.output_tok, outcome.first_event_tok) == (150, 2.5)


def test_cumulative_usage_is_not_summed() -> None:
    """T04: 1, 4, 5, …, 99: the last value counts, and the differences are the events'."""
    counts = [1, 4, 5, *range(10, 100)]
    events = [delta("x") | {"usage": usage(count)} for count in counts]
    outcome = read(*events, delta("", "stop") | {"usage": usage(99)})
    assert outcome.output_tok == sum(tokens(outcome)) == 99
    assert tokens(outcome)[:4] == [1, 3, 1, 5]
    assert (outcome.token_source, outcome.notes) == ("continuous_usage", ())


def test_several_tokens_in_the_first_chunk() -> None:
    """D02: five tokens at once, then one each: TPOT leaves out the first event's five."""
    counts = [5, *range(6, 21)]
    events = [delta("x") | {"usage": usage(count)} for count in counts]
    outcome = read(*events, delta("", "stop"), {"choices": [], "usage": usage(20)})
    assert (outcome.first_event_tok, outcome.output_tok, outcome.events) == (5, 20, 16)


def test_special_tokens_at_the_end_go_to_the_last_event() -> None:
    outcome = read(
        delta("A") | {"usage": usage(1)},
        delta("B") | {"usage": usage(2)},
        delta("", "stop") | {"usage": usage(3)},
        {"choices": [], "usage": usage(3)},
    )
    assert tokens(outcome) == [1, 2]


def test_usage_every_few_chunks() -> None:
    """T01: between two readings the events share what was added, those after the last too."""
    chunks = [delta("x") for _ in range(6)]
    chunks[2]["usage"] = usage(6)
    chunks[4]["usage"] = usage(12)
    outcome = read(*chunks, delta("", "stop"))
    assert tokens(outcome) == [2, 2, 2, 2, 2, 2]
    assert outcome.token_source == "continuous_usage"


def test_prompt_usage_in_the_opener_is_not_continuous() -> None:
    outcome = read(
        delta("", role="assistant") | {"usage": usage(0)},
        delta("A"),
        delta("B", "stop"),
        {"choices": [], "usage": usage(8)},
    )
    assert (tokens(outcome), outcome.token_source) == ([4, 4], "usage")
    assert outcome.notes == ()


def test_usage_beside_empty_text_is_used() -> None:
    """T07: final chunk with `text: ""` and usage 37 where 512 were asked for."""
    chunks = [{"choices": [{"index": 0, "text": "x", "finish_reason": None}]}] * 37
    last = {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "usage": usage(37)}
    outcome = read(*chunks, last, asked=512, endpoint="completions")
    assert (outcome.output_tok, outcome.token_source, outcome.events) == (37, "usage", 37)


def test_no_count_at_all_is_never_the_length_asked_for() -> None:
    """T07: without usage each event is one token, and is said to be."""
    outcome = read(delta("x"), delta("x", "stop"), asked=512)
    assert (outcome.output_tok, outcome.token_source) == (2, "chunks")


def test_text_that_a_tokenizer_would_collapse() -> None:
    """T08: 15 spaces are the server's 15 tokens."""
    outcome = read(*[delta(" ")] * 14, delta(" ", "stop"), {"choices": [], "usage": usage(15)})
    assert (outcome.output_tok, outcome.text) == (15, " " * 15)


def test_shorter_than_asked_for() -> None:
    """T13: the tokens that came and why it ended, not what was asked for."""
    outcome = read(delta("x"), delta("", "stop"), {"choices": [], "usage": usage(1)}, asked=1024)
    assert (outcome.output_tok, outcome.finish_reason, outcome.notes) == (1, "stop", ())


def test_timings_where_there_is_no_usage() -> None:
    timings = {"prompt_n": 9, "cache_n": 24, "predicted_n": 4, "predicted_ms": 2.5}
    outcome = read(delta("x"), delta("x"), delta("", "stop") | {"timings": timings})
    assert (outcome.output_tok, outcome.token_source) == (4, "timings")
    assert (outcome.prompt_tok, outcome.cached_tok) == (33, 24)
    assert tokens(outcome) == [2, 2]
    assert outcome.server_timings == timings


def test_cached_tokens_unknown_stay_unknown() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": None}}
    outcome = read(delta("x", "stop"), {"choices": [], "usage": usage(1, **details)})
    assert outcome.cached_tok is None


def test_server_timings_of_other_servers() -> None:
    metrics = {"queue_time_ms": 1.5, "speculative_decoding": {"acceptance_histogram": [1, 2]}}
    outcome = read(delta("x", "stop"), {"choices": [], "usage": usage(1), "metrics": metrics})
    assert outcome.server_timings == metrics
    ollama = {"total_duration": 5, "eval_count": 1, "done": True}
    outcome = read(delta("x", "stop"), ollama)
    assert outcome.server_timings == {"total_duration": 5, "eval_count": 1}


def choice(index: int, text: str, reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": {"content": text}, "finish_reason": reason}


def test_several_choices_count_on_their_own() -> None:
    """T04: with n > 1 each choice has its own running count; the end has the whole."""
    events = [
        {"choices": [choice(i, "ab"[i], "stop" if n == 3 else None)], "usage": usage(n)}
        for n in (1, 2, 3)
        for i in (0, 1)
    ]
    whole = {"choices": [], "usage": usage(6)}
    for outcome in (read(*events, asked=3), read(*events, whole, asked=3)):
        assert (outcome.output_tok, sum(tokens(outcome)), outcome.events) == (6, 6, 6)
        assert outcome.notes == ()
        assert outcome.text == "aaa\nbbb"
    assert read(*events, whole, asked=2).notes == ("output_over_cap",)


def test_several_choices_in_one_chunk_are_one_event() -> None:
    outcome = read({"choices": [choice(0, "a", "stop"), choice(1, "b", "stop")]})
    assert (outcome.events, outcome.text, outcome.finish_reason) == (1, "a\nb", "stop")


@pytest.mark.parametrize(
    ("counts", "output_tok", "source"),
    [
        (usage(2) | {"total_tokens": 99}, 2, "usage"),
        (usage(0), 12, "chunks"),
        (usage(5), 5, "usage"),
        (usage(12, completion_tokens_details={"reasoning_tokens": 13}), 12, "usage"),
        (usage(12, prompt_tokens_details={"cached_tokens": 11}), 12, "usage"),
    ],
)
def test_usage_that_contradicts_itself(
    counts: dict[str, Any], output_tok: int, source: str
) -> None:
    outcome = read(*[delta("x")] * 11, delta("x", "stop"), {"choices": [], "usage": counts})
    assert "usage_inconsistent" in outcome.notes
    assert (outcome.output_tok, outcome.token_source) == (output_tok, source)
    assert sum(tokens(outcome)) == pytest.approx(output_tok)


def test_usage_that_goes_backwards() -> None:
    events = [delta("x") | {"usage": usage(count)} for count in (3, 9, 4)]
    outcome = read(*events, delta("", "stop"))
    assert outcome.notes == ("usage_inconsistent",)
    assert (outcome.output_tok, sum(tokens(outcome))) == (4, pytest.approx(4))


@pytest.mark.parametrize("odd", [True, "7", 7.0, -7, 10**30, None, [], {}])
def test_counts_that_are_none(odd: Any) -> None:
    """Numbers that cannot be a count are missing, and the stream is read all the same."""
    details = {"cached_tokens": odd, "reasoning_tokens": odd}
    counts = usage(odd, odd, prompt_tokens_details=details, completion_tokens_details=details)
    outcome = read(delta("x"), delta("x", "stop"), {"choices": [], "usage": counts})
    assert (outcome.output_tok, outcome.token_source) == (2, "chunks")
    assert (outcome.prompt_tok, outcome.cached_tok, outcome.reasoning_tok) == (None, None, None)
    assert outcome.error_kind is None


@pytest.mark.parametrize("number", [b"9" * 6000, b"1e999", b"NaN", b"-Infinity"])
def test_numbers_no_parser_likes(number: bytes) -> None:
    event = b'{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],"usage":'
    event += b'{"completion_tokens":' + number + b'},"timings":{"prompt_ms":' + number + b"}}"
    outcome = read(event)
    assert (outcome.events, outcome.unparsed, outcome.output_tok) == (1, 0, 1)
    assert outcome.server_timings == {"prompt_ms": None}


def test_more_than_asked_for() -> None:
    outcome = read(delta("x"), delta("x", "stop"), {"choices": [], "usage": usage(9)}, asked=8)
    assert outcome.notes == ("output_over_cap",)


# --- how it ended ----------------------------------------------------------------------------


def test_finish_reason_without_end_mark() -> None:
    """S08: a finish reason and a clean end are success; it is noted that there was no [DONE]."""
    outcome = read(delta("x"), delta("", "stop"), done=False)
    assert (outcome.error_kind, outcome.notes, outcome.done_seen) == (None, ("no_done",), False)


def test_end_mark_without_finish_reason() -> None:
    outcome = read(delta("x"))
    assert (outcome.error_kind, outcome.finish_reason, outcome.notes) == (None, None, ())


def test_neither_is_truncated() -> None:
    """S08: a clean end that says nothing is a cut answer; its tokens are kept for the ledger."""
    outcome = read(delta("x"), delta("x"), done=False)
    assert (outcome.error_kind, outcome.events, outcome.notes) == ("truncated", 2, ())
    assert read(done=False).error_kind == "truncated"


def test_unclean_end_is_truncated() -> None:
    """S19: cut in the middle, whatever had come by then."""
    assert read(delta("x"), done=False, clean=False).error_kind == "truncated"
    assert read(delta("x", "stop"), done=False, clean=False).error_kind == "truncated"


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        ({"error": {"message": "boom", "type": "x", "code": 500}}, "500: boom"),
        ({"error": {"message": "boom", "type": "Server", "code": None}}, "Server: boom"),
        ({"object": "error", "message": "full", "code": 503}, "503: full"),
        ({"error": "overloaded", "error_type": "busy"}, "busy: overloaded"),
        ({"error": "out of\nmemory"}, "out of memory"),
        ({"error": {"message": {"message": "deep"}}}, "deep"),
        ({"error": {"weird": 1}}, "an error object without a message"),
        ({"detail": "Not Found"}, "Not Found"),
        (delta("x") | {"error": {"message": "boom"}}, "boom"),
    ],
)
def test_error_inside_the_stream(error: dict[str, Any], detail: str) -> None:
    """S09: tokens, an error object, [DONE]: failed, with code and message."""
    outcome = read(delta("A"), error)
    assert (outcome.error_kind, outcome.error_detail) == ("in_stream_error", detail)
    assert outcome.events >= 1
    assert read(error, done=False, clean=False).error_kind == "in_stream_error"


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b'{"code":500,"message":"boom"}', "500: boom"),
        (b'{"error":{"code":500,"message":"boom"}}', "500: boom"),
        (b"no JSON \xff", "no JSON \ufffd"),
        (b"null", "null"),
    ],
)
def test_event_named_error(data: bytes, detail: str) -> None:
    """S09: the event says by its name that it is an error."""
    reader = StreamReader("chat", 0, False)
    reader.feed(data, "error", 0)
    reader.feed(b"[DONE]", "message", 1)
    outcome = reader.finish(True)
    assert (outcome.error_kind, outcome.error_detail) == ("in_stream_error", detail)
    assert outcome.text is None


@pytest.mark.parametrize("nothing", [None, "", {}, False])
def test_error_field_that_says_nothing(nothing: Any) -> None:
    assert read(delta("x", "stop") | {"error": nothing}).error_kind is None


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_server_gave_up(reason: str) -> None:
    """S09: no error object, but a finish reason that says so."""
    outcome = read(delta("x"), delta("", reason))
    assert (outcome.error_kind, outcome.finish_reason) == ("in_stream_error", reason)


def test_special_tokens_only() -> None:
    """An answer that is its end token alone: the usage says one token, so it is one."""
    outcome = read(delta("", "stop", role="assistant"), {"choices": [], "usage": usage(1)})
    assert (outcome.error_kind, outcome.output_tok, outcome.events) == (None, 1, 0)
    assert outcome.first_event_tok == 0
    nothing = read(delta("", "stop"), {"choices": [], "usage": usage(0)})
    assert (nothing.error_kind, nothing.output_tok) == ("empty_response", 0)


def test_tokens_after_the_end() -> None:
    assert read(delta("x", "stop"), delta("y")).notes == ("tokens_after_end",)
    assert read(delta("x"), b"[DONE]", delta("y")).notes == ("tokens_after_end",)
    assert read(delta("x"), delta("y", "stop")).notes == ()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "empty_response"),
        (b" \n", "empty_response"),
        (b"<html>", "unreadable_body"),
        (b"[]", "unreadable_body"),
        (b'{"choices":[{"message":{"content":"x"', "unreadable_body"),
        (b'{"choices":[]}', "empty_response"),
        (b'{"choices":[{"message":{"content":null}}]}', "empty_response"),
        (b'{"choices":[{"message":{"content":"x"}}]}', None),
        (b'{"error":"boom"}', "in_stream_error"),
    ],
)
def test_bodies(body: bytes, kind: str | None) -> None:
    """A body without usage has no count: None, never the length asked for."""
    outcome = read_body(body, "chat", 512, True)
    assert (outcome.error_kind, outcome.output_tok) == (kind, None)
    assert outcome.notes == ()


# --- whatever comes --------------------------------------------------------------------------


def test_lone_surrogate() -> None:
    """H03: `\\ud835` alone is text; it can be written, and the rest is kept."""
    outcome = read(
        b'{"choices":[{"delta":{"content":"a\\ud835b"},"finish_reason":"\\ud835"}]}',
        b'{"error":{"message":"\\udc00","code":1},"timings":{"\\ud835":"\\ud835"}}',
    )
    assert (outcome.events, outcome.unparsed, outcome.text) == (1, 0, "a\ufffdb")
    json.dumps([outcome.finish_reason, outcome.error_detail], ensure_ascii=False).encode()
    json.dumps(outcome.server_timings, ensure_ascii=False).encode()


def test_surrogate_pair_in_two_chunks() -> None:
    """H03: two halves that come apart are one character."""
    halves = [b'{"choices":[{"delta":{"content":"\\u%s"}}]}' % h for h in (b"d83d", b"de00")]
    assert read(*halves).text == "\U0001f600"


def test_invalid_utf8_is_text() -> None:
    outcome = read(b'{"choices":[{"delta":{"content":"a\xff"},"finish_reason":"stop"}]}')
    assert (outcome.text, outcome.unparsed) == ("a\ufffd", 0)


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b'{"usage":' * 5000, b'{"error":' + b"[" * 5000 + b"]" * 5000 + b"}"]
)
def test_deep_nesting(data: bytes) -> None:
    outcome = read(data, delta("x", "stop"))
    assert outcome.events == 1
    read_body(data, "chat", 0, True)


def test_event_of_a_megabyte() -> None:
    """S16: one event of any size."""
    text = "x" * (1 << 20)
    body = b"data: " + json.dumps(delta(text, "stop")).encode() + b"\n\ndata: [DONE]\n\n"
    outcome = stream(body)
    assert (outcome.text, outcome.events) == (text, 1)


KEYS = st.sampled_from(
    [
        "choices",
        "delta",
        "message",
        "content",
        "text",
        "role",
        "reasoning",
        "reasoning_content",
        "tool_calls",
        "function",
        "name",
        "function_call",
        "arguments",
        "index",
        "finish_reason",
        "usage",
        "completion_tokens",
        "prompt_tokens",
        "total_tokens",
        "prompt_tokens_details",
        "cached_tokens",
        "completion_tokens_details",
        "reasoning_tokens",
        "timings",
        "predicted_n",
        "prompt_n",
        "cache_n",
        "error",
        "code",
        "type",
        "object",
        "detail",
        "metrics",
        "total_duration",
    ]
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.just("error")
)
ODD = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=20,
)
CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.one_of(st.integers(0, 2), ODD),
                    "delta": st.one_of(
                        ODD,
                        st.fixed_dictionaries(
                            {},
                            optional={
                                k: st.one_of(st.text(max_size=3), ODD)
                                for k in ("role", "content", "reasoning", "tool_calls")
                            },
                        ),
                    ),
                    "text": st.one_of(st.text(max_size=3), ODD),
                    "finish_reason": st.one_of(st.none(), st.text(max_size=3), ODD),
                },
            ),
            max_size=3,
        ),
        "usage": st.dictionaries(KEYS, st.one_of(st.integers(0, 50), ODD), max_size=5),
        "timings": st.dictionaries(KEYS, ODD, max_size=3),
        "error": ODD,
    },
)
EVENTS = st.one_of(
    st.binary(max_size=40),
    st.just(b"[DONE]"),
    st.one_of(CHUNKS, ODD).map(lambda value: json.dumps(value).encode()),
)


@given(
    events=st.lists(st.tuples(EVENTS, st.sampled_from(["message", "error", "ping"])), max_size=8),
    endpoint=st.sampled_from(["chat", "completions"]),
    asked=st.integers(0, 20),
    clean=st.booleans(),
)
def test_never_raises(
    events: list[tuple[bytes, str]], endpoint: Endpoint, asked: int, clean: bool
) -> None:
    reader = StreamReader(endpoint, asked, True)
    for number, (data, name) in enumerate(events):
        reader.feed(data, name, number)
        check(read_body(data, endpoint, asked, True))
    check(reader.finish(clean))


def check(outcome: StreamOutcome) -> None:
    """What holds of every outcome."""
    assert outcome.events == len(outcome.rows)
    if outcome.rows:
        assert sum(tokens(outcome)) == pytest.approx(outcome.output_tok)
        assert min(tokens(outcome)) >= 0
        assert outcome.first_event_tok == outcome.rows[0][2]
    assert (outcome.output_tok is None) == (outcome.token_source is None)
    visible = [i for i, row in enumerate(outcome.rows) if row[1] != KIND_REASONING]
    assert outcome.first_visible_index == (visible[0] if visible else None)
    texts = [outcome.text, outcome.finish_reason, outcome.error_detail, outcome.server_timings]
    json.dumps(texts, ensure_ascii=False, allow_nan=False).encode()
    assert outcome.error_kind != ""

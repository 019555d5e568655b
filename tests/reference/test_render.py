from __future__ import annotations

import json
from typing import Any

import pytest

from concbench.reference.render import (
    SHAPES,
    WORDS,
    Ids,
    Render,
    Usage,
    phrases,
    timings_dict,
    words,
)

USAGE = Usage(prompt_tok=10, output_tok=5, cached_tok=4, prompt_ms=30.0, predicted_ms=40.0)


def render(shape: str, *, chat: bool = True, continuous: bool = False) -> Render:
    return Render(SHAPES[shape], Ids("id-1", 1700000000, "m", chat), continuous_usage=continuous)


def parsed(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    return dict(json.loads(event[6:-2]))


def test_words_are_distinct_equally_long_and_one_token_each():
    assert len(set(WORDS)) == 256
    assert {len(word) for word in WORDS} == {5}
    assert len(words(250, 20).split()) == 20
    assert {len(phrase) for phrase in phrases(3)} == {15}
    assert phrases(2)[255] == WORDS[255] + WORDS[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chat", [True, False])
def test_every_event_is_json_with_the_answers_identity(shape: str, chat: bool):
    out = render(shape, chat=chat)
    events = [out.token(b" word"), out.token(b" word", "length"), out.usage(USAGE)]
    events += [e for e in (out.opener(), out.finish("stop", USAGE, last=True)) if e is not None]
    for event in events:
        body = parsed(event)
        assert (body["id"], body["model"], body["created"]) == ("id-1", "m", 1700000000)
        assert body["object"] == ("chat.completion.chunk" if chat else "text_completion")
    choice = parsed(events[1])["choices"][0]
    assert choice["finish_reason"] == "length"
    assert (choice["delta"]["content"] if chat else choice["text"]) == " word"
    assert parsed(events[2])["choices"] == []
    assert parsed(events[2])["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("shape", "content"), [("vllm", ""), ("sglang", ""), ("llamacpp", None), ("openai", "")]
)
def test_the_opener_is_the_engines(shape: str, content: str | None):
    opener = render(shape).opener()
    assert opener is not None
    delta = parsed(opener)["choices"][0]["delta"]
    assert delta["role"] == "assistant"
    assert delta["content"] == content
    assert render(shape, chat=False).opener() is None


def test_ollama_has_no_opener_and_a_role_in_every_chunk():
    assert render("ollama").opener() is None
    assert parsed(render("ollama").token(b" a"))["choices"][0]["delta"]["role"] == "assistant"


def test_the_finish_reason_has_its_own_event_but_with_vllm():
    assert render("vllm").finish("stop", USAGE, last=True) is None
    for shape in ("sglang", "llamacpp", "ollama", "openai"):
        event = render(shape).finish("stop", USAGE, last=False)
        assert event is not None
        assert parsed(event)["choices"][0] == {
            **parsed(event)["choices"][0],
            "delta": {},
            "finish_reason": "stop",
        }


def test_llamacpp_puts_its_timings_on_the_last_event():
    out = render("llamacpp")
    assert "timings" in parsed(out.usage(USAGE))
    last, not_last = out.finish("stop", USAGE, last=True), out.finish("stop", USAGE, last=False)
    assert last is not None
    assert not_last is not None
    assert "timings" in parsed(last)
    assert "timings" not in parsed(not_last)
    text = render("llamacpp", chat=False).finish("stop", USAGE, last=False)
    assert text is not None
    assert parsed(text)["usage"]["completion_tokens"] == 5


def test_timings_count_uncached_tokens_and_leave_the_first_out():
    timings = timings_dict(USAGE)
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (4, 6, 5)
    assert timings["prompt_per_second"] == pytest.approx(200)
    assert timings["predicted_per_second"] == pytest.approx(100)


def test_continuous_usage_is_on_every_token():
    event = render("vllm", continuous=True).token(b" a", usage=Usage(10, 3))
    assert parsed(event)["usage"] == {
        "prompt_tokens": 10,
        "total_tokens": 13,
        "completion_tokens": 3,
    }
    assert "usage" not in parsed(render("vllm").token(b" a", usage=Usage(10, 3)))


@pytest.mark.parametrize("channel", ["reasoning", "tool"])
@pytest.mark.parametrize("shape", SHAPES)
def test_other_channels_carry_the_text_elsewhere(shape: str, channel: str):
    delta = parsed(render(shape).token(b" x", channel=channel))["choices"][0]["delta"]
    assert not delta.get("content")
    assert " x" in json.dumps(delta)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("channel", ["content", "reasoning", "tool"])
def test_a_whole_answer_says_the_same_at_once(shape: str, channel: str):
    body = json.loads(render(shape).whole(b" a b", "stop", USAGE, channel))
    assert body["choices"][0]["finish_reason"] == "stop"
    assert " a b" in json.dumps(body["choices"][0]["message"])
    assert body["usage"]["total_tokens"] == 15
    assert ("timings" in body) is (shape == "llamacpp")
    text = json.loads(render(shape, chat=False).whole(b" a b", "stop", USAGE))
    assert text["choices"][0]["text"] == " a b"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_of_any_name_gives_json(shape):
    name = 'a "quoted" \\ name'
    made = Render(SHAPES[shape], Ids("id-1", 1, name, chat=True), continuous_usage=False)
    chunk = parsed(made.token(b" word"))
    assert chunk["model"] == name

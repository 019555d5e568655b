from __future__ import annotations

import json
from typing import Any

import pytest

from concbench.reference.http import Reply
from concbench.reference.main import parse
from concbench.reference.order import Order, read_order
from concbench.reference.server import Server
from tests.reference.client import chat_body


def read(body: Any, *argv: str, chat: bool = True) -> Order | Reply:
    server = Server(parse(list(argv)))
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return read_order(server.state, data, chat=chat)
    finally:
        server.net.close()


def order(body: Any, *argv: str, chat: bool = True) -> Order:
    found = read(body, *argv, chat=chat)
    assert isinstance(found, Order)
    return found


def refused(body: Any, *argv: str, chat: bool = True) -> tuple[int, str]:
    found = read(body, *argv, chat=chat)
    assert isinstance(found, Reply)
    return found.status, found.body.decode()


def test_prompts_are_counted_with_the_template_in_chat_only():
    assert order(chat_body(words=5)).prompt_tok == 17
    assert order({"prompt": "a b c"}, chat=False).prompt_tok == 3
    assert order({"prompt": [4, 5, 6, 7]}, chat=False).prompt_tok == 4
    assert order({"prompt": [[4, 5]]}, chat=False).prompt_tok == 2
    assert order({"prompt": ["a b"]}, chat=False).prompt_tok == 2


def test_the_same_prompt_gets_the_same_text_and_another_not():
    assert order(chat_body(words=5)).offset == order(chat_body(words=5, max_tokens=9)).offset
    assert order(chat_body(words=5)).offset != order(chat_body(words=6)).offset


def test_lengths():
    assert order(chat_body(max_tokens=7)).output_tok == 7
    assert order(chat_body(max_tokens=7, max_completion_tokens=3)).output_tok == 3
    assert order({"prompt": "a"}, chat=False).output_tok == 16
    assert order({"prompt": "a"}, "--persona", "llamacpp", chat=False).output_tok == 8191
    assert order({"messages": []}).output_tok == 8192 - 12


@pytest.mark.parametrize(
    ("fields", "persona", "expected"),
    [
        ({}, "vllm", (5, "stop")),
        ({"ignore_eos": True}, "vllm", (20, "length")),
        ({"min_tokens": 9}, "vllm", (9, "stop")),
        ({"min_tokens": 30}, "vllm", (20, "length")),
        ({"ignore_eos": True}, "ollama", (5, "stop")),
    ],
)
def test_eos(fields: dict[str, Any], persona: str, expected: tuple[int, str]):
    found = order(chat_body(max_tokens=20, **fields), "--eos-at", "5", "--persona", persona)
    assert (found.output_tok, found.reason) == expected


@pytest.mark.parametrize(
    ("policy", "options", "expected"),
    [
        ("as-asked", None, (False, False)),
        ("as-asked", {"include_usage": True}, (True, False)),
        ("as-asked", {"include_usage": True, "continuous_usage_stats": True}, (True, True)),
        ("as-asked", {"continuous_usage_stats": True}, (False, False)),
        ("final", None, (True, False)),
        ("continuous", None, (True, True)),
        ("none", {"include_usage": True}, (False, False)),
    ],
)
def test_usage_policies(policy: str, options: Any, expected: tuple[bool, bool]):
    found = order(chat_body(stream_options=options), "--usage", policy)
    assert (found.include_usage, found.continuous_usage) == expected


def test_llamacpp_knows_no_continuous_usage():
    asked = {"include_usage": True, "continuous_usage_stats": True}
    found = order(chat_body(stream_options=asked), "--persona", "llamacpp")
    assert (found.include_usage, found.continuous_usage) == (True, False)


def test_too_long_in_each_engines_words():
    body = chat_body(words=100, max_tokens=4)
    status, text = refused(body, "--context", "64")
    assert status == 400
    assert "maximum context length is 64 tokens" in text
    status, text = refused(chat_body(max_tokens=60), "--context", "64")
    assert "you requested 60 output tokens" in text
    status, text = refused(body, "--context", "64", "--persona", "llamacpp")
    assert json.loads(text)["error"]["type"] == "exceed_context_size_error"
    assert json.loads(text)["error"]["n_prompt_tokens"] == 112
    assert json.loads(refused(body, "--context", "64", "--persona", "sglang")[1])["code"] == 400


def test_llamacpp_clamps_the_output_and_ollama_the_prompt():
    clamped = order(chat_body(max_tokens=60), "--context", "64", "--persona", "llamacpp")
    assert (clamped.prompt_tok, clamped.output_tok) == (15, 49)
    cut = order(chat_body(words=100), "--context", "64", "--persona", "ollama")
    assert (cut.prompt_tok, cut.output_tok) == (63, 1)


def test_wrong_models_are_refused_where_the_engine_does():
    assert refused(chat_body(model="x"))[0] == 404
    assert order(chat_body(model="x"), "--persona", "llamacpp")
    assert order(chat_body(model=None))


@pytest.mark.parametrize(
    "body", [b"{", b"[]", {"messages": "no list"}, {"prompt": "x"}, chat_body(n=2)]
)
def test_bad_bodies_are_refused(body: Any):
    assert refused(body)[0] == 400


@pytest.mark.parametrize("prompt", [None, 5, [], ["a", "b"], [1.5]])
def test_bad_prompts_are_refused(prompt: Any):
    assert refused({"prompt": prompt}, chat=False)[0] == 400


def test_cached_tokens():
    assert order(chat_body(words=5), "--cached-tok", "9").cached_tok == 9
    assert order(chat_body(words=5), "--cached-tok", "900").cached_tok == 17
    off = chat_body(words=5, cache_prompt=False)
    assert order(off, "--cached-tok", "9", "--persona", "llamacpp").cached_tok == 0


def test_the_prefix_cache_answers_repeats():
    server = Server(parse(["--prefix-cache"]))
    try:
        counts = []
        for words in (52, 52, 40):
            data = json.dumps(chat_body(words=words)).encode()
            found = read_order(server.state, data, chat=True)
            assert isinstance(found, Order)
            counts.append(found.cached_tok)
    finally:
        server.net.close()
    assert counts == [0, 48, 48]

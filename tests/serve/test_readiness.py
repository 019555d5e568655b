"""Ready is a token, not a port (llama-swap#92, #225: 502 and 504 while a model loads)."""

from __future__ import annotations

import json

import pytest

from concbench.errors import NotReady, Refused, WrongModel, WrongPath
from concbench.serve.http import Access
from concbench.serve.probe import attach
from concbench.serve.readiness import wait_for_token
from tests.serve.server import Reply, models, serving, token

CHAT = "/v1/chat/completions"


def waiting(replies, *, deadline_s=10.0, alive=None, endpoint="chat", path=CHAT):
    """Wait for a token from a server that gives these replies in turn, then the last for ever."""
    left = list(replies)
    script = {
        "/v1/models": models("m"),
        path: lambda _: left.pop(0) if len(left) > 1 else left[0],
    }
    with serving(script) as s:
        attached = attach(s.url, Access(timeout_s=2))
        try:
            return wait_for_token(attached, deadline_s, alive, endpoint), s.asked
        finally:
            waiting.asked = [one for one in s.asked if one.path == path]


def test_a_loading_server_is_waited_for():
    first, _ = waiting([Reply(503), Reply(502), Reply(504), Reply(429), Reply(500), token()])
    assert first.attempts == 6
    assert 0 < first.first_request_ns < first.waited_ns


def test_one_token_is_asked_for():
    waiting([token()])
    body = json.loads(waiting.asked[0].body)
    assert (body["max_tokens"], body["model"], body["stream"]) == (1, "m", False)
    assert body["messages"]


def test_completions():
    waiting(
        [Reply(body={"choices": [{"text": "x"}]})],
        endpoint="completions",
        path="/v1/completions",
    )
    assert json.loads(waiting.asked[0].body)["prompt"]


def test_reasoning_is_a_token_too():
    reply = Reply(body={"choices": [{"message": {"content": None, "reasoning": "Hm"}}]})
    assert waiting([reply])[0].attempts == 1


def test_a_first_token_that_prints_as_nothing_is_asked_again():
    first, _ = waiting([token("", None), token("Hello", None)])
    assert first.attempts == 2
    assert json.loads(waiting.asked[1].body)["max_tokens"] > 1


def test_an_answer_without_a_token_is_not_ready():
    with pytest.raises(NotReady, match="without a token"):
        waiting([token("", None)])


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (Reply(401), Refused, "--api-key-env"),
        (Reply(404, {"error": {"message": "The model `m` does not exist."}}), WrongModel, "'m'"),
        (Reply(400, {"error": {"message": "model not found"}}), WrongModel, "not found"),
        (Reply(404), WrongPath, "chat/completions answered 404"),
        (Reply(400, {"message": "no chat template"}), NotReady, "--endpoint completions"),
        (Reply(500, {"error": {"message": "engine dead"}}), NotReady, "engine dead"),
    ],
)
def test_what_waiting_cannot_mend_ends_at_once(reply, error, says):
    with pytest.raises(error, match=says):
        waiting([reply], deadline_s=60)


def test_a_path_may_be_missing_while_an_engine_of_ours_starts():
    first, _ = waiting([Reply(404), Reply(404), token()], alive=lambda: None)
    assert first.attempts == 3


def test_a_dead_child_is_an_error_at_once():
    with pytest.raises(NotReady, match="it fell over"):
        waiting([Reply(503)], deadline_s=60, alive=lambda: "it fell over")


def test_the_deadline_names_the_last_answer():
    with pytest.raises(NotReady, match=r"no token in 0\.1 s; last: 503 Loading model"):
        waiting([Reply(503, {"error": {"message": "Loading model"}})], deadline_s=0.1)

from __future__ import annotations

import pytest

from concbench.engines.spec import Fact
from concbench.errors import (
    NotReady,
    Refused,
    Unreachable,
    UsageError,
    WrongModel,
    WrongPath,
)
from concbench.serve.http import Access
from concbench.serve.ports import free_port
from concbench.serve.probe import attach, await_attached, choose_model
from tests.serve.server import Reply, models, serving

ACCESS = Access(timeout_s=2)
VLLM = {"/version": Reply(body={"version": "0.32.0"}), "/v1/models": models("org/thing")}


def test_a_server_is_met_and_described():
    with serving(VLLM) as s:
        met = attach(f"{s.url}/v1/", ACCESS, lane="mine")
    assert met.spec.name == "vllm"
    assert (met.root, met.api_prefix, met.model) == (s.url, "/v1", "org/thing")
    assert (met.facts.lane, met.facts.engine, met.facts.base_url) == ("mine", "vllm", s.url)
    assert met.facts.facts_from["model"] == "endpoint"
    assert met.facts.launch is None


def test_something_openai_like_is_met_as_such():
    with serving({"/v1/models": models("m")}) as s:
        assert attach(s.url, ACCESS).spec.name == "openai"


def test_another_prefix_is_kept():
    with serving({"/v4/models": models("m")}) as s:
        met = attach(f"{s.url}/v4/chat/completions", ACCESS)
        assert (met.api_prefix, met.model) == ("/v4", "m")


def test_a_named_engine_is_believed():
    with serving({"/v1/models": models("m")}) as s:
        assert attach(s.url, ACCESS, engine="vllm").spec.name == "vllm"
        with pytest.raises(UsageError, match="did you mean 'vllm'"):
            attach(s.url, ACCESS, engine="vlm")


def test_several_models_must_be_chosen_from():
    with serving({"/v1/models": models("a", "b")}) as s:
        with pytest.raises(UsageError, match=r"--model from a, b"):
            attach(s.url, ACCESS)
        assert attach(s.url, ACCESS, model="b").model == "b"


def test_a_missing_model_names_what_is_there_and_the_nearest():
    with (
        serving({"/v1/models": models("org/Qwen3-8B", "org/Llama")}) as s,
        pytest.raises(WrongModel, match=r"it has org/Qwen3-8B, org/Llama; the nearest is org/Qw"),
    ):
        attach(s.url, ACCESS, model="qwen3-8b-fp8")


def test_a_server_without_models():
    with (
        serving({"/v1/models": models()}) as s,
        pytest.raises(WrongModel, match="serves no model"),
    ):
        attach(s.url, ACCESS)


def test_names_a_model_goes_by():
    offers = {"long/path.gguf": ("short",), "qwen3:latest": ()}
    assert choose_model(offers, "short", "x") == "long/path.gguf"
    assert choose_model(offers, "qwen3", "x") == "qwen3:latest"


def test_without_a_list_the_facts_or_the_person_say():
    assert choose_model(None, None, "x", Fact("m", "endpoint:/info")) == "m"
    assert choose_model(None, "mine", "x") == "mine"
    with pytest.raises(UsageError, match="--model"):
        choose_model(None, None, "x")


def test_nobody_there():
    with pytest.raises(Unreachable, match="connection refused"):
        attach(f"http://127.0.0.1:{free_port()}", ACCESS)
    with pytest.raises(Unreachable, match="no such host"):
        attach("http://nowhere.invalid", ACCESS)


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_is_wanted(status):
    with (
        serving({"/v1/models": Reply(status)}) as s,
        pytest.raises(Refused, match="--api-key-env"),
    ):
        attach(s.url, ACCESS)


def test_404_prints_the_url_called_and_the_right_one():
    with (
        serving({"/v1/models": models("m")}) as s,
        pytest.raises(WrongPath, match=rf"{s.url}/openai/v1/models answered 404; {s.url}/v1 does"),
    ):
        attach(f"{s.url}/openai/v1", ACCESS)
    with (
        serving({"/api/v1/models": models("m")}) as s,
        pytest.raises(WrongPath, match=f"{s.url}/api/v1 does answer"),
    ):
        attach(s.url, ACCESS)
    with serving({}) as s, pytest.raises(WrongPath, match="answered 404"):
        attach(s.url, ACCESS)


@pytest.mark.parametrize("body", [b"<html>hello</html>", b'{"a": 1}', b"[", b""])
def test_a_web_page_is_no_llm_server(body):
    page = Reply(body=body, headers={"Content-Type": "text/html; charset=utf-8"})
    with (
        serving({"/v1/models": page}) as s,
        pytest.raises(WrongPath, match="not an LLM server: it answered text/html"),
    ):
        attach(s.url, ACCESS)


def test_a_redirect_tells_the_address_to_use():
    moved = Reply(301, b"", {"Location": "https://elsewhere/v1"})
    with (
        serving({"/v1/models": moved}) as s,
        pytest.raises(WrongPath, match="redirects to https://elsewhere/v1"),
    ):
        attach(s.url, ACCESS)


def test_a_loading_server_is_not_ready_or_waited_for():
    answers = [Reply(503), Reply(502), models("m")]
    with serving({"/v1/models": Reply(503, {"error": {"message": "Loading model"}})}) as s:
        with pytest.raises(NotReady, match="loading"):
            attach(s.url, ACCESS)
        with pytest.raises(NotReady, match="Loading model"):
            await_attached(s.url, ACCESS, deadline_s=0.05)
    script = {"/v1/models": lambda _: answers.pop(0) if len(answers) > 1 else answers[0]}
    with serving(script) as s:
        met = await_attached(s.url, ACCESS, deadline_s=10)
    assert met.attached.model == "m"
    assert 0 < met.listening_ns < met.ready_ns


def test_a_foreign_server_that_is_not_there_is_not_waited_for():
    with pytest.raises(Unreachable):
        await_attached(f"http://127.0.0.1:{free_port()}", ACCESS, deadline_s=60)


def test_the_death_of_a_started_server_ends_the_wait():
    lives = iter([None, None, "the engine ended with exit code 1"])
    with pytest.raises(NotReady, match="exit code 1"):
        await_attached(
            f"http://127.0.0.1:{free_port()}", ACCESS, deadline_s=60, alive=lambda: next(lives)
        )

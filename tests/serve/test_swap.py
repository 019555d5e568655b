"""llama-swap and llama.cpp's router: loading and unloading, timed apart from any request."""

from __future__ import annotations

import json

import pytest

from concbench.errors import NotReady, UsageError
from concbench.serve.http import Access
from concbench.serve.probe import attach
from concbench.serve.swap import (
    inflight_limit,
    kind_of,
    load,
    loaded,
    ready_model,
    swap_to,
    unload,
)
from tests.serve.server import Reply, models, serving, token
from tests.servers import reference_server


class Proxy:
    """llama-swap with two models, one at a time; `polls` is how long a load takes, in questions."""

    def __init__(self, *, sticky: bool = False, polls: int = 2) -> None:
        self.up: str | None = "a"
        self.wait = 0
        self.polls = polls
        self.sticky = sticky

    def running(self, _: object) -> Reply:
        self.wait = max(0, self.wait - 1)
        state = "starting" if self.wait else "ready"
        row = {"model": self.up, "state": state, "cmd": "llama-server -m x.gguf -np 3", "ttl": 0}
        return Reply(body={"running": [row] if self.up else []})

    def unload(self, _: object) -> Reply:
        self.up = self.up if self.sticky else None
        return Reply(body=b"OK")

    def health(self, asked: object) -> Reply:
        self.up, self.wait = asked.path.split("/")[2], self.polls  # type: ignore[attr-defined]
        return Reply(body={"status": "ok"})

    def script(self) -> dict[str, object]:
        listing = models("a", "b")
        for card in listing.body["data"]:
            card |= {"owned_by": "llama-swap", "meta": {"llamaswap": {}}}
        behind = {
            "default_generation_settings": {"n_ctx": 512},
            "total_slots": 3,
            "build_info": "b9",
            "model_ftype": "Q4_0",
        }
        pages = {
            "/v1/models": listing,
            "/running": self.running,
            "/unload": self.unload,
            "/v1/chat/completions": token(),
        }
        for name in ("a", "b"):
            pages |= {
                f"/api/models/unload/{name}": self.unload,
                f"/upstream/{name}/health": self.health,
                f"/upstream/{name}/props": Reply(body=behind),
                f"/upstream/{name}/v1/models": models(name),
            }
        return pages


class Router:
    """llama.cpp's router with two models."""

    def __init__(self, *, fails: bool = False) -> None:
        self.states = {"a": "loaded", "b": "unloaded"}
        self.fails = fails

    def listing(self, _: object) -> Reply:
        cards = [{"id": name, "status": {"value": state}} for name, state in self.states.items()]
        for name, state in self.states.items():
            self.states[name] = {"loading": "failed" if self.fails else "loaded"}.get(state, state)
        return Reply(body={"data": cards})

    def change(self, state: str):
        def page(asked: object) -> Reply:
            self.states[json.loads(asked.body)["model"]] = state  # type: ignore[attr-defined]
            return Reply(body={"success": True})

        return page

    def script(self) -> dict[str, object]:
        told = {"default_generation_settings": {"n_ctx": 256}, "total_slots": 2}
        return {
            "/v1/models": models("a", "b"),
            "/models": self.listing,
            "/props": Reply(body={"role": "router", "models_autoload": False, "build_info": "b1"}),
            "/props?model=b&autoload=false": Reply(body=told),
            "/models/load": self.change("loading"),
            "/models/unload": self.change("unloaded"),
            "/v1/chat/completions": token(),
        }


def test_a_swap_behind_llama_swap_is_timed_step_by_step():
    proxy = Proxy()
    with serving(proxy.script()) as server:
        met = attach(server.url, Access(), "a")
        assert kind_of(met) == "llama-swap"
        assert loaded(met) == ["a"]
        chosen, took = swap_to(met, "b")
        assert proxy.up == "b"
        posts = [asked.path for asked in server.asked if asked.method == "POST"]
    assert chosen.model == "b"
    assert (took.model, took.before, took.note) == ("b", ["a"], None)
    assert took.unload_s >= 0
    assert took.load_s >= 0.05
    assert took.total_s >= took.unload_s + took.load_s + took.first_token_s
    # The model was loaded before anything asked for tokens.
    assert posts == ["/api/models/unload/a", "/v1/chat/completions"]


def test_one_that_stays_listed_is_said_so(monkeypatch):
    monkeypatch.setattr("concbench.serve.swap.UNLOAD_DEADLINE_S", 0.1)
    with serving(Proxy(sticky=True).script()) as server:
        met = attach(server.url, Access(), "a")
        assert unload(met, "a") is None
        _, took = swap_to(met, "b")
    assert took.unload_s is None
    assert took.note == "a stayed listed as loaded"


def test_an_older_release_only_unloads_all():
    proxy = Proxy()
    script = proxy.script()
    del script["/api/models/unload/a"]
    with serving(script) as server:
        assert unload(attach(server.url, Access(), "a"), "a") is not None
    assert proxy.up is None


def test_the_model_is_loaded_and_described_before_it_is_measured():
    with serving(Proxy().script()) as server:
        met = ready_model(attach(server.url, Access(), "b"), Access(), 10)
    assert (met.facts.slots, met.facts.quantization) == (3, "Q4_0")
    assert met.facts.engine == "llama-swap"
    assert met.extra["upstream_engine"] == "llamacpp"
    assert met.extra["upstream_version"] == "b9"
    assert met.extra["model_load_s"] > 0
    sources = met.facts.facts_from
    assert (sources["model_load_s"], sources["inflight_limit"]) == ("measured", "default")
    assert sources["upstream_engine"] == "endpoint"
    assert met.extra["inflight_limit"] == 10
    assert met.model == "b"


def test_the_router_is_driven_the_same_way():
    router = Router()
    with serving(router.script()) as server:
        met = attach(server.url, Access(), "b")
        assert kind_of(met) == "router"
        _, took = swap_to(met, "b")
        described = ready_model(met, Access(), 10)
    assert router.states == {"a": "unloaded", "b": "loaded"}
    assert (took.before, took.note) == (["a"], None)
    assert described.facts.slots == 2
    assert inflight_limit(described) is None


def test_a_load_that_fails_says_so():
    with (
        serving(Router(fails=True).script()) as server,
        pytest.raises(NotReady, match="b is failed after loading it"),
    ):
        load(attach(server.url, Access(), "b"), "b", 10)


def test_a_server_with_one_model_has_nothing_to_swap():
    with serving({"/v1/models": models("only")}) as server:
        met = attach(server.url, Access())
        assert ready_model(met, Access(), 10) is met
        with pytest.raises(UsageError, match=r"only llama-swap and llama\.cpp's router"):
            swap_to(met, "other")


def test_the_persona_of_the_known_truth_server():
    words = ("--persona", "llama-swap", "--model", "m", "--also-model", "n", "--swap-load-s", "0.3")
    with reference_server(*words) as url:
        met = ready_model(attach(url, Access(), "m"), Access(), 10)
        assert kind_of(met) == "llama-swap"
        assert met.extra["upstream_engine"] == "llamacpp"
        assert met.extra["model_load_s"] < 0.3
        assert inflight_limit(met).source == "default"
        chosen, took = swap_to(met, "n")
        assert (took.before, took.note) == (["m"], None)
        assert took.load_s >= 0.3
        assert loaded(chosen) == ["n"]
        assert unload(chosen) is not None
        assert loaded(chosen) == []
        with pytest.raises(NotReady, match="could not load other"):
            load(met, "other", 1)

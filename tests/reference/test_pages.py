from __future__ import annotations

import json
import math
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from concbench.clock import now_ns, sleep_s
from concbench.errors import UsageError
from concbench.reference.main import parse
from concbench.reference.personas import PERSONAS
from tests.reference.client import Client, chat_body, connected, serving

PATHS = {
    "vllm": ["/v1/models", "/health", "/version", "/load", "/server_info", "/metrics"],
    "sglang": ["/v1/models", "/health", "/server_info", "/get_server_info", "/model_info"],
    "llamacpp": ["/v1/models", "/health", "/props", "/slots", "/metrics"],
    "llama-swap": [
        "/v1/models",
        "/health",
        "/running",
        "/api/version",
        "/metrics",
        "/upstream/reference/props",
        "/upstream/reference/metrics",
    ],
    "ollama": ["/", "/v1/models", "/api/ps", "/api/tags", "/api/version"],
    "openai": ["/v1/models"],
}


@pytest.mark.parametrize("persona", PERSONAS)
def test_each_engine_has_its_own_pages_and_no_others(persona: str):
    everything = {path for paths in PATHS.values() for path in paths}
    with connected("--persona", persona, "--model", "reference") as client:
        for path in PATHS[persona]:
            assert client.call("GET", path).status == 200, path
        models = client.call("GET", "/v1/models").json()["data"]
        assert [model["id"] for model in models] == ["reference"]
        answers = {path: client.call("GET", path) for path in everything - set(PATHS[persona])}
    also = {"sglang": {"/metrics"}}.get(persona, set())
    assert {path for path, got in answers.items() if got.status == 200} == also


def test_server_headers_give_the_engine_away():
    for persona, server in (("llamacpp", "llama.cpp"), ("vllm", "uvicorn")):
        with connected("--persona", persona) as client:
            assert client.call("GET", "/health").headers["server"] == server
            assert client.chat().headers["server"] == server


def page(client: Client, path: str = "/metrics") -> dict[str, list[Any]]:
    text = client.call("GET", path).body.decode()
    out: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            out.setdefault(sample.name, []).append(sample)
    return out


def value(samples: dict[str, list[Any]], name: str, **labels: str) -> float:
    (found,) = [s for s in samples[name] if all(s.labels.get(k) == v for k, v in labels.items())]
    return float(found.value)


def test_vllms_page_balances():
    with connected("--cached-tok", "5", "--kv-tokens", "16384") as client:
        before = page(client)
        client.chat(words=8, max_tokens=10)
        client.chat(words=8, max_tokens=6)
        after = page(client)
    assert value(before, "vllm:generation_tokens_total") == 0
    assert value(after, "vllm:generation_tokens_total", model_name="reference", engine="0") == 16
    assert value(after, "vllm:prompt_tokens_total") == 40
    assert value(after, "vllm:prefix_cache_queries_total") == 40
    assert value(after, "vllm:prefix_cache_hits_total") == 10
    assert value(after, "vllm:request_success_total", finished_reason="length") == 2
    assert value(after, "vllm:num_requests_running") == 0
    assert value(after, "vllm:num_requests_waiting") == 0
    assert value(after, "vllm:num_preemptions_total") == 0
    config = after["vllm:cache_config_info"][0].labels
    assert int(config["block_size"]) * int(config["num_gpu_blocks"]) == 16384
    for name in ("time_to_first_token_seconds", "request_queue_time_seconds"):
        assert value(after, f"vllm:{name}_count") == 2
        buckets = [s.value for s in after[f"vllm:{name}_bucket"]]
        assert buckets == sorted(buckets)
        assert buckets[-1] == 2
    assert value(after, "vllm:time_to_first_token_seconds_sum") == pytest.approx(0.002)


@pytest.mark.parametrize("persona", ["vllm", "sglang"])
def test_gauges_show_what_runs_and_waits(persona: str):
    names = {
        "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
        "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    }[persona]
    argv = ("--persona", persona, "--slots", "2", "--ttft-ms", "150")
    with serving(*argv) as server:
        clients = [Client(server.port) for _ in range(3)]
        for client in clients:
            client.send("POST", "/v1/chat/completions", chat_body())
        other = Client(server.port)
        while (samples := page(other)) and value(samples, names[1]) < 1:
            pass
        assert value(samples, names[0]) == 2
        for client in clients:
            assert client.receive().complete
            client.close()
        other.close()


def test_llamacpps_page_and_slots():
    argv = ("--persona", "llamacpp", "--slots", "2", "--context", "1024", "--ttft-ms", "100")
    with serving(*argv) as server:
        busy, other = Client(server.port), Client(server.port)
        assert math.isnan(value(page(other), "llamacpp:n_busy_slots_per_decode"))
        busy.send("POST", "/v1/chat/completions", chat_body(words=4, max_tokens=9))
        while not any(s["is_processing"] for s in other.call("GET", "/slots").json()):
            pass
        slots = other.call("GET", "/slots").json()
        assert [slot["n_ctx"] for slot in slots] == [1024, 1024]
        assert slots[0]["n_prompt_tokens"] == 16
        assert busy.receive().complete
        samples = page(other)
        props = other.call("GET", "/props").json()
        busy.close()
        other.close()
    assert value(samples, "llamacpp:tokens_predicted_total") == 9
    assert value(samples, "llamacpp:prompt_tokens_total") == 16
    assert value(samples, "llamacpp:tokens_predicted_seconds_total") == pytest.approx(0.008)
    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (2, 1024)


def test_sglangs_total_moves_at_the_end_and_its_realtime_one_at_each_step():
    with connected("--persona", "sglang", "--kv-tokens", "9000") as client:
        client.chat(max_tokens=7)
        samples = page(client)
        info = client.call("GET", "/get_server_info").json()
    assert value(samples, "sglang:generation_tokens_total") == 7
    assert value(samples, "sglang:realtime_tokens_total", mode="decode") == 7
    assert value(samples, "sglang:max_total_num_tokens") == 9000
    assert info["max_total_num_tokens"] == 9000


def test_llama_swap_reaches_the_engine_upstream():
    with connected("--persona", "llama-swap") as client:
        got = client.call("POST", "/upstream/reference/v1/chat/completions", chat_body())
        assert len(got.text().split()) == 4
        samples = page(client, "/upstream/reference/metrics")
        assert value(samples, "llamacpp:tokens_predicted_total") == 4
        assert client.call("GET", "/running").json()["running"][0]["state"] == "ready"


def test_tokenizers_agree_with_usage():
    prompt = "the quick brown fox"
    with connected() as client:
        asked = {"model": "reference", "prompt": prompt}
        got = client.call("POST", "/tokenize", asked).json()
        assert (got["count"], got["max_model_len"], len(got["tokens"])) == (4, 8192, 4)
        back = client.call("POST", "/detokenize", {"tokens": got["tokens"]}).json()
        assert back == {"prompt": prompt}
        messages = [{"role": "user", "content": prompt}]
        chat = client.call("POST", "/tokenize", {"messages": messages}).json()
        usage = client.chat(messages=messages, stream=False).json()["usage"]
        assert chat["count"] == usage["prompt_tokens"] == 16
        for bad in ({}, {"prompt": 5}, []):
            assert client.call("POST", "/tokenize", bad).status == 400
    with connected("--persona", "llamacpp") as client:
        tokens = client.call("POST", "/tokenize", {"content": prompt, "add_special": True}).json()
        assert len(tokens["tokens"]) == 4
        back = client.call("POST", "/detokenize", {"tokens": tokens["tokens"]}).json()
        assert back == {"content": prompt}
        assert client.call("POST", "/detokenize", {"tokens": "x"}).status == 400
        template = client.call("POST", "/apply-template", {"messages": messages}).json()
        assert len(template["prompt"].split()) == 16


def test_the_cache_is_reset_only_when_nothing_runs():
    with connected("--prefix-cache") as client:
        for expected in (0.0, 48.0):
            client.chat(words=60, max_tokens=1)
            hits = value(page(client), "vllm:prefix_cache_hits_total")
            assert hits >= expected
        assert client.call("POST", "/reset_prefix_cache").json() == {"success": True}
        client.chat(words=60, max_tokens=1)
        assert value(page(client), "vllm:prefix_cache_hits_total") == hits


@pytest.mark.parametrize("persona", PERSONAS)
def test_refusals_are_json(persona: str):
    with connected("--persona", persona, "--api-key", "k") as client:
        got = client.chat()
        assert got.status == 401
        assert json.loads(got.body)
        bad = client.call("POST", "/v1/chat/completions", [], Authorization="Bearer k")
        assert bad.status == 400
        assert json.loads(bad.body)


def test_llama_swap_loads_what_is_asked_for_and_lets_it_go():
    words = ("--persona", "llama-swap", "--model", "a", "--also-model", "b", "--swap-load-s", "0.2")
    with connected(*words) as client:

        def held() -> dict[str, str]:
            rows = client.call("GET", "/running").json()["running"]
            return {row["model"]: row["state"] for row in rows}

        assert held() == {"a": "ready"}
        got = client.chat(model="b", stream=False).json()
        assert got["model"] == "b"
        assert held() == {"b": "ready"}
        cards = client.call("GET", "/v1/models").json()["data"]
        assert {card["id"]: card["status"]["value"] for card in cards} == {
            "a": "unloaded",
            "b": "loaded",
        }
        assert client.call("POST", "/api/models/unload/a").status == 200
        assert held() == {"b": "ready"}
        assert client.call("POST", "/api/models/unload/c").status == 404
        assert client.call("POST", "/api/models/unload/b").status == 200
        assert held() == {}
        began_ns = now_ns()
        assert client.call("GET", "/upstream/a/health").status == 200
        assert now_ns() - began_ns >= 200_000_000
        assert client.call("GET", "/unload").body == b"OK"
        assert held() == {}
        assert client.chat(model="c").status == 404
        assert held() == {}


def test_llama_swap_lets_an_idle_model_go_after_its_ttl():
    with connected("--persona", "llama-swap", "--ttl-s", "0.05") as client:
        client.chat(max_tokens=3)
        for _ in range(200):
            if not client.call("GET", "/running").json()["running"]:
                break
            sleep_s(0.02)
        else:
            pytest.fail("the model is still held")


def test_models_on_demand_are_llama_swaps_alone():
    with pytest.raises(UsageError, match="are of --persona llama-swap"):
        parse(["--persona", "vllm", "--ttl-s", "5"])


@pytest.mark.parametrize("persona", ["vllm", "sglang"])
def test_a_model_of_any_name_is_a_label(persona: str):
    name = 'a "quoted" \\ name'
    with connected("--persona", persona, "--model", name) as client:
        client.chat()
        named = [s for found in page(client).values() for s in found if "model_name" in s.labels]
    assert named
    assert {sample.labels["model_name"] for sample in named} == {name}

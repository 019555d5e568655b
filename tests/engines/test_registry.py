from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.engines.reading import LINE_LIMIT
from concbench.engines.registry import (
    ALL_PROBES,
    ENGINES,
    by_name,
    of_command,
    parse_any_log,
    recognise,
)
from concbench.engines.spec import Answer
from concbench.errors import UsageError
from tests.engines.answers import LLAMACPP, NOTHING, VLLM, answer

MODELS = "/v1/models"


def models(owner, **more):
    return answer({"object": "list", "data": [{"id": "m", "owned_by": owner, **more}]})


REFUSED = answer({"error": "no"}, 401)

RECOGNISED = [
    pytest.param("vllm", VLLM, id="vllm"),
    pytest.param("vllm", {"/version": answer({"version": "0.32"}), MODELS: REFUSED},
                 id="vllm that wants a key"),
    pytest.param("vllm", {"/server_info?config_format=json": answer({"vllm_config": {}})},
                 id="vllm in developer mode"),
    pytest.param("llamacpp", LLAMACPP, id="llamacpp"),
    pytest.param("llamacpp", {MODELS: models("llamacpp")}, id="llamacpp behind a proxy"),
    pytest.param("llamacpp", {"/props": answer("{}", 404, server="llama.cpp")},
                 id="llamacpp by its header"),
    pytest.param(
        "llamacpp",
        {"/props": answer({"error": {"message": "Loading model", "code": 503}}, 503)},
        id="llamacpp while it loads",
    ),
    pytest.param("llamacpp", {"/props": answer({"role": "router", "max_instances": 4})},
                 id="llamacpp router"),
    pytest.param("sglang", {"/server_info": answer({"max_total_num_tokens": 1, "version": "0"})},
                 id="sglang"),
    pytest.param("sglang", {"/get_server_info": answer({"internal_states": []})},
                 id="sglang to 0.5.2"),
    pytest.param("sglang", {"/get_model_info": answer({"model_path": "m", "is_generation": True})},
                 id="sglang model info"),
    pytest.param("sglang", {MODELS: models("sglang")}, id="sglang by owner"),
    pytest.param("sglang", {"/metrics": answer("sglang:num_running_reqs 0\n")},
                 id="sglang by metrics"),
    pytest.param("llama-swap", {"/running": answer({"running": []}), **LLAMACPP},
                 id="llama-swap that lets llamacpp through"),
    pytest.param("llama-swap", {MODELS: models("llama-swap")}, id="llama-swap by owner"),
    pytest.param("llama-swap", {MODELS: models("x", meta={"llamaswap": {"a": 1}})},
                 id="llama-swap by its models"),
    pytest.param(
        "llama-swap",
        {"/running": answer({"running": []}), "/api/version": answer({"version": "v210"})},
        id="llama-swap has an /api/version too",
    ),
    pytest.param(
        "ollama",
        {"/": answer("Ollama is running"), "/api/version": answer({"version": "0.9"})},
        id="ollama",
    ),
    pytest.param("ollama", {"/api/version": answer({"version": "0.9"}), MODELS: models("library")},
                 id="ollama behind a path"),
    pytest.param("trtllm", {"/version": answer({"version": "1.0"}),
                            MODELS: models("tensorrt_llm")}, id="trtllm"),
    pytest.param("trtllm", {"/prometheus/metrics": answer("trtllm_kv_cache_max_blocks 1\n")},
                 id="trtllm by metrics"),
    pytest.param("tgi", {"/info": answer({"model_id": "m", "max_concurrent_requests": 128})},
                 id="tgi"),
    pytest.param("tgi", {"/metrics": answer("tgi_queue_size 0\n")}, id="tgi by metrics"),
    pytest.param("lmstudio", {"/api/v0/models": answer({"data": [{"id": "m", "state": "loaded"}]}),
                              MODELS: models("organization_owner")}, id="lmstudio"),
    pytest.param("openai", {MODELS: models("somebody")}, id="anything else"),
    pytest.param("openai", {MODELS: REFUSED}, id="anything that wants a key"),
    pytest.param("openai", dict.fromkeys(ALL_PROBES, NOTHING), id="nobody"),
    pytest.param("openai", {}, id="nothing asked"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answers"), RECOGNISED)
def test_recognised(name, answers):
    everything = {path: answer("not found", 404) for path in ALL_PROBES}
    assert recognise(answers).name == name
    if answers.get(MODELS) is not None or name != "openai":
        assert recognise({**everything, **answers}).name == name


def test_names_of_the_contract():
    assert set(ENGINES) == {
        "llamacpp", "vllm", "sglang", "llama-swap", "ollama", "trtllm", "tgi", "lmstudio",
        "openai",
    }  # fmt: skip
    assert list(ENGINES)[-1] == "openai"


@pytest.mark.parametrize(
    ("written", "name"),
    [("vllm", "vllm"), ("vLLM", "vllm"), ("llama.cpp", "llamacpp"), ("llama_cpp", "llamacpp"),
     ("llama-server", "llamacpp"), ("llama_swap", "llama-swap"), ("TensorRT-LLM", "trtllm"),
     ("LM Studio", "lmstudio"), ("TGI", "tgi")],
)  # fmt: skip
def test_by_name(written, name):
    assert by_name(written).name == name


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(UsageError, match="did you mean 'vllm'"):
        by_name("vlllm")
    with pytest.raises(UsageError, match="known are llama-swap, "):
        by_name("zzzz")


@pytest.mark.parametrize(
    ("line", "name"),
    [("vllm serve /m", "vllm"),
     ("/opt/venv/bin/python -m vllm.entrypoints.openai.api_server --model m", "vllm"),
     ("docker run --gpus all vllm/vllm-openai:v0.32.0 --model m", "vllm"),
     ("/usr/bin/llama-server -m a.gguf", "llamacpp"),
     ("podman run ghcr/ggml-org/llama.cpp:server-cuda -m a", "llamacpp"),
     ("python -m sglang.launch_server --model-path m", "sglang"),
     ("docker run lmsysorg/sglang:dev sglang serve m", "sglang"),
     ("trtllm-serve m --port 1", "trtllm"), ("ollama serve", "ollama"),
     ("text-generation-launcher --model-id m", "tgi"), ("llama-swap --config c", "llama-swap"),
     ("bash -c 'exec vllm serve m'", "vllm")],
)  # fmt: skip
def test_of_command(line, name):
    engine = of_command(line.split())
    assert engine is not None
    assert engine.name == name


def test_of_an_unknown_command():
    assert of_command(["./my-server", "--port", "1"]) is None


def test_a_proxys_log_carries_other_engines_lines():
    record = parse_any_log("slot x: id  0 | task 5 |       total time =  10.0 ms /    49 tokens")
    assert record is not None
    assert record.values["total_tok"] == 49
    window = parse_any_log("Avg prompt throughput: 1.0 tokens/s, Running: 3 reqs")
    assert window is not None
    assert window.kind == "window"
    assert parse_any_log("nothing") is None


def test_no_probe_generates_loads_or_drains():
    forbidden = ("health", "perf_metrics", "upstream", "load_model", "unload")
    assert not [path for path in ALL_PROBES if any(word in path for word in forbidden)]
    assert len(set(ALL_PROBES)) == len(ALL_PROBES)
    assert "/metrics" not in ENGINES["trtllm"].probes, "a read consumes it"


def test_every_engine_is_complete():
    for engine in ENGINES.values():
        assert engine.start_failures
        assert engine.default_port > 0
        fields = engine.request_fields(True, True)
        assert fields["stream_options"]["include_usage"] is True
        assert ("ignore_eos" in fields) == engine.ignores_eos
        assert "stream_options" not in engine.request_fields(True, False)
        assert "ignore_eos" not in engine.request_fields(False, True)
        assert engine.loading(NOTHING)
        assert engine.loading(answer("", 502))
        assert not engine.loading(answer({}))


def test_fields_that_matter():
    assert ENGINES["llamacpp"].request_fields(True, False) == {
        "cache_prompt": False, "ignore_eos": True,
    }  # fmt: skip
    allowed = {"ignore_eos", "stream_options"}
    assert set(ENGINES["trtllm"].request_fields(True, True)) <= allowed, "others are rejected"


BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([
        b'{"data": 3}', b'{"data": [3, null]}', b'{"data": [{"meta": 4}]}', b"[1]", b"null",
        b'{"running": [1, {"cmd": "a \'b"}]}', b'{"models": [7]}', b'{"models": {}}', b"NaN",
        b'{"internal_states": [1], "dp_size": "x", "max_total_num_tokens": 1e99}',
        b'{"default_generation_settings": [], "total_slots": "many"}', b"[" * 50_000,
        b'{"role": "router"}', b'{"vllm_config": {"model_config": 3}}', b'{"loads": [1]}',
        b'vllm:cache_config_info{block_size="x",num_gpu_blocks="-3"} 1', b"9" * 5000,
    ]),
)  # fmt: skip


@settings(deadline=None)
@given(st.dictionaries(
    st.sampled_from(ALL_PROBES),
    st.builds(Answer, st.sampled_from([0, 200, 404, 503]), st.just({}), BODIES), max_size=5,
))  # fmt: skip
def test_any_answers_are_survived(answers):
    assert recognise(answers).name in ENGINES
    for engine in ENGINES.values():
        known = engine.describe(answers, ["x"], ["y"])
        assert all(fact.value is not None for fact in known.values())
        engine.traps(known, None, {}, None)


KEYS = (
    "data", "running", "models", "version", "loads", "internal_states", "vllm_config", "role",
    "default_generation_settings", "total_slots", "model_id", "dp_size", "max_total_num_tokens",
)  # fmt: skip
ODD = (None, 3, -1.5, 1e99, "x", True, [], {}, [3], ["x"], [None], [{}], [[]], {"a": 1},
       [{"id": 3, "meta": 3, "status": "x", "state": [], "cmd": 7, "details": "x"}])  # fmt: skip


@pytest.mark.parametrize("path", ALL_PROBES)
def test_answers_of_the_wrong_shape_are_survived(path):
    for body in (*ODD, *({key: value} for key in KEYS for value in ODD)):
        answers = {path: answer(body)}
        assert recognise(answers).name in ENGINES
        for engine in ENGINES.values():
            known = engine.describe(answers, None, [])
            assert all(fact.value is not None for fact in known.values())


@pytest.mark.parametrize("piece", ["1", "[GIN] |", "init engine ", "#a: 1, ", "architecture "])
@pytest.mark.parametrize("start", ["", "Decode batch, ", "Avg prompt throughput: 1, "])
def test_a_line_as_long_as_a_prompt_costs_no_more_than_a_long_line(start, piece):
    line = start + piece * (400_000 // len(piece))
    for engine in ENGINES.values():
        assert engine.parse_log(line) == engine.parse_log(line[:LINE_LIMIT])

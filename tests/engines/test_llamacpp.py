from __future__ import annotations

import json

import pytest

from concbench.engines.llamacpp import ENGINE
from tests.engines.answers import LLAMACPP, answer, codes, text_of, values


def start(*words):
    argv = ["llama-server", "-m", "/m/a.gguf", *words]
    return argv, ENGINE.describe({}, argv, [])


def test_facts_of_the_captured_server():
    known = ENGINE.describe(LLAMACPP, None, text_of("llamacpp/server.log").splitlines())
    plain = values(known)
    sampling = plain.pop("sampling_defaults")
    assert sampling["top_k"] == 40
    assert plain == {
        "engine_version": "b0-unknown",
        "model": "/models/SmolLM2-135M-Instruct.Q4_1.gguf",
        "model_path": "/models/SmolLM2-135M-Instruct.Q4_1.gguf",
        "quantization": "Q4_1",
        "parameters": 134515008,
        "weights_bytes": 96576768,
        "slots": 8,
        "max_context_tok": 1024,
        "total_context_tok": 8192,
        "kv_capacity_tok": 8192,
        "trained_context_tok": 8192,
        "kv_unified": False,
        "speculation": "none",
        "metrics_on": True,
        "slots_on": True,
        "sleeping": False,
    }
    assert known["slots"].source == "endpoint:/props"
    assert known["kv_unified"].source == "log"


def test_without_a_log_nobody_says_whether_the_cache_is_shared():
    known = ENGINE.describe(LLAMACPP, None, [])
    assert "kv_unified" not in known
    assert "kv_capacity_tok" not in known


@pytest.mark.parametrize(
    ("words", "slots", "context", "pool", "unified"),
    [
        (["-c", "4096", "-np", "4"], 4, 1024, 4096, False),
        (["-c", "4096", "-np", "3"], 3, 1536, 4608, False),
        (["-c", "4096", "-np", "4", "-kvu"], 4, 4096, 4096, True),
        (["-c", "4096"], 4, 4096, 4096, True),
        (["--ctx-size=65536", "--parallel", "8", "--no-kv-unified"], 8, 8192, 65536, False),
        (["-np", "4", "--kv-unified-per-slot", "2048"], 4, 2048, 8192, True),
        (["-np", "4", "-c", "6000", "--kv-unified-per-slot", "2048"], 4, 2048, 6000, True),
        (["-np", "4", "-c", "0"], 4, None, None, False),
    ],
)
def test_context_of_a_command_line(words, slots, context, pool, unified):
    known = values(start(*words)[1])
    assert known["slots"] == slots
    assert known.get("max_context_tok") == context
    assert known.get("kv_capacity_tok") == pool
    assert known["kv_unified"] is unified


def test_an_older_build_without_a_shared_cache():
    argv = ["llama-server", "-m", "a", "-c", "4096"]
    known = values(ENGINE.describe({"/props": answer({"total_slots": 1})}, argv, []))
    assert known["kv_unified"] is False
    assert known["kv_capacity_tok"] == 4096


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["-ctk", "q8_0", "-ctv", "q8_0"], "kv_cache_dtype", "q8_0"),
        (["-ctk", "q8_0"], "kv_cache_dtype", "q8_0/f16"),
        ([], "kv_cache_dtype", "f16"),
        (["-md", "d.gguf", "--draft-max", "8"], "speculation", "draft k=8"),
        (["-md", "d.gguf"], "speculation_draft", "d.gguf"),
        (["--spec-type", "draft-mtp", "--spec-draft-n-max", "3"], "speculation", "draft-mtp k=3"),
        (["--spec-type", "draft-mtp", "--spec-synth-len", "2.5"], "simulated_acceptance", True),
        (["--spec-type", "draft-mtp", "--spec-synth-len", "-1"], "simulated_acceptance", False),
        ([], "speculation", "none"),
        (["--no-cache-prompt"], "prefix_caching", False),
        (["-a", "x,y"], "model", "x"),
        (["--metrics"], "metrics_on", True),
        ([], "metrics_on", False),
    ],
)
def test_facts_by_flag(words, key, value):
    assert values(start(*words)[1]).get(key) == value


def test_sizes_add_up_over_devices():
    log = [
        "load_tensors:   CPU_Mapped model buffer size =    10.00 MiB",
        "load_tensors:        CUDA0 model buffer size =    20.00 MiB",
        "llama_kv_cache: size =  10.00 MiB (  1024 cells,  6 layers,  4/1 seqs), K (f16):   5.00 "
        "MiB, V (f16):   5.00 MiB",
        "llama_kv_cache: size =  2.00 MiB (   512 cells,  24 layers,  4/1 seqs), K (f16):   1.00 "
        "MiB, V (f16):   1.00 MiB",
    ]
    known = values(ENGINE.describe({}, None, log))
    assert known["weights_bytes"] == 30 << 20
    assert known["kv_bytes"] == 12 << 20
    assert known["kv_capacity_tok"] == 1024, "the cache of the sliding window is no capacity"


ROUTER = {
    "/props": answer({"role": "router", "max_instances": 4, "models_autoload": True}),
    "/models": answer({"data": [
        {"id": "a", "status": {"value": "unloaded"}},
        {"id": "b", "status": {"value": "loaded", "args": ["-np", "2", "-c", "2048"]}},
    ]}),
}  # fmt: skip


def test_router():
    known = values(ENGINE.describe(ROUTER, None, []))
    assert known["router"] is True
    assert known["model"] == "b"
    assert known["loaded"] is True
    assert known["slots"] == 2
    assert known["kv_capacity_tok"] == 2048
    assert "loads_on_demand" in codes(ENGINE.traps(known, None, {}, None))
    off = {**known, "autoload": False}
    assert "loads_on_demand" not in codes(ENGINE.traps(off, None, {}, None))


def test_speculation_is_believed_to_the_slots_and_not_to_the_defaults():
    answers = {
        "/props": answer(
            {"default_generation_settings": {"params": {"speculative.types": "none"}}}
        ),
        "/slots": answer([{"id": 0, "n_ctx": 512, "speculative": True}]),
    }
    line = "I spec common_specu: adding speculative implementation 'ngram-simple'"
    assert ENGINE.describe(answers, None, [])["speculation"].value == "on"
    assert ENGINE.describe(answers, None, [line])["speculation"].value == "ngram-simple"
    argv = ["llama-server", "-m", "a", "-md", "d"]
    assert ENGINE.describe(answers, argv, [])["speculation"].value == "draft"
    answers["/slots"] = answer([{"id": 0, "n_ctx": 512, "speculative": False}])
    assert ENGINE.describe(answers, None, [])["speculation"].value == "none"


def test_loading():
    busy = answer({"error": {"message": "Loading model", "type": "unavailable_error"}}, 503)
    assert ENGINE.loading(busy)
    assert not ENGINE.loading(answer({"error": {"message": "no slot available"}}, 503))
    assert ENGINE.loading(answer("", 504))


@pytest.mark.parametrize(
    ("words", "concurrency", "expected"),
    [
        (["-c", "4096", "-np", "4"], None, {"context_split", "no_metrics"}),
        (["-c", "4096"], None, {"context_shared"}),
        (["-np", "4", "-c", "4096"], 8, {"slots_below_concurrency"}),
        (["--spec-type", "x", "--spec-synth-rates", "0.8,0.5"], None, {"simulated_acceptance"}),
        (["--context-shift"], None, {"context_shift"}),
        (["-nocb"], None, {"no_continuous_batching"}),
        (["--sleep-idle-seconds", "60"], None, {"sleeps_when_idle"}),
        (["--no-slots"], None, {"no_slots_endpoint"}),
    ],
)
def test_traps(words, concurrency, expected):
    argv, known = start(*words)
    assert expected <= codes(ENGINE.traps(known, argv, {}, concurrency))


def test_a_good_lane_has_only_its_split_context():
    argv, known = start("-c", "8192", "-np", "8", "--metrics")
    assert codes(ENGINE.traps(known, argv, {}, 8)) == {"context_split"}


def test_synthetic_acceptance_by_environment_and_log():
    by_env = ENGINE.traps({}, None, {"LLAMA_ARG_SPEC_SYNTH_LEN": "3"}, None)
    assert [(trap.code, trap.group) for trap in by_env] == [("simulated_acceptance", "fatal")]
    log = ["synthetic speculative acceptance is enabled for benchmarking; generated …"]
    known = ENGINE.describe({}, None, log)
    assert codes(ENGINE.traps(known, None, {}, None)) == {"simulated_acceptance"}


def test_context_that_was_shrunk():
    argv = ["llama-server", "-m", "a", "-c", "32768", "-np", "1", "--metrics"]
    props = {"default_generation_settings": {"n_ctx": 8192}, "total_slots": 1}
    known = ENGINE.describe({"/props": answer(props)}, argv, [])
    assert codes(ENGINE.traps(known, argv, {}, 1)) == {"context_reduced"}


def test_props_are_read_from_the_real_answer():
    props = json.loads(LLAMACPP["/props"].body)
    assert {"build_info", "total_slots"} <= set(props)

from __future__ import annotations

import pytest

from concbench.engines.sglang import ENGINE
from tests.engines.answers import answer, codes, values

INFO = {
    "version": "0.5.23", "model_path": "/m/q", "served_model_name": "q", "tp_size": 2,
    "dp_size": 2, "quantization": "modelopt_fp4", "kv_cache_dtype": "fp8_e4m3",
    "context_length": 262144, "speculative_algorithm": "EAGLE",
    "speculative_num_draft_tokens": 4, "speculative_draft_model_path": "/m/d",
    "disable_radix_cache": False, "disable_cuda_graph": False, "cuda_graph_max_bs": 32,
    "max_running_requests": 96, "max_total_num_tokens": 230000, "enable_metrics": True,
    "internal_states": [
        {"effective_max_running_requests_per_dp": 24,
         "memory_usage": {"weight": 10.0, "kvcache": 5.0, "token_capacity": 230656, "graph": 0.5}},
        {"effective_max_running_requests_per_dp": 24,
         "memory_usage": {"weight": 10.0, "kvcache": 5.0, "token_capacity": 230000, "graph": 0.5}},
    ],
}  # fmt: skip


def start(*words):
    argv = ["python", "-m", "sglang.launch_server", "--model-path", "/m", *words]
    return argv, ENGINE.describe({}, argv, [])


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_facts_of_the_server(path):
    known = ENGINE.describe({path: answer(INFO)}, None, [])
    assert values(known) == {
        "engine_version": "0.5.23",
        "model": "q",
        "model_path": "/m/q",
        "quantization": "modelopt_fp4",
        "kv_cache_dtype": "fp8_e4m3",
        "max_context_tok": 262144,
        "slots": 48,
        "kv_capacity_tok": 460656,
        "total_context_tok": 460656,
        "kv_bytes": 10 << 30,
        "weights_bytes": 20 << 30,
        "tensor_parallel": 2,
        "data_parallel": 2,
        "speculation": "eagle k=4",
        "speculation_tok": 4,
        "speculation_draft": "/m/d",
        "prefix_caching": True,
        "eager": False,
        "cuda_graph_max_seqs": 32,
        "metrics_on": True,
    }
    assert known["slots"].source == f"endpoint:{path}"


def test_replicas_without_states():
    info = {"max_total_num_tokens": 1000, "dp_size": 2, "speculative_algorithm": None}
    known = values(ENGINE.describe({"/server_info": answer(info)}, None, []))
    assert known["kv_capacity_tok"] == 2000
    assert known["speculation"] == "none"


def test_the_loads_answer_and_the_models():
    known = values(
        ENGINE.describe(
            {
                "/v1/loads": answer({"loads": [
                    {"max_running_requests": 8, "max_total_num_tokens": 99}]}),
                "/v1/models": answer({"data": [{"id": "q", "max_model_len": 4096}]}),
                "/get_model_info": answer({"model_path": "/m"}),
            },
            None,
            [],
        )
    )  # fmt: skip
    assert known == {
        "slots": 8, "kv_capacity_tok": 99, "total_context_tok": 99, "model": "q",
        "max_context_tok": 4096, "model_path": "/m",
    }  # fmt: skip


def test_facts_of_the_log():
    limits = "max_running_requests=48, context_len=4096, available_gpu_mem=1.00 GB"
    log = [
        f"[t DP0 TP0] max_total_num_tokens=900, {limits}",
        f"[t DP0 TP1] max_total_num_tokens=1000, {limits}",
        f"[t DP1 TP0] max_total_num_tokens=1000, {limits}",
    ]
    known = values(ENGINE.describe({}, None, log))
    assert known["kv_capacity_tok"] == 900 + 1000
    assert known["kv_unused_tok"] == 100
    assert known["slots"] == 48


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--tp", "2"], "tensor_parallel", 2),
        (["--disable-radix-cache"], "prefix_caching", False),
        ([], "prefix_caching", True),
        (["--disable-cuda-graph"], "eager", True),
        (["--cuda-graph-bs", "1", "2", "16"], "cuda_graph_max_seqs", 16),
        (["--cuda-graph-max-bs-decode", "64"], "cuda_graph_max_seqs", 64),
        (["--sampling-defaults", "openai"], "sampling_defaults", "openai"),
        (["--speculative-algorithm", "NEXTN"], "speculation", "nextn"),
        ([], "speculation", "none"),
        (["--context-length", "8192"], "max_context_tok", 8192),
    ],
)
def test_facts_by_flag(words, key, value):
    assert values(start(*words)[1]).get(key) == value


@pytest.mark.parametrize(
    ("words", "concurrency", "expected"),
    [
        ([], None, {"graph_ceiling_unknown", "prefix_caching_on", "no_metrics"}),
        (["--cuda-graph-max-bs", "8"], 16, {"graph_ceiling"}),
        (["--disable-cuda-graph"], None, {"eager"}),
        (["--speculative-algorithm", "EAGLE"], None, {"speculation_clamp"}),
        (["--max-running-requests", "8"], 16, {"slots_below_concurrency"}),
        (["--max-running-requests", "8", "--max-queued-requests", "2"], 16, {"queue_limit"}),
        (["--allow-auto-truncate"], None, {"truncates_silently"}),
    ],
)
def test_traps(words, concurrency, expected):
    argv, known = start(*words)
    assert expected <= codes(ENGINE.traps(known, argv, {}, concurrency))


def test_slots_that_memory_reduced():
    argv = ["sglang", "serve", "m", "--max-running-requests", "96"]
    known = ENGINE.describe({"/server_info": answer(INFO)}, argv, [])
    assert "slots_reduced" in codes(ENGINE.traps(known, argv, {}, 8))


def test_simulated_acceptance_by_environment():
    found = ENGINE.traps({}, None, {"SGLANG_SIMULATE_ACC_LEN": "3.5"}, None)
    assert [(trap.code, trap.group) for trap in found] == [("simulated_acceptance", "fatal")]
    assert ENGINE.traps({}, None, {"SGLANG_SIMULATE_ACC_LEN": "-1"}, None) == []


def test_a_good_lane_has_no_traps():
    argv, known = start(
        "--disable-radix-cache", "--enable-metrics", "--cuda-graph-max-bs", "16",
        "--max-running-requests", "16",
    )  # fmt: skip
    assert ENGINE.traps(known, argv, {}, 16) == []

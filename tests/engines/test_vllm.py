from __future__ import annotations

import pytest

from concbench.engines.vllm import ENGINE
from tests.engines.answers import VLLM, answer, codes, text_of, values

RECIPE = [
    "vllm", "serve", "/models/q", "--max-num-seqs", "8", "--max-model-len", "16k",
    "--kv-cache-dtype", "fp8", "--quantization=modelopt_fp4", "-tp", "2",
    "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}',
    "--generation-config", "vllm", "--no-enable-prefix-caching", "--served-model-name", "q", "r",
]  # fmt: skip


def test_facts_of_the_captured_server():
    known = ENGINE.describe(VLLM, None, text_of("vllm/server.log").splitlines())
    assert values(known) == {
        "engine_version": "0.32.0",
        "model": "smol",
        "model_path": "/models/smollm2",
        "max_context_tok": 4096,
        "total_context_tok": 93184,
        "kv_capacity_tok": 93184,
        "kv_block_tok": 128,
        "kv_max_concurrency": 22.75,
        "kv_bytes": 2 << 30,
        "kv_cache_dtype": "auto",
        "prefix_caching": True,
        "gpu_memory_utilization": 0.92,
        "slots": 8,
        "eager": True,
        "speculation": "none",
        "weights_dtype": "bfloat16",
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "data_parallel": 1,
        "init_s": 1.61,
    }
    assert known["kv_capacity_tok"].source == "endpoint:/metrics"
    assert known["engine_version"].source == "endpoint:/version"
    assert known["slots"].source == "log"


def test_facts_of_a_command_line():
    known = ENGINE.describe({}, RECIPE, [])
    assert values(known) == {
        "model": "q",
        "model_path": "/models/q",
        "slots": 8,
        "max_context_tok": 16_000,
        "kv_cache_dtype": "fp8",
        "quantization": "modelopt_fp4",
        "tensor_parallel": 2,
        "speculation": "mtp k=3",
        "speculation_tok": 3,
        "simulated_acceptance": False,
        "generation_config": "vllm",
        "prefix_caching": False,
        "eager": False,
    }
    assert known["slots"].source == "argv"
    assert known["eager"].source == "default"


def test_defaults_are_known_only_of_what_we_launched():
    assert values(ENGINE.describe({}, None, [])) == {}
    launched = ENGINE.describe({}, ["vllm", "serve", "m"], [])
    assert launched["prefix_caching"].source == "default"
    assert launched["speculation"].value == "none"
    assert "slots" not in launched, "256 or 1024: it depends on the GPU"


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--speculative-model", "[ngram]", "--num-speculative-tokens", "4"], "speculation",
         "ngram k=4"),
        (["--speculative-config", '{"model": "/d"}'], "speculation_draft", "/d"),
        (["--speculative-config", '{"rejection_sample_method": "synthetic"}'],
         "simulated_acceptance", True),
        (["-sc.method=eagle3", "-sc.num_speculative_tokens=5"], "speculation", "eagle3 k=5"),
        (["-cc.cudagraph_mode=NONE"], "eager", True),
        (["--enforce-eager"], "eager", True),
        (["--max-cudagraph-capture-size", "256"], "cuda_graph_max_tok", 256),
        (["--cudagraph-capture-sizes", "1", "8", "64"], "cuda_graph_max_tok", 64),
        (["--cuda-graph-sizes", "128"], "cuda_graph_max_tok", 128),
        (["--compilation-config", '{"cudagraph_capture_sizes": [1, 16]}'], "cuda_graph_max_tok",
         16),
        (["-dp", "4", "--max-num-seqs", "8"], "slots", 32),
        (["--override-generation-config", '{"temperature": 0}'], "sampling_defaults",
         {"temperature": 0}),
        (["--max-model-len", "auto"], "max_context_tok", None),
        (["--max-model-len", "32K"], "max_context_tok", 32768),
    ],
)  # fmt: skip
def test_facts_by_flag(words, key, value):
    known = ENGINE.describe({}, ["vllm", "serve", "m", *words], [])
    assert values(known).get(key) == value


def test_the_smallest_rank_decides_and_the_rest_is_unused():
    log = [
        f"(Worker_TP{rank} pid={rank}) INFO GPU KV cache size: {size} tokens"
        for rank, size in enumerate(("120,000", "92,416", "100,000"))
    ] + [
        f"(Worker_TP{rank} pid={rank}) INFO Available KV cache memory: {gib} GiB"
        for rank, gib in enumerate((20.0, 5.0, 5.5))
    ]
    known = ENGINE.describe({}, None, log)
    assert known["kv_capacity_tok"].value == 92_416
    assert known["kv_unused_tok"].value == (120_000 - 92_416) + (100_000 - 92_416)
    assert known["kv_bytes"].value == 15 << 30
    assert known["kv_unused_bytes"].value == round(15.5 * (1 << 30))
    assert "uneven_ranks" in codes(ENGINE.traps(known, None, {}, None))


def test_replicas_add_up():
    log = [f"(EngineCore_DP{n} pid={n}) INFO GPU KV cache size: 1,000 tokens" for n in (0, 1)]
    assert ENGINE.describe({}, None, log)["kv_capacity_tok"].value == 2_000
    page = "".join(
        f'vllm:cache_config_info{{engine="{n}",block_size="16",num_gpu_blocks="100"}} 1\n'
        for n in (0, 1)
    )
    known = ENGINE.describe({"/metrics": answer(page)}, None, [])
    assert known["kv_capacity_tok"].value == 3_200


def test_the_size_that_newer_versions_tell_is_preferred_to_blocks():
    page = (
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="100",'
        'kv_cache_size_tokens="1500",kv_cache_max_concurrency="2.5"} 1\n'
    )
    known = ENGINE.describe({"/metrics": answer(page)}, None, [])
    assert known["kv_capacity_tok"].value == 1_500
    assert known["kv_max_concurrency"].value == 2.5


def test_blocks_of_the_first_generation():
    line = "INFO # GPU blocks: 2048, # CPU blocks: 512"
    assert ENGINE.describe({}, None, [line])["kv_capacity_tok"].value == 2048 * 16
    argv = ["vllm", "serve", "m", "--block-size", "32"]
    assert ENGINE.describe({}, argv, [line])["kv_capacity_tok"].value == 2048 * 32


def test_server_information_in_developer_mode():
    config = {
        "model_config": {"quantization": "awq", "enforce_eager": False, "max_model_len": 8192},
        "cache_config": {"cache_dtype": "fp8", "enable_prefix_caching": False},
        "parallel_config": {"tensor_parallel_size": 4, "data_parallel_size": 2},
        "scheduler_config": {"max_num_seqs": 128},
        "speculative_config": None,
        "compilation_config": {"max_cudagraph_capture_size": 256},
    }
    path = "/server_info?config_format=json"
    known = values(ENGINE.describe({path: answer({"vllm_config": config})}, None, []))
    assert known["slots"] == 256
    assert known["quantization"] == "awq"
    assert known["speculation"] == "none"
    assert known["eager"] is False
    assert known["cuda_graph_max_tok"] == 256
    assert ENGINE.describe({path: answer({"vllm_config": "text"})}, None, []) == {}


def test_speculation_in_the_log():
    log = [
        "INFO Initializing a V1 LLM engine (v0.20.1) with config: model='m', "
        "speculative_config=SpeculativeConfig(method='mtp', model='/d', num_spec_tokens=3), x=1"
    ]
    known = values(ENGINE.describe({}, None, log))
    assert known["speculation"] == "mtp k=3"
    assert known["speculation_draft"] == "/d"


@pytest.mark.parametrize(
    ("words", "concurrency", "expected"),
    [
        ([], None, {"default_max_num_seqs", "prefix_caching_on", "generation_config_auto"}),
        (["--max-num-seqs", "8"], 16, {"slots_below_concurrency"}),
        (["--max-num-seqs", "8", "--max-num-queued-reqs", "4"], 16, {"queue_limit"}),
        (["--enforce-eager"], None, {"eager"}),
        (["--max-num-seqs", "1024"], 600, {"graph_ceiling"}),
        (["--max-num-seqs", "256", "-sc.num_speculative_tokens=3"], 200, {"graph_ceiling"}),
        (["--max-num-seqs", "12"], None, {"slots_not_multiple_of_8"}),
        (["--speculative-config", '{"rejection_sample_method": "synthetic"}'], None,
         {"simulated_acceptance"}),
        (["--stream-interval", "4"], None, {"stream_interval"}),
        (["--disable-log-stats"], None, {"no_metrics"}),
        (["--api-server-count", "2"], None, {"no_stats_log"}),
        (["--speculative-config", '{"disable_by_batch_size": 4}'], None, {"speculation_stops"}),
    ],
)  # fmt: skip
def test_traps(words, concurrency, expected):
    argv = ["vllm", "serve", "m", *words]
    found = ENGINE.traps(ENGINE.describe({}, argv, []), argv, {}, concurrency)
    assert expected <= codes(found)
    fatal = {trap.code for trap in found if trap.group == "fatal"}
    assert fatal == ({"simulated_acceptance"} & expected)


def test_a_good_lane_has_no_traps():
    assert ENGINE.traps(ENGINE.describe({}, RECIPE, []), RECIPE, {}, 8) == []


def test_trap_by_environment():
    assert "rust_frontend" in codes(ENGINE.traps({}, None, {"VLLM_USE_RUST_FRONTEND": "1"}, None))


def test_graphs_reach_far_enough():
    argv = ["vllm", "serve", "m", "--max-num-seqs", "256", "-sc.num_speculative_tokens=3"]
    known = ENGINE.describe({}, argv, [])
    assert "graph_ceiling" not in codes(ENGINE.traps(known, argv, {}, 128))
    assert "graph_ceiling" in codes(ENGINE.traps(known, argv, {}, 129))

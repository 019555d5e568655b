from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.engines.vllm import ENGINE
from concbench.engines.vllm_log import parse_log
from tests.engines.answers import same, text_of

STAMP = "(APIServer pid=1) INFO 11-29 14:26:48 [loggers.py:335] "

WINDOWS = [
    pytest.param(
        "INFO 01-02 03:04:05 [loggers.py:118] Engine 000: Avg prompt throughput: 8.4 tokens/s, "
        "Avg generation throughput: 342.7 tokens/s, Running: 16 reqs, Waiting: 2 reqs, "
        "GPU KV cache usage: 12.5%, Prefix cache hit rate: 30.0%",
        {"prompt_tok_per_s": 8.4, "output_tok_per_s": 342.7, "running": 16, "waiting": 2,
         "kv_usage": 0.125, "prefix_hit_rate": 0.3},
        "0", id="V1 to 0.10.2",
    ),
    pytest.param(
        STAMP + "Engine 003: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: "
        "1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, Deferred: 4 reqs, "
        "KV fetch: 1 waiting to start, 2 in progress, 3 completed waiting, Preemptions: 7, "
        "GPU KV cache usage: 99.9%, Prefix cache hit rate: 1.0%, Corrupted: 1 reqs, "
        "External prefix cache hit rate: 2.0%, MM cache hit rate: 3.0%",
        {"prompt_tok_per_s": 0.0, "output_tok_per_s": 1.0, "running": 1, "waiting": 0,
         "deferred": 4, "kv_fetching": 6, "kv_usage": 0.999, "prefix_hit_rate": 0.01,
         "corrupted": 1, "external_prefix_hit_rate": 0.02, "mm_hit_rate": 0.03},
        "3", id="every optional part",
    ),
    pytest.param(
        STAMP + "2 Engines Aggregated: Avg prompt throughput: 5.0 tokens/s, Avg generation "
        "throughput: 10.5 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%",
        {"prompt_tok_per_s": 5.0, "output_tok_per_s": 10.5, "running": 4, "waiting": 0,
         "kv_usage": 0.01},
        "all", id="aggregated, no lookups",
    ),
    pytest.param(
        STAMP + "Engine 000: Avg prompt throughput: 8.4 tokens/s, Avg generation throughput: "
        "2.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, CPU KV cache usage: 0.1%, "
        "Prefix cache hit rate: 0.0%",
        {"prompt_tok_per_s": 8.4, "output_tok_per_s": 2.0, "running": 1, "waiting": 0,
         "kv_usage": 0.001, "prefix_hit_rate": 0.0},
        "0", id="CPU build",
    ),
    pytest.param(
        STAMP + "Engine 000: Avg prompt throughput: 8.4 tokens/s, Avg generation throughput: "
        "2.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
        "Intel(R) Arc(TM) B580 KV cache usage: 4.0%",
        {"prompt_tok_per_s": 8.4, "output_tok_per_s": 2.0, "running": 1, "waiting": 0,
         "kv_usage": 0.04},
        "0", id="device name",
    ),
    pytest.param(
        "INFO 12-01 10:00:00 metrics.py:449] Avg prompt throughput: 6.0 tokens/s, Avg generation "
        "throughput: 24.0 tokens/s, Running: 8 reqs, Swapped: 1 reqs, Pending: 3 reqs, "
        "GPU KV cache usage: 5.5%, CPU KV cache usage: 1.0%.",
        {"prompt_tok_per_s": 6.0, "output_tok_per_s": 24.0, "running": 8, "swapped": 1,
         "waiting": 3, "kv_usage": 0.055},
        "", id="V0",
    ),
    pytest.param(
        "vllm-1  | \x1b[32mINFO\x1b[0m Engine 000: Avg prompt throughput: 1,234.5 tokens/s, Avg "
        "generation throughput: 2.0 tokens/s, Running: 1 reqs, Something new: 7 widgets, "
        "Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: nan%\r",
        {"prompt_tok_per_s": 1234.5, "output_tok_per_s": 2.0, "running": 1, "waiting": 0,
         "kv_usage": 0.01},
        "0", id="colours, unknown parts, nan",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "values", "key"), WINDOWS)
def test_windows(line, values, key):
    record = parse_log(line)
    assert record is not None
    assert record.kind == "window"
    assert same(record.values, values)
    assert record.key == key


OTHERS = [
    pytest.param(
        STAMP + "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 150.00 "
        "tokens/s, Drafted throughput: 300.00 tokens/s, Accepted: 1500 tokens, Drafted: 3000 "
        "tokens, Per-position acceptance rate: 0.800, 0.500, 0.200, "
        "Avg Draft acceptance rate: 50.0%",
        "spec",
        {"accept_len": 2.5, "accepted_tok_per_s": 150.0, "drafted_tok_per_s": 300.0,
         "accepted_tok": 1500, "drafted_tok": 3000, "accept_rate": 0.5,
         "accept_rate_per_position": [0.8, 0.5, 0.2]},
        id="speculation from 0.10.2",
    ),
    pytest.param(
        "INFO SpecDecoding metrics: Draft acceptance rate: 42.9%, Mean acceptance length: 1.43, "
        "Accepted: 3 tokens, Drafted: 7 tokens, Per-position acceptance rate: 0.429",
        "spec",
        {"accept_len": 1.43, "accepted_tok": 3, "drafted_tok": 7, "accept_rate": 0.429,
         "accept_rate_per_position": [0.429]},
        id="speculation 0.8.5 to 0.9.2",
    ),
    pytest.param(
        "INFO metrics.py:477] Speculative metrics: Draft acceptance rate: 0.700, System "
        "efficiency: 0.650, Number of speculative tokens: 3, Number of accepted tokens: 70, "
        "Number of draft tokens: 100, Number of emitted tokens: 130.",
        "spec",
        {"accept_rate": 0.7, "efficiency": 0.65, "speculation_tok": 3, "accepted_tok": 70,
         "drafted_tok": 100, "emitted_tok": 130},
        id="speculation V0",
    ),
    pytest.param(
        "INFO metrics.py:465] Prefix cache hit rate: GPU: 45.25%, CPU: 0.00%",
        "cache", {"prefix_hit_rate": 0.4525}, id="hit rate V0",
    ),
    pytest.param(
        "(EngineCore pid=7) INFO Iteration(42): 1 context requests, 512 context tokens, 7 "
        "generation requests, 7 generation tokens, iteration elapsed time: 12.34 ms, and more",
        "iteration",
        {"iteration": 42, "prefilling": 1, "prompt_tok": 512, "decoding": 7, "output_tok": 7,
         "step_ms": 12.34},
        id="iteration",
    ),
    pytest.param(
        "(EngineCore_DP0 pid=135) INFO [kv_cache_utils.py:1087] GPU KV cache size: 635,712 tokens",
        "startup", {"kv_capacity_tok": 635712}, id="size",
    ),
    pytest.param(
        "INFO Maximum concurrency for 131,072 tokens per request: 4.85x",
        "startup", {"max_context_tok": 131072, "kv_max_concurrency": 4.85}, id="concurrency",
    ),
    pytest.param(
        "INFO GPU KV cache size: 93,184 tokens, Maximum concurrency for 4,096 tokens per request: "
        "22.75x",
        "startup",
        {"kv_capacity_tok": 93184, "max_context_tok": 4096, "kv_max_concurrency": 22.75},
        id="joined",
    ),
    pytest.param(
        "INFO CPU KV cache size: 93,184 tokens, Maximum concurrency for 4,096 tokens per request: "
        "22.75x",
        "startup",
        {"kv_capacity_tok": 93184, "max_context_tok": 4096, "kv_max_concurrency": 22.75},
        id="joined, device",
    ),
    pytest.param(
        "INFO executor_base.py:76] # GPU blocks: 2048, # CPU blocks: 512",
        "startup", {"kv_blocks": 2048, "kv_cpu_blocks": 512}, id="blocks V0",
    ),
    pytest.param(
        "INFO executor_base.py:112] # cuda blocks: 2048, # CPU blocks: 512",
        "startup", {"kv_blocks": 2048, "kv_cpu_blocks": 512}, id="blocks 0.8.5",
    ),
    pytest.param(
        "INFO Available KV cache memory: 7.5 GiB", "startup", {"kv_bytes": 8053063680},
        id="memory",
    ),
    pytest.param(
        "INFO [cpu_worker.py:260] Explicitly set (2.0/17.09) GiB for KV cache on node 0.",
        "startup", {"kv_bytes": 2147483648}, id="memory CPU",
    ),
    pytest.param(
        "INFO Model loading took 14.25 GiB memory and 3.500000 seconds",
        "startup", {"weights_bytes": 15300820992, "weights_load_s": 3.5}, id="weights",
    ),
    pytest.param(
        "INFO Model loading took 14.25 GiB and 3.500000 seconds",
        "startup", {"weights_bytes": 15300820992, "weights_load_s": 3.5}, id="weights 0.8",
    ),
    pytest.param(
        "INFO Loading model weights took 14.25 GB", "startup", {"weights_bytes": 15300820992},
        id="weights V0",
    ),
    pytest.param(
        "INFO Graph capturing finished in 21 secs, took 0.50 GiB",
        "startup", {"graph_capture_s": 21.0, "graph_bytes": 536870912}, id="graphs",
    ),
    pytest.param(
        "INFO Chunked prefill is enabled with max_num_batched_tokens=8192.",
        "startup", {"max_batched_tok": 8192}, id="chunked prefill",
    ),
    pytest.param(
        "INFO api_server.py:712] vLLM API server version 0.6.6.post1",
        "startup", {"engine_version": "0.6.6.post1"}, id="version",
    ),
    pytest.param(
        "(APIServer pid=1) INFO [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
        "startup", {"engine_version": "0.32.0"}, id="banner",
    ),
    pytest.param("INFO:     Application startup complete.", "startup", {"ready": True},
                 id="ready"),
    pytest.param(
        "INFO [serving_chat.py:120] Using default chat sampling params from model: "
        "{'temperature': 0.6, 'top_p': 0.9}",
        "startup", {"sampling_defaults": {"temperature": 0.6, "top_p": 0.9}}, id="sampling",
    ),
    pytest.param(
        "WARNING [model.py:1] Default vLLM sampling parameters have been overridden by the "
        "model's `generation_config.json`: `{'temperature': 0.6}`. If this is not intended, …",
        "startup", {"sampling_defaults": {"temperature": 0.6}}, id="sampling overridden",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "kind", "values"), OTHERS)
def test_other_lines(line, kind, values):
    record = parse_log(line)
    assert record is not None
    assert record.kind == kind
    assert same(record.values, values)


def test_whole_configuration():
    line = (
        "(EngineCore_DP1 pid=9) INFO Initializing a V1 LLM engine (v0.20.1) with config: "
        "model='/models/a, b', speculative_config=SpeculativeConfig(method='mtp', model='/d', "
        "num_spec_tokens=3), tokenizer='x', dtype=torch.bfloat16, max_seq_len=32768, "
        "tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=2, "
        "quantization=modelopt_fp4, enforce_eager=False, kv_cache_dtype=fp8, "
        "served_model_name=qwen, enable_prefix_caching=True, "
        'compilation_config={"cudagraph_capture_sizes":[512,504,8,1],"max_capture_size":512}'
    )
    record = parse_log(line)
    assert record is not None
    assert record.key == "EngineCore_DP1"
    assert record.values == {
        "engine_version": "0.20.1",
        "model_path": "/models/a, b",
        "model": "qwen",
        "max_context_tok": 32768,
        "tensor_parallel": 2,
        "pipeline_parallel": 1,
        "data_parallel": 2,
        "quantization": "modelopt_fp4",
        "kv_cache_dtype": "fp8",
        "weights_dtype": "bfloat16",
        "eager": False,
        "prefix_caching": True,
        "cuda_graph_max_tok": 512,
        "speculative_config": {"method": "mtp", "model": "/d", "num_spec_tokens": "3"},
    }


def test_first_generation_configuration():
    record = parse_log(
        "INFO llm_engine.py:234] Initializing an LLM engine (v0.6.6) with config: "
        "model='facebook/opt-125m', speculative_config=None, max_seq_len=2048, quantization=None"
    )
    assert record is not None
    assert record.values == {
        "engine_version": "0.6.6",
        "model_path": "facebook/opt-125m",
        "max_context_tok": 2048,
        "speculation": "none",
    }


def test_the_captured_log():
    records = [r for line in text_of("vllm/server.log").splitlines() if (r := parse_log(line))]
    windows = [r for r in records if r.kind == "window"]
    assert len(windows) == text_of("vllm/server.log").count("Avg generation throughput")
    assert {r.key for r in windows} == {"0"}
    assert [r.values["running"] for r in windows] == [1, 2, 4, 0, 8, 8, 7, 8, 8, 8, 4, 0, 0, 1]
    full = [r.values["output_tok_per_s"] for r in windows if r.values["running"] == 8]
    assert full == [3.3, 24.0, 1.6, 23.2, 24.8]
    assert max(r.values["waiting"] for r in windows) == 4
    assert sum(r.values.get("ready", False) for r in records) == 1


@settings(deadline=None)
@given(st.text())
def test_any_text_is_survived(text):
    parse_log(text)


PIECES = st.sampled_from(
    ["Avg prompt throughput: ", "Engine 000: ", "Running: ", "9", "1e999", ", ", "%", "{", "'",
     "SpecDecoding metrics: ", "Per-position acceptance rate: ", "0.5, 0.5", "KV cache size: ",
     " tokens", "non-default args: ", "{'a': 1}", "with config: ", "Iteration(", "\x1b[3m",
     "Initializing a V1 LLM engine (v1) with config: model=", "speculative_config=", "None",
     "cudagraph_capture_sizes': [", "]", "1" * 400, "# GPU blocks: ", "=", " KV cache usage: "]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=14).map("".join))
def test_pieces_in_any_order_are_survived(text):
    record = parse_log(text)
    if record is not None:
        assert record.kind
        ENGINE.describe({}, None, [text])

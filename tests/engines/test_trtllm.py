from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.engines.trtllm import ENGINE
from tests.engines.answers import answer, codes, same, values

STATES = "states = {'num_ctx_requests': 1, 'num_ctx_tokens': 512, 'num_generation_tokens': 7}"
LINES = [
    pytest.param(
        "[TRT-LLM] [I] iter = 12, global_rank = 0, rank = 0, currank_total_requests = 3/9, "
        "host_step_time = 8.5ms, prev_device_step_time = 7.25ms, timestamp = 2026-11-29, "
        f"num_scheduled_requests: 8, {STATES}",
        "iteration",
        {"iteration": 12, "running": 8, "active": 3, "total": 9, "step_ms": 8.5,
         "device_step_ms": 7.25, "prefilling": 1, "prompt_tok": 512, "output_tok": 7},
        "0", id="iteration",
    ),
    pytest.param(
        "iter = 12, global_rank = 1, rank = 1, num_scheduled_requests = 8, kv_cache_util = 0.125, "
        f"currank_total_requests = 0/0, host_step_time = 8.5ms, prev_device_step_time = N/A, "
        f"timestamp = x, {STATES}",
        "iteration",
        {"iteration": 12, "running": 8, "kv_usage": 0.125, "active": 0, "total": 0,
         "step_ms": 8.5, "prefilling": 1, "prompt_tok": 512, "output_tok": 7},
        "1", id="iteration, newer",
    ),
    pytest.param(
        f"iter = 3, rank = 0, elapsed_time = 0.02s, num_scheduled_requests: 1, {STATES}",
        "iteration",
        {"iteration": 3, "running": 1, "step_ms": 20.0, "prefilling": 1, "prompt_tok": 512,
         "output_tok": 7},
        "0", id="iteration, older",
    ),
    pytest.param(
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 7.50 GiB for max tokens in paged KV cache "
        "(61440).",
        "startup", {"kv_bytes": 8053063680, "kv_capacity_tok": 61440}, "", id="KV cache",
    ),
    pytest.param(
        "max_seq_len=8192, max_num_requests=64, max_num_tokens=4096, more=1",
        "startup", {"max_context_tok": 8192, "slots": 64, "max_batched_tok": 4096}, "",
        id="limits",
    ),
    pytest.param("INFO:     Application startup complete.", "startup", {"ready": True}, "",
                 id="ready"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "kind", "values", "key"), LINES)
def test_log(line, kind, values, key):
    record = ENGINE.parse_log(line)
    assert record is not None
    assert (record.kind, record.key) == (kind, key)
    assert same(record.values, values)


def test_facts():
    page = "trtllm_kv_cache_max_blocks 100\ntrtllm_kv_cache_tokens_per_block 32\n"
    argv = [
        "trtllm-serve", "/m/q", "--max_batch_size", "64", "--tp_size", "2",
        "--kv_cache_free_gpu_memory_fraction", "0.8",
    ]  # fmt: skip
    known = ENGINE.describe(
        {"/version": answer({"version": "1.0"}), "/prometheus/metrics": answer(page)}, argv, []
    )
    assert values(known) == {
        "engine_version": "1.0", "kv_capacity_tok": 3200, "total_context_tok": 3200,
        "model": "/m/q", "model_path": "/m/q", "slots": 64, "tensor_parallel": 2,
        "kv_memory_fraction": 0.8, "prefix_caching": True,
    }  # fmt: skip


def test_the_smallest_rank_decides():
    log = [f"Allocated 1.0 GiB for max tokens in paged KV cache ({n})." for n in (900, 700, 800)]
    assert ENGINE.describe({}, None, log)["kv_capacity_tok"].value == 700


def test_traps():
    argv = ["trtllm-serve", "m", "--max_batch_size", "8"]
    known = ENGINE.describe({}, argv, [])
    assert codes(ENGINE.traps(known, argv, {}, 8)) == {"metrics_consumed", "prefix_caching_on"}
    assert "slots_below_concurrency" in codes(ENGINE.traps(known, argv, {}, 9))
    assert "default_max_batch_size" in codes(ENGINE.traps({}, ["trtllm-serve", "m"], {}, 9))


@settings(deadline=None)
@given(st.text())
def test_any_text_is_survived(text):
    ENGINE.parse_log(text)
    ENGINE.parse_log("iter = 3, rank = 0, " + text)

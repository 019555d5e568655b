from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.engines.sglang import ENGINE
from concbench.engines.sglang_log import parse_log
from tests.engines.answers import same

LINES = [
    pytest.param(
        "[2026-11-29 12:00:00] Decode batch, #running-req: 8, #token: 1024, token usage: 0.12, "
        "cuda graph: True, gen throughput (token/s): 345.67, #queue-req: 2",
        "window",
        {"running": 8, "kv_tok": 1024, "kv_usage": 0.12, "cuda_graph": True,
         "output_tok_per_s": 345.67, "waiting": 2},
        "", id="decode 0.5.15",
    ),
    pytest.param(
        "[2026-11-29 12:00:00 DP1 TP0] Decode batch [120], #running-req: 3, #token: 99, token "
        "usage: 0.01, accept len: 3.25, accept rate: 0.75, cap len: 4.00, block accept len: 2.50, "
        "pre-allocated usage: 0.10, #prealloc-req: 1, #transfer-req: 2, #retracted-req: 3, "
        "npu graph: False, gen throughput (token/s): 10.00, #queue-req: 0",
        "window",
        {"iteration": 120, "running": 3, "kv_tok": 99, "kv_usage": 0.01, "accept_len": 3.25,
         "accept_rate": 0.75, "cap_len": 4.0, "block_accept_len": 2.5, "preallocated_usage": 0.1,
         "preallocated": 1, "transferring": 2, "preemptions": 3, "cuda_graph": False,
         "output_tok_per_s": 10.0, "waiting": 0},
        "DP1 TP0", id="decode with everything",
    ),
    pytest.param(
        "[2026-11-29 12:00:00 TP0] Decode batch, #running-req: 1, #full token: 500, full token "
        "usage: 0.05, #swa token: 90, swa token usage: 0.45, mamba num: 2, mamba usage: 0.20, "
        "cpu graph: True, gen throughput (token/s): 1.00, #queue-req: 0",
        "window",
        {"running": 1, "kv_tok": 500, "swa_tok": 90, "kv_usage": 0.45, "mamba_states": 2,
         "cuda_graph": True, "output_tok_per_s": 1.0, "waiting": 0},
        "TP0", id="decode, hybrid pools",
    ),
    pytest.param(
        "[2025-01-01 00:00:00 TP0] Decode batch. #running-req: 1, #token: 31, token usage: 0.00, "
        "gen throughput (token/s): 28.71, #queue-req: 0",
        "window",
        {"running": 1, "kv_tok": 31, "kv_usage": 0.0, "output_tok_per_s": 28.71, "waiting": 0},
        "TP0", id="decode 0.4.1",
    ),
    pytest.param(
        "[2025-09-01 00:00:00] Decode batch. #running-req: 1, #token: 31, token usage: 0.00, "
        "accept len: 2.10, cuda graph: True, gen throughput (token/s): 28.71, #queue-req: 0, ",
        "window",
        {"running": 1, "kv_tok": 31, "kv_usage": 0.0, "accept_len": 2.1, "cuda_graph": True,
         "output_tok_per_s": 28.71, "waiting": 0},
        "", id="decode 0.5.2, trailing comma",
    ),
    pytest.param(
        "[2025-11-01 00:00:00] Decode batch, #running-req: 1, #token: 31, token usage: 0.00, "
        "accept len: 2.10, accept rate: 0.53, musa graph: True, gen throughput (token/s): 28.71, "
        "#queue-req: 0,",
        "window",
        {"running": 1, "kv_tok": 31, "kv_usage": 0.0, "accept_len": 2.1, "accept_rate": 0.53,
         "cuda_graph": True, "output_tok_per_s": 28.71, "waiting": 0},
        "", id="decode 0.5.6, trailing comma",
    ),
    pytest.param(
        "[2026-11-29 12:00:00] Prefill batch, #new-seq: 2, #new-token: 512, #cached-token: 64, "
        "token usage: 0.03, #running-req: 1, #queue-req: 4, #pending-token: 300, cuda graph: "
        "False, input throughput (token/s): 9000.50",
        "prefill",
        {"new_sequences": 2, "prompt_tok": 512, "cached_tok": 64, "kv_usage": 0.03, "running": 1,
         "waiting": 4, "pending_tok": 300, "cuda_graph": False, "prompt_tok_per_s": 9000.5},
        "", id="prefill",
    ),
    pytest.param(
        "[2025-01-01 00:00:00 TP0] Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 0, "
        "cache hit rate: 12.50%, token usage: 0.00, #running-req: 0, #queue-req: 0",
        "prefill",
        {"new_sequences": 1, "prompt_tok": 7, "cached_tok": 0, "prefix_hit_rate": 0.125,
         "kv_usage": 0.0, "running": 0, "waiting": 0},
        "TP0", id="prefill 0.4.1",
    ),
    pytest.param(
        "[2026-11-29 12:00:00 TP0] max_total_num_tokens=230656, chunked_prefill_size=8192, "
        "max_prefill_tokens=16384, max_running_requests=48, context_len=262144, "
        "available_gpu_mem=3.25 GB",
        "startup",
        {"kv_capacity_tok": 230656, "chunked_prefill_tok": 8192, "max_batched_tok": 16384,
         "slots": 48, "max_context_tok": 262144, "free_bytes": 3489660928},
        "TP0", id="limits",
    ),
    pytest.param(
        "[2025-01-01 00:00:00 TP0] max_total_num_tokens=441970, chunked_prefill_size=-1, "
        "max_prefill_tokens=16384, max_running_requests=2049, context_len=131072",
        "startup",
        {"kv_capacity_tok": 441970, "max_batched_tok": 16384, "slots": 2049,
         "max_context_tok": 131072},
        "TP0", id="limits, older",
    ),
    pytest.param(
        "[2026-11-29 12:00:00 TP1] KV Cache is allocated. #tokens: 1000, K size: 1.50 GB, V size: "
        "1.50 GB",
        "startup", {"kv_capacity_tok": 1000, "kv_bytes": 3221225472}, "TP1", id="KV cache",
    ),
    pytest.param(
        "[2026-11-29 12:00:00 TP1] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1000, K "
        "size: 1.50 GB, V size: 1.50 GB",
        "startup", {"kv_capacity_tok": 1000, "kv_bytes": 3221225472}, "TP1",
        id="KV cache with type",
    ),
    pytest.param(
        "[2026-11-29 12:00:00 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, "
        "avail mem=7.00 GB, mem usage=2.50 GB.",
        "startup", {"weights_bytes": 2684354560}, "TP0", id="weights",
    ),
    pytest.param(
        "[2026-11-29 12:00:00 TP0] Capture cuda graph bs [1, 2, 4, 8]", "startup",
        {"cuda_graph_max_seqs": 8}, "TP0", id="graphs",
    ),
    pytest.param(
        "[2026-11-29 12:00:00] Max_running_requests is reset to 48 for speculative decoding.",
        "startup", {"slots": 48}, "", id="clamp",
    ),
    pytest.param("[2026-11-29 12:00:00] The server is fired up and ready to roll!", "startup",
                 {"ready": True}, "", id="ready"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "kind", "values", "key"), LINES)
def test_lines(line, kind, values, key):
    record = parse_log(line)
    assert record is not None
    assert (record.kind, record.key) == (kind, key)
    assert same(record.values, values)


def test_printed_settings():
    record = parse_log(
        "[2026-11-29 12:00:00] server_args=ServerArgs(model_path='/models/a', tp_size=2, "
        "quantization=None, disable_radix_cache=True, cuda_graph_bs=[1, 2, 4], "
        "speculative_algorithm='EAGLE', mem_fraction_static=0.88)"
    )
    assert record is not None
    flags = record.values["flags"]
    assert flags["model-path"] == "/models/a"
    assert flags["tp-size"] == "2"
    assert flags["disable-radix-cache"] is True
    assert "quantization" not in flags
    known = ENGINE.describe({}, None, ["server_args=ServerArgs(model_path='/m', tp_size=2)"])
    assert known["tensor_parallel"].value == 2
    assert known["tensor_parallel"].source == "log"


def test_other_lines_say_nothing():
    assert parse_log('INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK') is None
    assert parse_log("Decode batch, ") is None


@settings(deadline=None)
@given(st.text())
def test_any_text_is_survived(text):
    parse_log(text)


PIECES = st.sampled_from(
    ["Decode batch, ", "Prefill batch. ", "[x TP0] ", "#running-req: ", "1e999", "nan", ", ",
     "token usage: ", "cuda graph: ", "maybe", "max_total_num_tokens=", "9" * 400, ".", "9",
     "server_args=ServerArgs(", "a=[", "]", ")", "KV Cache is allocated. #tokens: 1, K size: ",
     " GB, V size: ", "1..2 GB", "Capture cuda graph bs [ , ]", "mem usage=", "Load weight end"]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=12).map("".join))
def test_pieces_in_any_order_are_survived(text):
    parse_log(text)
    ENGINE.describe({}, None, [text])

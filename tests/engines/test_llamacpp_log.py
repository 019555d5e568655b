from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.engines.llamacpp import ENGINE
from concbench.engines.llamacpp_log import parse_log
from tests.engines.answers import same, text_of

SLOT = "0.05.755.886 I slot print_timing: id  7 | task 12 | "

LINES = [
    pytest.param(
        SLOT + "prompt eval time =     312.31 ms /    41 tokens (    7.62 ms per token,   "
        "131.28 tokens per second)",
        "request", {"prompt_ms": 312.31, "prompt_tok": 41, "prompt_tok_per_s": 131.28}, "12",
        id="prompt",
    ),
    pytest.param(
        SLOT + "       eval time =     115.86 ms /     8 tokens (   16.55 ms per token,    "
        "60.42 tokens per second)",
        "request", {"output_ms": 115.86, "output_tok": 8, "output_tok_per_s": 60.42}, "12",
        id="eval",
    ),
    pytest.param(
        SLOT + "      total time =     428.16 ms /    49 tokens",
        "request", {"total_ms": 428.16, "total_tok": 49}, "12", id="total",
    ),
    pytest.param(SLOT + "   graphs reused =         69", "request", {"graphs_reused": 69}, "12",
                 id="graphs"),
    pytest.param(
        "slot print_timing: id  0 | task 3 | \n\rprompt eval time =      10.00 ms /     5 tokens "
        "(    2.00 ms per token,   500.00 tokens per second)\n\r       eval time =      20.00 ms "
        "/    4 tokens (    5.00 ms per token,   200.00 tokens per second)\n\r      total time =  "
        "    30.00 ms /     9 tokens\n",
        "request",
        {"prompt_ms": 10.0, "prompt_tok": 5, "prompt_tok_per_s": 500.0, "output_ms": 20.0,
         "output_tok": 4, "output_tok_per_s": 200.0, "total_ms": 30.0, "total_tok": 9},
        "3", id="one message with carriage returns",
    ),
    pytest.param(
        "       eval time =      20.00 ms /    4 tokens (    5.00 ms per token,   200.00 tokens "
        "per second)\r",
        "request", {"output_ms": 20.0, "output_tok": 4, "output_tok_per_s": 200.0}, "",
        id="a line of that message",
    ),
    pytest.param(
        "prompt eval time =       0.00 ms /     1 tokens (    0.00 ms per token,      inf tokens "
        "per second)",
        "request", {"prompt_ms": 0.0, "prompt_tok": 1}, "", id="infinite rate",
    ),
    pytest.param(
        "slot      release: id  7 | task 9 | stop processing: n_tokens = 106, truncated = 0",
        "request", {"total_tok": 106, "truncated": False}, "9", id="stop",
    ),
    pytest.param(
        "slot      release: id  7 | task 9 | stop processing: n_past = 106, truncated = 1",
        "request", {"total_tok": 106, "truncated": True}, "9", id="stop, older",
    ),
    pytest.param(
        SLOT + "n_gen =    120, tg =  35.20 t/s, tg_3s =  34.00 t/s",
        "progress",
        {"output_tok": 120, "output_tok_per_s": 35.2, "recent_tok_per_s": 34.0}, "12", id="live",
    ),
    pytest.param(
        SLOT + "prompt processing, n_tokens =   2048, progress = 0.50, t =   1.50 s / 1365.33 "
        "tokens per second",
        "prefill",
        {"prompt_tok": 2048, "progress": 0.5, "prompt_ms": 1500.0, "prompt_tok_per_s": 1365.33},
        "12", id="prompt progress",
    ),
    pytest.param(
        "slot update_slots: id  0 | task 7 | prompt processing progress, n_past = 2048, n_tokens "
        "= 2048, progress = 0.500000",
        "prefill", {"prompt_tok": 2048, "progress": 0.5}, "7", id="prompt progress, older",
    ),
    pytest.param(
        SLOT + "draft acceptance rate = 0.57576 (   57 accepted /    99 generated)",
        "spec", {"accept_rate": 0.57576, "accepted_tok": 57, "drafted_tok": 99}, "12",
        id="draft .16 to .20",
    ),
    pytest.param(
        SLOT + "draft acceptance = 0.57576 (   57 accepted /    99 generated)",
        "spec", {"accept_rate": 0.57576, "accepted_tok": 57, "drafted_tok": 99}, "12",
        id="draft .28",
    ),
    pytest.param(
        SLOT + "draft acceptance = 0.57576 (   57 accepted /    99 generated), mean len =  2.73",
        "spec",
        {"accept_rate": 0.57576, "accepted_tok": 57, "drafted_tok": 99, "accept_len": 2.73}, "12",
        id="draft now",
    ),
    pytest.param(
        "spec statistics: statistics    draft-mtp: #calls(b,g,a) =    1    50     50, #gen drafts "
        "=     50, #acc drafts =    40, #gen tokens =    150, #acc tokens =    90, dur = 1",
        "spec",
        {"drafts": 50, "accepted_drafts": 40, "drafted_tok": 150, "accepted_tok": 90},
        "draft-mtp", id="draft sums",
    ),
    pytest.param(
        "srv    load_model: initializing, n_slots = 8, n_ctx_slot = 1024, kv_unified = 'false'",
        "startup", {"slots": 8, "max_context_tok": 1024, "kv_unified": False}, "", id="slots now",
    ),
    pytest.param("srv          init: initializing slots, n_slots = 4", "startup", {"slots": 4}, "",
                 id="slots, older"),
    pytest.param("slot         init: id  0 | task -1 | new slot n_ctx_slot = 2048", "startup",
                 {"max_context_tok": 2048}, "", id="slot, older"),
    pytest.param("slot load_model: id  0 | task -1 | new slot, n_ctx = 2048", "startup",
                 {"max_context_tok": 2048}, "", id="slot, old"),
    pytest.param("srv init: n_parallel is set to auto, using n_parallel = 4 and kv_unified = true",
                 "startup", {"slots": 4, "kv_unified": True}, "", id="automatic slots"),
    pytest.param("llama_context: n_ctx_seq             = 1024", "startup",
                 {"max_context_tok": 1024}, "", id="library: context of a slot"),
    pytest.param("llama_context: n_ctx_per_seq = 1024", "startup", {"max_context_tok": 1024}, "",
                 id="library: context of a slot, older"),
    pytest.param("llama_context: n_ctx                 = 8192", "startup",
                 {"total_context_tok": 8192}, "", id="library: context"),
    pytest.param("llama_context: kv_unified            = false", "startup", {"kv_unified": False},
                 "", id="library: unified"),
    pytest.param("llama_context: flash_attn            = auto", "startup",
                 {"flash_attention": "auto"}, "", id="library: flash attention"),
    pytest.param(
        "llama_kv_cache: size =  180.00 MiB (  1024 cells,  30 layers,  8/8 seqs), K (f16):   "
        "90.00 MiB, V (f16):   90.00 MiB",
        "startup",
        {"kv_bytes": 188743680, "kv_cache_dtype": "f16", "kv_capacity_tok": 8192,
         "kv_unified": False},
        "", id="library: KV cache, split",
    ),
    pytest.param(
        "llama_kv_cache: size =  90.00 MiB (  8192 cells,  30 layers,  8/1 seqs), K (q8_0):   "
        "30.00 MiB, V (f16):   60.00 MiB",
        "startup",
        {"kv_bytes": 94371840, "kv_cache_dtype": "q8_0/f16", "kv_capacity_tok": 8192,
         "kv_unified": True},
        "", id="library: KV cache, shared",
    ),
    pytest.param(
        "llama_kv_cache_unified: size =  90.00 MiB (  8192 cells,  30 layers,  1 seqs), K (f16): "
        "45.00 MiB, V (f16):   45.00 MiB",
        "startup",
        {"kv_bytes": 94371840, "kv_cache_dtype": "f16", "kv_capacity_tok": 8192},
        "", id="library: KV cache, older",
    ),
    pytest.param(
        "llama_new_context_with_model: KV self size  =  256.00 MiB, K (f16):  128.00 MiB, V (f16):"
        "  128.00 MiB",
        "startup", {"kv_bytes": 268435456, "kv_cache_dtype": "f16"}, "",
        id="library: KV cache, old",
    ),
    pytest.param("load_tensors:   CPU_Mapped model buffer size =    92.00 MiB", "startup",
                 {"weights_bytes": 96468992}, "", id="library: weights"),
    pytest.param("print_info: file type   = Q4_1", "startup", {"quantization": "Q4_1"}, "",
                 id="library: file type"),
    pytest.param("llm_load_print_meta: model ftype      = Q5_K - Medium", "startup",
                 {"quantization": "Q5_K - Medium"}, "", id="library: file type, old"),
    pytest.param("print_info: model params     = 134.52 M", "startup", {"parameters": 134520000},
                 "", id="library: parameters"),
    pytest.param("srv          init: build_info: b9931-abcdef", "startup",
                 {"engine_version": "b9931-abcdef"}, "", id="build"),
    pytest.param("build: 5678 (abc1234) with cc (Debian) for x86_64", "startup",
                 {"engine_version": "5678 (abc1234)"}, "", id="build, older"),
    pytest.param("srv    load_model: loading model '/models/a.gguf'", "startup",
                 {"model_path": "/models/a.gguf"}, "", id="model"),
    pytest.param(
        "0.00.749.438 I spec common_specu: adding speculative implementation 'ngram-simple'",
        "startup",
        {"speculation": "ngram-simple"},
        "",
        id="speculation",
    ),
    pytest.param(
        "common_fit: context size reduced from 131072 to 32768 -> need 900 MiB less memory in "
        "total",
        "startup", {"asked_context_tok": 131072, "total_context_tok": 32768}, "", id="fit",
    ),
    pytest.param(
        "spec: synthetic speculative acceptance is enabled for benchmarking; generated output is "
        "not valid",
        "startup", {"simulated_acceptance": True}, "", id="synthetic",
    ),
    pytest.param("srv          init: listening on http://127.0.0.1:8091", "startup",
                 {"ready": True}, "", id="ready"),
    pytest.param("main: server is listening on http://127.0.0.1:8080 - starting the main loop",
                 "startup", {"ready": True}, "", id="ready, older"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "kind", "values", "key"), LINES)
def test_lines(line, kind, values, key):
    record = parse_log(line)
    assert record is not None
    assert (record.kind, record.key) == (kind, key)
    assert same(record.values, values)


@pytest.mark.parametrize(
    "line",
    [
        "http://127.0.0.1:8091",
        "slot launch_slot_: id  7 | task 0 | processing task, is_child = 0",
        "slot get_availabl: id  7 | task -1 | selected slot by LRU, t_last = -1",
        "slot update: id 1 | task 2 | stopped by limit, n_gen = 64, n_predict = 64",
    ],
)
def test_lines_that_say_nothing(line):
    assert parse_log(line) is None


def test_the_captured_log():
    lines = text_of("llamacpp/server.log").splitlines()
    records = [record for line in lines if (record := parse_log(line))]
    tokens = {r.key: r.values["output_tok"] for r in records if "output_tok" in r.values}
    assert len(tokens) == text_of("llamacpp/server.log").count("       eval time =")
    assert sum(tokens.values()) >= 1736, "the metrics page was read before the last requests"
    assert not any(r.values.get("truncated") for r in records)
    ready = [r for r in records if r.values.get("ready")]
    assert len(ready) == 1


@settings(deadline=None)
@given(st.text())
def test_any_text_is_survived(text):
    parse_log(text)


PIECES = st.sampled_from(
    ["eval time = ", "prompt ", " ms / ", "5 tokens", "-nan", "inf", "id  1 | task 2 |", "=", " ",
     "draft acceptance = ", " ( 1 accepted / 2 generated)", "n_gen = 5, tg = ", " t/s",
     "prompt processing, n_tokens = 5, progress = 1.2.3", "model buffer size = ", " MiB",
     "initializing, n_slots = ", "8", "kv_unified = 'maybe'", "model params = 1..2 M", "\x1b[1m",
     "size = x MiB (1 cells, 2 layers, 3/4 seqs), K (f16): V (f16)", "\n", "1" * 400]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=12).map("".join))
def test_pieces_in_any_order_are_survived(text):
    parse_log(text)
    ENGINE.describe({}, None, [text])

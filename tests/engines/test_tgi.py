from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.engines.tgi import ENGINE
from tests.engines.answers import answer, codes, same, values


@pytest.mark.parametrize(
    ("line", "kind", "values"),
    [
        ("2026-11-29T12:00:00Z  INFO chat_completions{total_time=\"1.5s\" "
         "validation_time=\"350.5µs\" queue_time=\"120ms\" inference_time=\"1.37s\" "
         "time_per_token=\"21.4ms\" seed=\"Some(1)\"}: text_generation_router::server: Success",
         "request",
         {"total_ms": 1500.0, "validation_ms": 0.3505, "queue_ms": 120.0, "inference_ms": 1370.0,
          "token_ms": 21.4}),
        ("INFO text_generation_router: router/src/main.rs: Setting max batch total tokens to "
         "32768", "startup", {"kv_capacity_tok": 32768}),
        ("INFO text_generation_router::server: router/src/server.rs: Connected", "startup",
         {"ready": True}),
    ],
)  # fmt: skip
def test_log(line, kind, values):
    record = ENGINE.parse_log(line)
    assert record is not None
    assert record.kind == kind
    assert same(record.values, values)


def test_facts():
    info = {
        "model_id": "org/q", "max_concurrent_requests": 128, "max_input_tokens": 4095,
        "max_total_tokens": 4096, "max_batch_total_tokens": 32768, "version": "3.3.0",
    }  # fmt: skip
    argv = ["text-generation-launcher", "--model-id", "org/q", "--quantize", "awq"]
    assert values(ENGINE.describe({"/info": answer(info)}, argv, [])) == {
        "engine_version": "3.3.0", "model": "org/q", "model_path": "org/q",
        "max_context_tok": 4096, "max_input_tok": 4095, "max_concurrent_requests": 128,
        "kv_capacity_tok": 32768, "total_context_tok": 32768, "quantization": "awq",
        "prefix_caching": True,
    }  # fmt: skip


def test_traps():
    assert codes(ENGINE.traps({}, None, {}, 128)) == {"ends_early"}
    assert "queue_limit" in codes(ENGINE.traps({}, None, {}, 129))
    assert "queue_limit" not in codes(ENGINE.traps({"max_concurrent_requests": 512}, None, {}, 129))


@settings(deadline=None)
@given(st.text())
def test_any_text_is_survived(text):
    ENGINE.parse_log(text)

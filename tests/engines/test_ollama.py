from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.engines.ollama import ENGINE
from tests.engines.answers import answer, codes, same, values

LOADED = {
    "models": [
        {"name": "q:8b", "model": "q:8b", "size": 900, "digest": "d", "size_vram": 800,
         "details": {"quantization_level": "Q4_K_M", "parameter_size": "8.0B"},
         "context_length": 4096, "expires_at": "…"}
    ]
}  # fmt: skip


def test_facts():
    known = values(
        ENGINE.describe(
            {"/api/ps": answer(LOADED), "/api/version": answer({"version": "0.9.1"})},
            ["ollama", "serve"],
            ['msg="server config" env="map[OLLAMA_NUM_PARALLEL:4 OLLAMA_KV_CACHE_TYPE:q8_0]"'],
        )
    )
    assert known == {
        "model": "q:8b", "quantization": "Q4_K_M", "parameters_label": "8.0B",
        "max_context_tok": 4096, "memory_vram_bytes": 800, "size_bytes": 900,
        "engine_version": "0.9.1", "slots": 4, "kv_cache_dtype": "q8_0", "prefix_caching": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "kind", "values"),
    [
        ('[GIN] 2026/11/29 - 12:00:00 | 200 |  1.5s |       127.0.0.1 | POST     '
         '"/v1/chat/completions"', "request",
         {"status": 200, "total_ms": 1500.0, "path": "/v1/chat/completions"}),
        ('level=INFO msg="Listening on 127.0.0.1:11434 (version 0.9.1)"', "startup",
         {"engine_version": "0.9.1", "ready": True}),
    ],
)  # fmt: skip
def test_log(line, kind, values):
    record = ENGINE.parse_log(line)
    assert record is not None
    assert record.kind == kind
    assert same(record.values, values)


def test_traps():
    always = {"truncates_silently", "ends_early"}
    launched = ["ollama", "serve"]
    assert codes(ENGINE.traps({}, launched, {}, 1)) == always | {"unloads_when_idle"}
    assert "slots_below_concurrency" in codes(ENGINE.traps({}, launched, {}, 2))
    assert "slots_below_concurrency" in codes(ENGINE.traps({}, None, {}, 1)), "nobody knows"
    env = {"OLLAMA_NUM_PARALLEL": "8", "OLLAMA_KEEP_ALIVE": "-1", "OLLAMA_MAX_QUEUE": "1024"}
    assert codes(ENGINE.traps({}, launched, env, 8)) == always
    assert "queue_limit" in codes(ENGINE.traps({}, launched, {}, 513))
    assert "queue_limit" not in codes(ENGINE.traps({}, launched, env, 513))


@settings(deadline=None)
@given(st.text())
def test_any_text_is_survived(text):
    ENGINE.parse_log(text)

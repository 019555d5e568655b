from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.engines.llama_swap import ENGINE
from concbench.engines.registry import of_command
from tests.engines.answers import answer, codes, same, values

RUNNING = {
    "running": [
        {"model": "a", "state": "starting", "cmd": "vllm serve a", "proxy": "http://l:1", "ttl": 0},
        {"model": "b", "state": "ready", "cmd": "llama-server \\\n  -m '/m/b c.gguf' --port 5801",
         "proxy": "http://localhost:5801", "ttl": 300, "name": "", "description": ""},
    ]
}  # fmt: skip


def test_facts_of_what_runs_behind_it():
    known = ENGINE.describe(
        {"/running": answer(RUNNING), "/api/version": answer({"version": "v210"})}, None, []
    )
    assert values(known) == {
        "model": "b",
        "upstream_launch": ["llama-server", "-m", "/m/b c.gguf", "--port", "5801"],
        "upstream_url": "http://localhost:5801",
        "upstream_state": "ready",
        "loaded": True,
        "ttl_s": 300,
        "engine_version": "v210",
    }
    behind = of_command(known["upstream_launch"].value)
    assert behind is not None
    assert behind.name == "llamacpp"


def test_nothing_runs():
    known = values(
        ENGINE.describe(
            {"/running": answer({"running": []}), "/v1/models": answer({"data": [{"id": "x"}]})},
            None,
            [],
        )
    )
    assert known == {"loaded": False, "model": "x"}


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ('[INFO] Request 127.0.0.1 "POST /v1/chat/completions HTTP/1.1" 200 5321 "curl/8.5" '
         "1m2.5s",
         {"path": "/v1/chat/completions", "status": 200, "sent_bytes": 5321,
          "total_ms": 62_500.0}),
        ('[INFO] Request ::1 "GET /running HTTP/1.1" 429 80 "-" 350µs',
         {"path": "/running", "status": 429, "sent_bytes": 80, "total_ms": 0.35}),
        ('[INFO] Request ::1 "GET /running HTTP/1.1" 200 80 "-" soon',
         {"path": "/running", "status": 200, "sent_bytes": 80}),
    ],
)  # fmt: skip
def test_log(line, values):
    record = ENGINE.parse_log(line)
    assert record is not None
    assert record.kind == "request"
    assert same(record.values, values)


def test_traps():
    assert codes(ENGINE.traps({}, None, {}, 10)) == {"loading_state_sent"}
    assert "concurrency_limit" in codes(ENGINE.traps({}, None, {}, 11))
    assert "concurrency_limit" in codes(ENGINE.traps({}, None, {}, None))
    assert "unloads_when_idle" in codes(ENGINE.traps({"ttl_s": 300}, None, {}, 1))


@settings(deadline=None)
@given(st.text())
def test_any_text_is_survived(text):
    ENGINE.parse_log(text)
    ENGINE.describe({"/running": answer({"running": [{"cmd": text, "state": text}]})}, None, [])

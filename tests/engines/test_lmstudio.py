from __future__ import annotations

from concbench.engines.lmstudio import ENGINE
from tests.engines.answers import answer, codes, values

MODELS = {
    "data": [
        {"id": "a", "state": "not-loaded", "max_context_length": 8192},
        {"id": "b", "state": "loaded", "quantization": "Q4_K_M", "arch": "llama",
         "max_context_length": 131072, "loaded_context_length": 4096},
    ]
}  # fmt: skip


def test_facts():
    assert values(ENGINE.describe({"/api/v0/models": answer(MODELS)}, None, [])) == {
        "model": "b", "quantization": "Q4_K_M", "max_context_tok": 4096,
        "trained_context_tok": 131072, "loaded": True,
    }  # fmt: skip


def test_nothing_is_guessed_among_several_models():
    only_first = {"data": [MODELS["data"][0], {"id": "c", "state": "not-loaded"}]}
    known = values(ENGINE.describe({"/api/v0/models": answer(only_first)}, None, []))
    assert known == {"loaded": False}


def test_log_and_traps():
    assert ENGINE.parse_log("anything") is None
    assert codes(ENGINE.traps({}, None, {}, 1)) == {"no_metrics", "ends_early"}

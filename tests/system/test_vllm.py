"""A lane of real vLLM on the CPU (`make vllm` builds it): up, asked, compared, measured, down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from concbench.cli.main import main
from tests.serve.processes import all_end
from tests.system.test_lanes import lanes, marked

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".venv-vllm" / "bin" / "vllm"
MODEL = ROOT / ".cache-vllm" / "smollm2"

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PROGRAM.exists() or not MODEL.exists(), reason="needs `make vllm`"),
]

PLAN = f"""
[lanes.vllm]
engine = "vllm"
model = "{MODEL}"
env = {{ HF_HUB_OFFLINE = 1, VLLM_CPU_KVCACHE_SPACE = 2 }}
flags = {{ bin = "{PROGRAM}", enforce-eager = true, max-model-len = 2048, max-num-seqs = 8 }}
reference = "recipe.toml"

[lanes.gguf]
engine = "llamacpp"
model = "embedded"
flags = {{ parallel = 2, ctx-size = 1024 }}
"""
RECIPE = """
engine = "vllm"
[flags]
kv-cache-dtype = "fp8"
speculative-config = { method = "ngram", num_speculative_tokens = 3 }
max-model-len = 2048
"""


@pytest.fixture(autouse=True)
def _plan(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "recipe.toml").write_text(RECIPE)


def test_a_lane_of_real_vllm(capsys):
    found = lanes(capsys, "lint", "vllm")["findings"]
    missing = {one["evidence"]["name"] for one in found if one["code"] == "missing_flag"}
    assert missing == {"kv-cache-dtype", "speculative-config"}
    [up] = lanes(capsys, "up", "vllm")["lanes"]
    engines = marked()
    try:
        facts, extra = up["facts"], up["extra"]
        assert facts["engine_version"].startswith("0.32")
        assert (facts["slots"], facts["max_context_tok"], facts["eager"]) == (8, 2048, True)
        assert facts["kv_capacity_tok"] > 10_000
        assert facts["quantization"] == "bfloat16"
        assert facts["facts_from"]["kv_capacity_tok"] == "endpoint"
        assert extra["tensor_parallel"] == 1
        assert extra["kv_bytes"] == 2 << 30
        assert extra["model_hash"].startswith("sha256:")
        told = lanes(capsys, "diff", "vllm", "gguf")
        assert {"context", "slots", "eager"} <= set(told["unfair"])
        words = ["--levels", "2", "--rounds", "1", "--output-tokens", "40", "--quiet"]
        assert main(["burst", "vllm", *words, "--json", "-"]) in (0, 4)
        result = json.loads(capsys.readouterr().out)
        assert result["target"]["cold_start_s"] == facts["cold_start_s"]
        assert result["cells"][0]["requests"]["ok"] == 2
    finally:
        [ended] = lanes(capsys, "down", "vllm")["lanes"]
    assert ended["teardown"]["port_free"]
    assert ended["teardown"]["left_pids"] == []
    assert all_end(engines, 0)


def test_a_start_that_fails_for_memory_says_what_to_do(capsys, tmp_path):
    plan = PLAN.replace("VLLM_CPU_KVCACHE_SPACE = 2", "VLLM_CPU_KVCACHE_SPACE = 4000")
    (tmp_path / "plan.toml").write_text(plan)
    assert main(["lanes", "up", "vllm", "--quiet"]) == 3
    errors = capsys.readouterr().err
    assert "the CPU's memory is too small for the KV cache asked for; lower VLLM_CPU" in errors
    assert "last lines of" in errors
    assert marked() == []

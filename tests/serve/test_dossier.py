"""What a study keeps of a lane: masked, with the plan's words and what lint has against it."""

from __future__ import annotations

from concbench.plan.model import LanePlan
from concbench.serve.dossier import Origin, dossier
from concbench.serve.http import Access
from concbench.serve.probe import Attached, attach
from tests.serve.server import Reply, models, serving

RUNNING = {
    "model": "m",
    "state": "ready",
    "cmd": "llama-server -m x.gguf -np 3 --api-key hush",
    "ttl": 30,
}
SWAP = {
    "/v1/models": models("m"),
    "/running": Reply(body={"running": [RUNNING]}),
    "/api/version": Reply(body={"version": "v240"}),
}
VLLM = {
    "/v1/models": Reply(body={"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 512}]}),
    "/version": Reply(body={"version": "0.32.0"}),
}


def met(script: dict[str, object]) -> Attached:
    with serving(script) as server:
        return attach(server.url, Access(), "m", lane="there")


def test_of_a_url_alone_the_engines_traps_and_what_the_proxy_tells():
    attached = met(SWAP)
    made = dossier(attached, attached.facts, Origin())
    assert (made["lane"], made["reference"], made["env"]) == ("there", None, {})
    assert made["argv"][-2:] == ["--api-key", "***"]
    assert "hush" not in str(made)
    assert "unloads_when_idle" in {one["code"] for one in made["findings"]}
    assert all(one["kind"] == "trap" and "lane" not in one for one in made["findings"])
    assert attached.facts.facts_from["ttl_s"] == "endpoint"


def test_a_started_lane_keeps_its_own_words_variables_and_steps():
    attached = met(VLLM)
    words = ["vllm", "serve", "m", "--max-num-seqs", "8", "--hf-token", "hush"]
    env = {"HF_TOKEN": "hush", "HF_HUB_OFFLINE": "1"}
    made = dossier(attached, attached.facts, Origin(words, env, {"listening_s": 1.5}))
    assert made["flags"]["max-num-seqs"] in (8, "8")
    assert made["env"] == {"HF_TOKEN": "***", "HF_HUB_OFFLINE": "1"}
    assert made["cold_start"] == {"listening_s": 1.5}
    assert "hush" not in str(made)


def test_the_recipe_is_held_against_the_engine_that_was_met(tmp_path):
    """The plan names no engine for a URL, so that only the server can say which recipe fits."""
    (tmp_path / "r.toml").write_text('engine = "vllm"\n[flags]\nkv-cache-dtype = "fp8"\n')
    attached = met(VLLM)
    plan = LanePlan(name="there", url="http://h:1", reference="r.toml", notes="as found")
    made = dossier(attached, attached.facts, Origin(plan=plan, folder=tmp_path))
    assert (made["reference"], made["notes"]) == ("r.toml", "as found")
    [gap] = [one for one in made["findings"] if one["kind"] == "reference"]
    assert gap["code"] == "flags_unknown"
    words = ["vllm", "serve", "m", "--kv-cache-dtype", "auto"]
    started = dossier(attached, attached.facts, Origin(words, plan=plan, folder=tmp_path))
    [gap] = [one for one in started["findings"] if one["kind"] == "reference"]
    assert (gap["code"], gap["evidence"]["got"]) == ("different_flag", "auto")

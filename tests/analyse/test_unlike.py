from __future__ import annotations

import msgspec
import pytest

from concbench.analyse.unlike import (
    ACCEPTABLE,
    Measured,
    bare_model,
    unfair_names,
    unlike,
    unlike_measured,
)
from concbench.domain import TargetFacts
from concbench.engines.spec import Fact
from concbench.plan.file import parse_plan
from concbench.serve.lint import static_lane
from concbench.serve.probe import fill_facts

SAME = TargetFacts(
    lane="a",
    engine="vllm",
    base_url="http://a",
    model="org/Model-8B-FP8",
    quantization="fp8",
    kv_cache_dtype="auto",
    max_context_tok=4096,
    slots=8,
    prefix_caching=True,
    eager=False,
    speculation="none",
)


def changed(**fields: object) -> TargetFacts:
    return msgspec.structs.replace(SAME, **fields)


def test_a_lane_is_like_itself():
    assert unlike(SAME, SAME) == []


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("quantization", {"quantization": "awq"}),
        ("kv_cache_dtype", {"kv_cache_dtype": "fp8"}),
        ("context", {"max_context_tok": 8192}),
        ("slots", {"slots": 16}),
        ("prompt_cache", {"prefix_caching": False}),
        ("eager", {"eager": True}),
        ("speculation", {"speculation": "mtp k=3"}),
        ("model", {"model": "org/Other-8B-FP8"}),
    ],
)
def test_each_unfairness_has_its_name(name, fields):
    assert unfair_names(unlike(SAME, changed(**fields))) == [name]
    assert name in ACCEPTABLE


@pytest.mark.parametrize(
    "fields",
    [
        {"quantization": "FP8"},
        {"kv_cache_dtype": "bfloat16"},
        {"kv_cache_dtype": "f16"},
        {"eager": None},
        {"engine": "sglang", "engine_version": "1"},
        {"model": "elsewhere/Model-8B-int4-AutoRound", "quantization": "fp8"},
        {"kv_capacity_tok": 99, "memory_bytes": 5},
    ],
)
def test_what_is_not_unfair(fields):
    assert unfair_names(unlike(SAME, changed(**fields))) == []


def test_the_unknown_is_no_difference_but_is_listed():
    [one] = unlike(SAME, changed(quantization=None))
    assert (one.name, one.unfair, one.known) == ("quantization", False, False)


def test_a_hash_settles_which_model_it_is():
    other = changed(model="renamed")
    both = {"model_hash": "sha256:1"}
    assert unlike(SAME, other, both, both) == []
    assert unfair_names(unlike(SAME, other, both, {"model_hash": "sha256:2"})) == ["model"]


def test_the_same_name_with_another_number_of_parameters():
    found = unlike(SAME, SAME, {"parameters": 8_000_000_000}, {"parameters": 27_000_000_000})
    assert unfair_names(found) == ["model"]


def test_sampling_defaults_are_compared_where_both_tell():
    a = {"sampling_defaults": {"temperature": 0.8, "min_p": 0.05000000074505806}}
    b = {"sampling_defaults": {"temperature": 0.8, "min_p": 0.05, "top_k": 20}}
    assert unlike(SAME, SAME, a, b) == []
    b["sampling_defaults"]["temperature"] = 0.6
    [one] = unlike(SAME, SAME, a, b)
    assert (one.name, one.a, one.b) == ("sampling", {"temperature": 0.8}, {"temperature": 0.6})
    [one] = unlike(SAME, SAME, a, {"generation_config": "auto"})
    assert (one.name, one.known) == ("sampling", False)


def test_flags_of_one_engine_are_compared_by_what_they_touch():
    a = {"max-num-batched-tokens": "8192", "speculative-config": {"model": "d1"}, "port": "1"}
    b = {"max-num-batched-tokens": "4096", "speculative-config": {"model": "d2"}, "port": "2"}
    found = {one.name: one.unfair for one in unlike(SAME, SAME, flags_a=a, flags_b=b)}
    assert found == {"speculation": True, "--max-num-batched-tokens": False}
    other = changed(engine="llamacpp")
    assert "--max-num-batched-tokens" not in {o.name for o in unlike(SAME, other, {}, {}, a, b)}


def test_flags_that_lead_to_the_same_fact_are_fair():
    found = unlike(SAME, SAME, flags_a={"max-model-len": "8192"}, flags_b={"max-model-len": "4k"})
    assert [(one.name, one.unfair) for one in found] == [("--max-model-len", False)]


def test_simulated_acceptance():
    assert unfair_names(unlike(SAME, SAME, {"simulated_acceptance": True}, {})) == ["acceptance"]


def test_what_was_measured():
    a = Measured(output_tok_median=128, hit_rate=0.0, acceptance_len=2.5, finish={"length": 99})
    assert unlike_measured(a, a) == []
    b = msgspec.structs.replace(a, output_tok_median=120, hit_rate=0.3, acceptance_len=3.0)
    found = unlike_measured(a, b, interleaved=False)
    assert unfair_names(found) == ["prompt_cache", "output_length", "acceptance", "order"]
    c = msgspec.structs.replace(a, finish={"length": 50, "stop": 49})
    assert unfair_names(unlike_measured(a, c)) == ["output_length"]
    assert unlike_measured(a, Measured()) == []


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("Qwen/Qwen3.6-27B-int4-AutoRound", "qwen3-6-27b"),
        ("/models/Qwen3.6-27B-Q5_K_M.gguf", "qwen3-6-27b"),
        ("unsloth/Qwen3.6-27B-GGUF", "qwen3-6-27b"),
        ("nvidia/Qwen3.6-27B-NVFP4", "qwen3-6-27b"),
        ("Qwen3.6-27B-UD-Q4_K_XL.gguf", "qwen3-6-27b"),
        ("Qwen2-7B", "qwen2-7b"),
    ],
)
def test_bare_names(name, bare):
    assert bare_model(name) == bare


def test_a_published_table_that_compared_unlike_things(tmp_path):
    """One side 4-bit AutoRound at full context and 16 sequences, the other Q5_K_M with -np 2."""
    plan = parse_plan(
        '[lanes.vllm]\ncommand = ["vllm", "serve", "Qwen/Qwen3.6-27B-int4-AutoRound", '
        '"--max-model-len", "131072", "--max-num-seqs", "16"]\n'
        '[lanes.gguf]\ncommand = ["llama-server", "-m", "Qwen3.6-27B-Q5_K_M.gguf", '
        '"-c", "16384", "-np", "2"]\n'
    )
    sides = []
    for lane in plan.lanes.values():
        told = static_lane(lane, tmp_path)
        found = {key: Fact(value, "argv") for key, value in told.known.items()}
        facts = TargetFacts(lane=lane.name, engine=told.engine, base_url="")
        sides.append(fill_facts(facts, found))
    (a, extra_a), (b, extra_b) = sides
    found = unlike(a, b, extra_a, extra_b)
    unfair = {one.name: (one.a, one.b) for one in found if one.unfair}
    assert unfair == {
        "quantization": ("int4-AutoRound", "Q5_K_M"),
        "context": (131072, 8192),
        "slots": (16, 2),
    }

from __future__ import annotations

import pytest

from concbench.errors import PlanError
from concbench.plan.file import parse_plan
from concbench.serve.lint import lint_lane, static_lane
from concbench.serve.recipes import gaps, load_recipe, same_value
from concbench.serve.words import named

RECIPE = """
engine = "vllm"
version = ">= 0.30"
notes = "the settings that the published figure was made with"
[flags]
kv-cache-dtype = "fp8"
speculative-config = { method = "mtp", num_speculative_tokens = 3 }
max-num-seqs = 16
gpu-memory-utilization = 0.90
enable-prefix-caching = false
max-model-len = "*"
[env]
VLLM_USE_V1 = 1
"""


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "r.toml").write_text(RECIPE)
    return load_recipe(tmp_path / "r.toml")


def lane(text: str):
    return parse_plan(f"[lanes.x]\n{text}").lanes["x"]


def test_a_lane_that_lost_its_flags(recipe):
    flags = {"max-num-seqs": 8, "gpu-memory-utilization": "0.9", "tp": 2, "max-model-len": 4096}
    found = gaps(recipe, named(flags, "vllm"), {})
    assert {gap.told for gap in found} == {
        "--kv-cache-dtype = fp8 is missing",
        '--speculative-config = {"method":"mtp","num_speculative_tokens":3} is missing',
        "--enable-prefix-caching = false is missing",
        "--max-num-seqs is 8 instead of 16",
        "VLLM_USE_V1 = 1 is missing",
    }


def test_a_lane_that_carries_it_all_however_it_is_spelled(recipe):
    flags = {
        "kv_cache_dtype": "FP8",
        "sc": '{"num_speculative_tokens": 3, "method": "mtp"}',
        "max-num-seqs": "16",
        "gpu-memory-utilization": 0.9,
        "enable-prefix-caching": False,
        "max-model-len": 1,
    }
    assert gaps(recipe, named(flags, "vllm"), {"VLLM_USE_V1": "1"}) == []


def test_any_value_must_still_be_there(recipe):
    told = [gap.told for gap in gaps(recipe, {}, {})]
    assert "--max-model-len is missing" in told


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [("0.90", 0.9, True), ("True", True, True), ("q8_0", "Q8_0", True), ("1", True, True),
     ([1, "2"], ["1", 2], True), ([1], [1, 2], False), ({"a": 1}, {"a": "1"}, True),
     ({"a": 1}, {"b": 1}, False), ("fp8", "fp8_e5m2", False), (False, "x", False)],
)  # fmt: skip
def test_values_that_mean_the_same(a, b, same):
    assert same_value(a, b) is same


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("engine = 'vllm'", "the key flags is missing"),
        ("engine = 'vllm'\nflag = 1\n[flags]\n", "flag: unknown key; did you mean 'flags'"),
        ("engine = 'vlm'\n[flags]\n", "did you mean vllm"),
        ("engine = \n", "cannot read the recipe"),
        ("engine = 'vllm'\nflags = 3", "Expected `object`"),
    ],
)
def test_a_wrong_recipe_says_what_is_right(tmp_path, text, says):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(PlanError, match=says):
        load_recipe(tmp_path / "r.toml")


def test_a_missing_recipe(tmp_path):
    with pytest.raises(PlanError, match="No such file"):
        load_recipe(tmp_path / "none.toml")


def test_lint_names_gaps_and_traps(tmp_path, recipe):
    text = (
        'engine = "vllm"\nmodel = "org/m"\nreference = "r.toml"\n'
        "flags = { enforce-eager = true, max-num-seqs = 16 }"
    )
    found = lint_lane(lane(text), tmp_path)
    missing = {one.evidence["name"] for one in found if one.code == "missing_flag"}
    assert {"kv-cache-dtype", "speculative-config"} <= missing
    assert all(one.doubt == "lane_incomplete" for one in found if one.kind == "reference")
    traps = {one.code: one.doubt for one in found if one.kind == "trap"}
    assert traps["eager"] == "not_comparable"


def test_lint_by_command_container_and_url(tmp_path, recipe):
    full = (
        '"--kv-cache-dtype", "fp8", "--sc.method", "mtp", "--sc.num_speculative_tokens", "3", '
        '"--max-num-seqs", "16", "--gpu-memory-utilization", "0.9", "--no-enable-prefix-caching", '
        '"--max-model-len", "9"'
    )
    env = "env = { VLLM_USE_V1 = 1 }\nreference = 'r.toml'"
    for text in (
        f'command = ["vllm", "serve", "m", {full}]\n{env}',
        f'container = {{ image = "vllm/vllm-openai:v1", args = ["--model", "m", {full}] }}\n{env}',
    ):
        found = lint_lane(lane(text), tmp_path)
        assert [one for one in found if one.kind == "reference"] == []
    [unknown] = [
        one
        for one in lint_lane(lane(f'url = "http://h:1"\nengine = "vllm"\n{env}'), tmp_path)
        if one.kind == "reference"
    ]
    assert unknown.code == "flags_unknown"
    [other] = [
        one
        for one in lint_lane(lane(f'command = ["llama-server", "-m", "m"]\n{env}'), tmp_path)
        if one.kind == "reference"
    ]
    assert other.code == "other_engine"


def test_a_simulated_acceptance_is_fatal(tmp_path):
    text = 'command = ["llama-server", "-m", "m", "--spec-synth-len", "3"]'
    codes = {one.code: one.doubt for one in lint_lane(lane(text), tmp_path)}
    assert codes["simulated_acceptance"] == "simulated_acceptance"


def test_what_the_plan_alone_tells(tmp_path):
    boxed = static_lane(
        lane('container = { image = "vllm/vllm-openai:v0.32.0", args = ["--model", "Q/X-AWQ"] }'),
        tmp_path,
    )
    assert boxed.known["engine_version"] == "0.32.0"
    assert boxed.known["quantization"] == "AWQ"
    assert boxed.sources["quantization"] == "argv"
    assert static_lane(lane('url = "http://h:1"'), tmp_path).known == {}

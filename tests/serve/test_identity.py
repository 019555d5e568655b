from __future__ import annotations

import hashlib
import json

import pytest

from concbench.serve import identity
from concbench.serve.enrich import quantization_in
from concbench.serve.identity import file_hash, model_facts


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_file_is_hashed_whole_and_once(tmp_path, monkeypatch):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"weights")
    wanted = "sha256:" + hashlib.sha256(b"weights").hexdigest()
    assert file_hash(path) == wanted
    monkeypatch.setattr(identity, "_hash", lambda *_: pytest.fail("hashed again"))
    assert file_hash(path) == wanted


def test_a_changed_file_is_hashed_again(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"one")
    first = file_hash(path)
    path.write_bytes(b"another")
    assert file_hash(path) != first


def test_a_large_file_is_hashed_at_its_ends_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "WHOLE_BYTES", 10)
    monkeypatch.setattr(identity, "PART_BYTES", 4)
    path = tmp_path / "m.gguf"
    path.write_bytes(b"head--middle--tail")
    whole = file_hash(path)
    assert whole == "partial-sha256:" + hashlib.sha256(b"headtail18").hexdigest()


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"x")
    (tmp_path / "file").write_text("")
    assert file_hash(path, tmp_path / "file" / "cache.json").startswith("sha256:")


def test_what_a_folder_tells(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "a.safetensors").write_bytes(b"12")
    (model / "b.safetensors").write_bytes(b"345")
    config = {"quantization_config": {"quant_method": "auto-round", "bits": 4}, "dtype": "float16"}
    (model / "config.json").write_text(json.dumps(config))
    (model / "generation_config.json").write_text('{"temperature": 0.6, "eos_token_id": 2}')
    told = {key: fact.value for key, fact in model_facts(str(model), "auto").items()}
    assert told["model_bytes"] == 5
    assert told["model_hash"].startswith("sha256:")
    assert told["quantization"] == "auto-round 4-bit"
    assert told["sampling_defaults"] == {"temperature": 0.6}
    assert "sampling_defaults" not in model_facts(str(model), "vllm")
    (model / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    assert model_facts(str(model))["quantization"].value == "bfloat16"


@pytest.mark.parametrize("path", [None, "", "org/name", "/nowhere/m.gguf"])
def test_what_is_not_here_tells_nothing(path):
    assert model_facts(path) == {}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Qwen3.6-27B-Q5_K_M.gguf", "Q5_K_M"),
        ("x-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("m-IQ3_XXS", "IQ3_XXS"),
        ("org/M-27B-int4-AutoRound", "int4-AutoRound"),
        ("org/M-AWQ", "AWQ"),
        ("M-NVFP4", "NVFP4"),
        ("M-MXFP4", "MXFP4"),
        ("M-W4A16", "W4A16"),
        ("M-8B-FP8", "FP8"),
        ("M-8B-BF16.gguf", "BF16"),
        ("Llama-3-8B", None),
        ("hawq-model", None),
        (None, None),
    ],
)
def test_a_quantization_that_the_name_spells_out(name, told):
    assert quantization_in(name) == told

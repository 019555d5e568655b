"""Models on demand for real, where the programs are on PATH: llama-swap, llama-server's router."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from concbench.serve.embedded import find_model
from tests.system.test_lanes import lanes, marked

pytestmark = pytest.mark.system

SWAP = shutil.which("llama-swap")
SERVER = shutil.which("llama-server")


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.skipif(SWAP is None, reason="llama-swap is not on PATH")
def test_llama_swap(capsys):
    settings = {"model": str(find_model()), "host": "127.0.0.1", "parallel": 1, "ctx-size": 512}
    models = {}
    for name in ("a", "b"):
        words = json.dumps({**settings, "alias": name, "port": 1}).replace(": 1}", ": ${PORT}}")
        command = f"{sys.executable} -m concbench.serve.llamacpp_child --json '{words}'"
        models[name] = {"cmd": command, "checkEndpoint": "/health"}
    Path("swap.yaml").write_text(json.dumps({"models": models}))
    Path("plan.toml").write_text(
        f'[lanes.swap]\ncommand = ["{SWAP}", "--config", "swap.yaml"]\nmodel = "a"\n'
    )
    [up] = lanes(capsys, "up", "swap")["lanes"]
    try:
        assert up["extra"]["upstream_engine"] == "llamacpp"
        assert up["extra"]["model_load_s"] > 0
        payload = lanes(capsys, "swap", "swap", "b", "a")
        assert [one["model"] for one in payload["swaps"]] == ["b", "a"]
        assert all(one["unload_s"] is not None for one in payload["swaps"])
    finally:
        lanes(capsys, "down", "swap")
    assert marked() == []


@pytest.mark.skipif(SERVER is None, reason="llama-server is not on PATH")
def test_the_router(capsys, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.gguf").symlink_to(find_model())
    flags = f'{{ models-dir = "{folder}", models-max = 1, c = 512, np = 1 }}'
    Path("plan.toml").write_text(
        f'[lanes.router]\nengine = "llamacpp"\nmodel = "a"\nflags = {flags}\n'
    )
    [up] = lanes(capsys, "up", "router")["lanes"]
    try:
        assert up["extra"]["router"] is True
        payload = lanes(capsys, "swap", "router", "b", "a")
        assert [one["model"] for one in payload["swaps"]] == ["b", "a"]
    finally:
        lanes(capsys, "down", "router")
    assert marked() == []

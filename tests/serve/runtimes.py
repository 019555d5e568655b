"""The stand-in runtime on PATH, as `docker` and `podman`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from concbench.serve.container import ContainerRecipe
from concbench.serve.lane import Recipe
from concbench.serve.ports import free_port

PROGRAM = Path(__file__).with_name("fake_runtime.py")
IMAGE = "fake/engine:1.2"


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the runtime first on PATH; return its state folder, in which the image is there."""
    bin_folder, state = tmp_path / "bin", tmp_path / "runtime"
    bin_folder.mkdir()
    state.mkdir()
    (state / "images").write_text(IMAGE)
    for name in ("docker", "podman"):
        script = bin_folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{PROGRAM}" "$@"\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_RUNTIME_STATE", str(state))
    return state


def boxed(tmp_path: Path, *args: str, **options: object) -> Recipe:
    """Return the recipe of a container whose engine gets these arguments: REQUESTS MODE."""
    port = free_port()
    box = ContainerRecipe(
        runtime=str(tmp_path / "bin" / "docker"),
        image=IMAGE,
        args=args or ("0",),
        host_port=port,
        **options,  # type: ignore[arg-type]
    )
    return Recipe(
        "boxed", "openai", (), f"http://127.0.0.1:{port}", described_as=args, container=box
    )

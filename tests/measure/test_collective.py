"""Without torch: a stand-in package takes its place in the child process."""

import importlib.util
import sys

import pytest

from concbench.errors import MissingExtra, TargetError
from concbench.measure import collective

STAND_IN = """
float32 = "float32"
def zeros(n, dtype, device):
    return [0.0] * n
"""
DISTRIBUTED = """
import os
class TCPStore:
    def __init__(self, host, port, world, is_master, master_listen_fd):
        assert master_listen_fd is None
        if host == "nobody":
            raise RuntimeError("no such rank")
    def set(self, key, value):
        assert value == "127.0.0.1"
def init_process_group(backend, store, rank, world_size):
    assert (backend, rank, world_size) == ("gloo", 0, 2)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
def all_reduce(tensor):
    assert len(tensor) == 4096
def destroy_process_group():
    print("a line of its own")
"""


@pytest.fixture
def torch(tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(STAND_IN)
    (tmp_path / "torch" / "distributed.py").write_text(DISTRIBUTED)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:src")


@pytest.mark.usefixtures("torch")
def test_times_come_back():
    times = collective.all_reduce_ns("127.0.0.1", 1, "gloo", 16_384, 7)
    assert len(times) == 7
    assert min(times) > 0


@pytest.mark.usefixtures("torch")
def test_what_torch_said_is_told():
    with pytest.raises(TargetError, match="no such rank"):
        collective.all_reduce_ns("nobody", 1, "gloo", 16_384, 1)


def test_without_torch(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="torch is not installed"):
        collective.all_reduce_ns("127.0.0.1", 1, "gloo", 16_384, 1)


def test_another_python_that_has_no_torch(tmp_path):
    python = tmp_path / "python"
    with pytest.raises(MissingExtra, match="No such file"):
        collective.require_torch(python)
    python.write_text("#!/bin/sh\necho no module of that name >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(MissingExtra, match=r"no module of that name\): it needs torch and msgspec"):
        collective.require_torch(python)


@pytest.mark.usefixtures("torch")
def test_another_python_finds_this_package(tmp_path):
    # The stand-in package lies where that Python looks anyhow: behind the path that it is given.
    python = tmp_path / "python"
    path = f'PYTHONPATH="$PYTHONPATH:{tmp_path}" exec {sys.executable} "$@"'
    python.write_text(f"#!/bin/sh\n{path}\n")
    python.chmod(0o755)
    times = collective.all_reduce_ns("127.0.0.1", 1, "gloo", 16_384, 3, python=python)
    assert len(times) == 3

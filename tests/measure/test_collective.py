"""Without torch: a stand-in package takes its place in the child process."""

import importlib.util

import pytest

from concbench.errors import MissingExtra, TargetError
from concbench.measure import collective

STAND_IN = """
float32 = "float32"
def zeros(n, dtype, device):
    return [0.0] * n
"""
DISTRIBUTED = """
def TCPStore(host, port, world, is_master):
    if host == "nobody":
        raise RuntimeError("no such rank")
def init_process_group(backend, store, rank, world_size):
    assert (backend, rank, world_size) == ("gloo", 0, 2)
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
    times = collective.all_reduce_ns("box", 1, "gloo", 16_384, 7)
    assert len(times) == 7
    assert min(times) > 0


@pytest.mark.usefixtures("torch")
def test_what_torch_said_is_told():
    with pytest.raises(TargetError, match="no such rank"):
        collective.all_reduce_ns("nobody", 1, "gloo", 16_384, 1)


def test_without_torch(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="torch is not installed"):
        collective.all_reduce_ns("box", 1, "gloo", 16_384, 1)

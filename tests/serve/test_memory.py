from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from concbench.serve import memory
from concbench.serve.memory import (
    GPU_SLACK_BYTES,
    gpu_bytes_of,
    gpu_teardown,
    gpu_used_bytes,
    tree_rss_bytes,
)

GIB = 1 << 30


class Nvml:
    """Two GPUs; `used` is a list of readings, the last of which stays."""

    class NVMLError(Exception):
        pass

    def __init__(self, *used: tuple[int, int], users: dict[int, int] | None = None) -> None:
        self.used = list(used)
        self.users = users or {}

    def nvmlInit(self):  # noqa: N802 - NVML's names
        if not self.used:
            raise self.NVMLError

    def nvmlShutdown(self):  # noqa: N802
        if len(self.used) > 1:
            self.used.pop(0)

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetMemoryInfo(self, index):  # noqa: N802
        return SimpleNamespace(used=self.used[0][index])

    def nvmlDeviceGetComputeRunningProcesses(self, index):  # noqa: N802
        found = self.users.items() if index == 0 else ()
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in found]


def test_without_a_gpu_nothing_is_said():
    assert gpu_used_bytes(Nvml()) is None
    assert gpu_bytes_of([1], None, Nvml()) is None
    assert gpu_teardown(None, Nvml()) == {}


def test_an_engines_own_memory_else_the_growth():
    assert gpu_used_bytes(Nvml((1, 2))) == {0: 1, 1: 2}
    assert gpu_bytes_of([7], {0: 0, 1: 0}, Nvml((GIB, 0), users={7: 5, 8: 9})) == 5
    assert gpu_bytes_of([7], {0: 0, 1: GIB}, Nvml((2 * GIB, 3 * GIB))) == 4 * GIB
    assert gpu_bytes_of([7], {0: GIB, 1: 0}, Nvml((GIB + 1, 0))) is None
    assert gpu_bytes_of([7], None, Nvml((GIB, 0))) is None


def test_memory_that_comes_back_late_is_waited_for(monkeypatch):
    monkeypatch.setattr(memory, "_POLL_S", 0.0)
    told = gpu_teardown({0: 10, 1: 0}, Nvml((GIB, 0), (GIB, 0), (GPU_SLACK_BYTES, 0)))
    assert told == {"gpu_before_bytes": 10, "gpu_after_bytes": GPU_SLACK_BYTES, "gpu_back": True}


def test_memory_that_stays_away_is_told(monkeypatch):
    monkeypatch.setattr(memory, "_BACK_S", 0.0)
    assert gpu_teardown({0: 0, 1: 0}, Nvml((GIB, 0)))["gpu_back"] is False


def test_resident_memory_of_a_tree():
    assert tree_rss_bytes([os.getpid()]) > 1 << 20
    assert tree_rss_bytes([]) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            memory.psutil, "Process", lambda _: (_ for _ in ()).throw(memory.psutil.Error)
        )
        assert tree_rss_bytes([1]) is None

# ruff: noqa: N802 - the fake has the library's own names
from types import SimpleNamespace

import pytest

from concbench.observe import gpu
from concbench.observe.gpu import Gpus


class FakeNvml:
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self, users=(), refuse=()):
        self.users, self.refuse = users, set(refuse)

    def nvmlInit(self):
        if "nvmlInit" in self.refuse:
            raise self.NVMLError

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetClockInfo(self, on, which):
        return {1: 1980, 2: 3201}[which]

    def nvmlDeviceGetUtilizationRates(self, on):
        return SimpleNamespace(gpu=87)

    def nvmlDeviceGetMemoryInfo(self, on):
        return SimpleNamespace(used=5 << 30)

    def nvmlDeviceGetPowerUsage(self, on):
        if "nvmlDeviceGetPowerUsage" in self.refuse:
            raise self.NVMLError
        return 350_500

    def nvmlDeviceGetTemperature(self, on, which):
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, on):
        return 0x44

    def nvmlDeviceGetComputeRunningProcesses(self, on):
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.users]


@pytest.fixture
def first_namespace(monkeypatch):
    monkeypatch.setattr(gpu, "_namespace", lambda: gpu._FIRST_PID_NAMESPACE)


def named(readings):
    return {(name, labels): value for name, labels, value in readings}


def test_what_a_gpu_tells(first_namespace):
    found = named(
        Gpus(FakeNvml([(10, 4 << 30), (11, None), (999_999_999, 1 << 20)])).read({10, 11})
    )
    assert found[("gpu_clock_mhz", "gpu=0")] == 1980
    assert found[("gpu_util", "gpu=0")] == 0.87
    assert found[("gpu_power_w", "gpu=0")] == 350.5
    assert found[("gpu_throttle_reasons", "gpu=0")] == 0x44
    assert found[("gpu_own_bytes", "gpu=0")] == 4 << 30
    assert found[("gpu_user_bytes", "gpu=0,pid=999999999,name=unknown")] == 1 << 20


def test_what_it_will_not_tell_is_left_out(first_namespace):
    found = named(Gpus(FakeNvml(refuse=["nvmlDeviceGetPowerUsage"])).read({10}))
    assert ("gpu_power_w", "gpu=0") not in found
    assert ("gpu_clock_mhz", "gpu=0") in found


def test_from_inside_a_container_process_numbers_say_nothing(monkeypatch):
    monkeypatch.setattr(gpu, "_namespace", lambda: "pid:[4026532999]")
    found = named(Gpus(FakeNvml([(10, 1)])).read({10}))
    assert not [name for name, _ in found if name in ("gpu_user_bytes", "gpu_own_bytes")]


def test_no_driver_is_no_gpu():
    gpus = Gpus(FakeNvml(refuse=["nvmlInit"]))
    assert not gpus
    assert gpus.read({1}) == []
    assert isinstance(Gpus().read({1}), list)

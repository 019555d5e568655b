"""NVIDIA GPUs meanwhile: clocks, use, memory, why they are slowed, and who else is on them.

Where there is no driver, or it will not say, nothing is said: never an error, never a 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import pynvml

from concbench.observe.hostload import Reading, plain

_FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""The namespace that the kernel starts with; its number is fixed (`PROC_PID_INIT_INO`)."""


class Gpus:
    """Reads all GPUs that NVML shows."""

    def __init__(self, nvml: Any = pynvml) -> None:  # noqa: ANN401 - the module, or a fake of it
        self._nvml = nvml
        self._handles: list[Any] = []
        # From inside another namespace the driver's process numbers are other processes'.
        self._pids_are_ours = _namespace() in (_FIRST_PID_NAMESPACE, None)
        try:
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
            self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except nvml.NVMLError:
            self._handles = []

    def __bool__(self) -> bool:
        return bool(self._handles)

    def read(self, own_pids: Collection[int]) -> list[Reading]:
        """Return what each GPU tells. `own_pids` are the processes that are not foreign."""
        found: list[Reading] = []
        for index, handle in enumerate(self._handles):
            label = f"gpu={index}"
            for name, ask in _QUESTIONS:
                value = self._ask(ask, handle)
                if value is not None:
                    found.append((name, label, float(value)))
            if self._pids_are_ours and own_pids:
                found += self._users(handle, label, own_pids)
        return found

    def _ask(self, ask: Callable[[Any, Any], Any], handle: Any) -> Any:  # noqa: ANN401
        try:
            return ask(self._nvml, handle)
        except (self._nvml.NVMLError, AttributeError, TypeError):
            return None

    def _users(
        self,
        handle: Any,  # noqa: ANN401 - NVML's own
        label: str,
        own_pids: Collection[int],
    ) -> list[Reading]:
        running = self._ask(lambda nvml, on: nvml.nvmlDeviceGetComputeRunningProcesses(on), handle)
        own_bytes, own = 0.0, False
        found: list[Reading] = []
        for process in running or ():
            used = float(process.usedGpuMemory or 0)
            if process.pid in own_pids:
                own, own_bytes = True, own_bytes + used
            else:
                who = f"{label},pid={process.pid},name={plain(_name(process.pid))}"
                found.append(("gpu_user_bytes", who, used))
        return [*found, ("gpu_own_bytes", label, own_bytes)] if own else found


_QUESTIONS: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
    ("gpu_clock_mhz", lambda nvml, on: nvml.nvmlDeviceGetClockInfo(on, nvml.NVML_CLOCK_SM)),
    ("gpu_memory_clock_mhz", lambda nvml, on: nvml.nvmlDeviceGetClockInfo(on, nvml.NVML_CLOCK_MEM)),
    ("gpu_util", lambda nvml, on: nvml.nvmlDeviceGetUtilizationRates(on).gpu / 100),
    ("gpu_memory_used_bytes", lambda nvml, on: nvml.nvmlDeviceGetMemoryInfo(on).used),
    ("gpu_power_w", lambda nvml, on: nvml.nvmlDeviceGetPowerUsage(on) / 1e3),
    (
        "gpu_temperature_c",
        lambda nvml, on: nvml.nvmlDeviceGetTemperature(on, nvml.NVML_TEMPERATURE_GPU),
    ),
    (
        "gpu_throttle_reasons",
        lambda nvml, on: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(on),
    ),
)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "unknown"


def _namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None

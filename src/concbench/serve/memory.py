"""Memory of an engine: resident pages of its processes, and GPU memory where NVML shows it.

Where there is no driver, or it will not say, the answer is None: never an error, never a 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pynvml

from concbench.clock import now_ns, sleep_s

GPU_SLACK_BYTES = 64 << 20
"""A driver keeps some memory for itself once it was used; below this all of it is back."""

_BACK_S = 5.0
_POLL_S = 0.2


def gpu_used_bytes(nvml: Any = pynvml) -> dict[int, int] | None:  # noqa: ANN401 - or a fake of it
    """Return the memory in use on each GPU, by index; None without one."""
    with _gpus(nvml) as handles:
        used = {}
        for index, handle in enumerate(handles):
            with suppress(nvml.NVMLError):
                used[index] = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        return used or None


def gpu_bytes_of(
    pids: Collection[int],
    before: Mapping[int, int] | None,
    nvml: Any = pynvml,  # noqa: ANN401 - the module, or a fake of it
) -> int | None:
    """Return the GPU memory of these processes, else the growth since `before`; None unknown.

    Inside a container the driver's process numbers are others, which leaves the growth.
    """
    found = 0
    with _gpus(nvml) as handles:
        for handle in handles:
            with suppress(nvml.NVMLError):
                for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                    if process.pid in pids:
                        found += int(process.usedGpuMemory or 0)
    if found:
        return found
    after = gpu_used_bytes(nvml)
    if before is None or after is None:
        return None
    grown = sum(max(0, size - before.get(index, 0)) for index, size in after.items())
    return grown if grown > GPU_SLACK_BYTES else None


def gpu_teardown(
    before: Mapping[int, int] | None,
    nvml: Any = pynvml,  # noqa: ANN401 - the module, or a fake of it
) -> dict[str, Any]:
    """Return `gpu_before_bytes`, `gpu_after_bytes` and `gpu_back`; waits a little for the driver.

    Empty where there is no GPU.
    """
    if before is None:
        return {}
    end_ns = now_ns() + int(_BACK_S * 1e9)
    while True:
        after = gpu_used_bytes(nvml) or {}
        back = all(after.get(index, 0) <= size + GPU_SLACK_BYTES for index, size in before.items())
        if back or now_ns() > end_ns:
            return {
                "gpu_before_bytes": sum(before.values()),
                "gpu_after_bytes": sum(after.values()),
                "gpu_back": back,
            }
        sleep_s(_POLL_S)


def tree_rss_bytes(pids: Collection[int]) -> int | None:
    """Return the resident memory of processes and their descendants; None where none is seen."""
    seen: dict[int, int] = {}
    for pid in pids:
        with suppress(psutil.Error):
            root = psutil.Process(pid)
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.Error):
                    seen[process.pid] = process.memory_info().rss
    return sum(seen.values()) if seen else None


@contextmanager
def _gpus(nvml: Any) -> Iterator[list[Any]]:  # noqa: ANN401 - the module, or a fake of it
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        yield []
        return
    try:
        yield handles
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()

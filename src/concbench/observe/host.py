"""What machine this is: the facts that a result depends on, read once a study."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

import psutil


def machine(tool_version: str) -> dict[str, Any]:
    """Return the machine's fingerprint: hardware, kernel, clock, Python, GPUs. Unknown is None.

    `fingerprint` is a hash over what must be the same for rounds to be merged.
    """
    facts: dict[str, Any] = {
        "cpu_model": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "cpu_physical": psutil.cpu_count(logical=False),
        "cpu_governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "clock_source": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "python": platform.python_version(),
        "gpus": gpus(),
        "load_average": round(os.getloadavg()[0], 2),
        "tool_version": tool_version,
    }
    same = ("cpu_model", "cpu_count", "memory_bytes", "kernel", "architecture", "gpus")
    text = repr([facts[key] for key in same])
    facts["fingerprint"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return facts


def gpus() -> list[dict[str, Any]]:
    """Return name, memory and driver of each NVIDIA GPU; empty where there is none."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append(
                {
                    "name": pynvml.nvmlDeviceGetName(handle),
                    "memory_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                    "driver": driver,
                }
            )
        return found
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _cpu_model() -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.lower().startswith(("model name", "hardware")):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None

"""What the machines did during a cell's rounds, from the observer's own readings.

Of the machine that the client runs on, and of its GPUs where the engine runs there too. What was
not read is None and never 0. Means are over readings, each of which stands for about a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from concbench.domain import Round, ServerSample

_MEANS: Final = ("cpu_cores", "cpu_busy_cores", "cpu_foreign_cores", "cpu_clock_mhz")
_GPU_MEANS: Final = ("gpu_clock_mhz", "gpu_memory_clock_mhz", "gpu_util", "gpu_power_w")
_GPU_MOST: Final = ("gpu_memory_used_bytes", "gpu_temperature_c")


def machine_load(rounds: Sequence[Round]) -> dict[str, Any] | None:
    """Return CPU (cores), memory and swap (bytes), and `gpus`, during the rounds.

    `cpu_foreign_cores` is by processes that are neither the engine's nor ours, `swapped_bytes`
    what was moved to or from swap meanwhile. None where nothing was read.
    """
    inside = [
        (each.round_id, sample)
        for each in rounds
        for sample in each.samples
        if sample.source in ("host", "gpu")
        and sample.value is not None
        and each.start_ns <= sample.received_ns <= each.end_ns
    ]
    if not inside:
        return None
    samples = [sample for _, sample in inside]
    found: dict[str, Any] = {name: _mean(_values(samples, name)) for name in _MEANS}
    found["cpu_foreign_max_cores"] = max(_values(samples, "cpu_foreign_cores"), default=None)
    found["cpu_group_cores"] = _by_group(samples)
    found["memory_available_min_bytes"] = min(
        _values(samples, "memory_available_bytes"), default=None
    )
    found["page_cache_bytes"] = _mean(_values(samples, "page_cache_bytes"))
    found["swap_used_max_bytes"] = max(_values(samples, "swap_used_bytes"), default=None)
    found["swapped_bytes"] = _swapped(inside)
    found["gpus"] = _gpus(samples)
    return found


def _values(samples: Sequence[ServerSample], name: str) -> list[float]:
    return [s.value for s in samples if s.name == name and s.value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _by_group(samples: Sequence[ServerSample]) -> dict[str, float]:
    """Cores used by `engine`, `client` and `observer`, each a mean over its readings."""
    groups: dict[str, list[float]] = {}
    for sample in samples:
        if sample.name == "cpu_group_cores" and sample.value is not None:
            name = sample.labels.removeprefix("group=")
            groups.setdefault(name, []).append(sample.value)
    return {name: sum(values) / len(values) for name, values in sorted(groups.items())}


def _swapped(inside: Sequence[tuple[str, ServerSample]]) -> float | None:
    """The growth of both swap counters inside each round, added up."""
    series: dict[tuple[str, str], list[float]] = {}
    for round_id, sample in inside:
        if sample.name in ("swapped_in_bytes", "swapped_out_bytes") and sample.value is not None:
            series.setdefault((round_id, sample.name), []).append(sample.value)
    return sum(values[-1] - values[0] for values in series.values()) if series else None


def _gpus(samples: Sequence[ServerSample]) -> list[dict[str, Any]]:
    labels = sorted({s.labels for s in samples if s.name in (*_GPU_MEANS, *_GPU_MOST)})
    found = []
    for label in labels:
        own = [sample for sample in samples if sample.labels == label]
        entry: dict[str, Any] = {"gpu": label.removeprefix("gpu=")}
        for name in _GPU_MEANS:
            entry[name.removeprefix("gpu_")] = _mean(_values(own, name))
        for name in _GPU_MOST:
            entry[name.removeprefix("gpu_")] = max(_values(own, name), default=None)
        found.append(entry)
    return found

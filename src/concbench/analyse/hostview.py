"""Doubts about the machine: hardware that slowed itself down, and others on the same GPU.

A GPU's clock is compared with its own median over the cell's rounds, never with a data sheet: a
power limit that holds throughout is how that machine is. Readings count while the GPU works only,
for an idle GPU clocks down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, Final

from concbench.analyse.evidence import Evidence
from concbench.analyse.severity import doubt
from concbench.domain import Doubt, Round, ServerSample
from concbench.result import CellResult

SLOW_SHARE: Final = 0.10
"""Clock below the median by this share from which a reading, or a round, counts as slow."""

SLOW_READINGS: Final = 0.20
"""Share of a round's readings that must be slow; at least two of them."""

MIN_UTIL: Final = 0.10
REASONS: Final = {0x08: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "power_brake"}
"""NVML's bits that always mean less than the hardware can do; power cap (4), idle (1) do not."""

POWER_CAP: Final = 0x04
MIN_SIGHTINGS: Final = 2
"""A process seen once may be one of ours that had just begun."""


def throttled(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Yield a doubt where a GPU or the CPU was slowed in some round."""
    found = slow_rounds(seen.rounds)
    if not found:
        return
    shown = "; ".join(_told(item) for item in found[:3])
    yield doubt(
        "throttled",
        result.cell,
        f"the hardware slowed down in {len({item['round'] for item in found})} rounds ({shown}): "
        "those rounds are not comparable with the others. Cool it, or lower and fix its clocks.",
        {"slow": found},
    )


def other_gpu_users(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Yield a doubt where other processes computed on a GPU that the lane uses."""
    found = foreign_users(seen.rounds)
    if not found:
        return
    shown = ", ".join(
        f"{item['name']} (pid {item['pid']}) on GPU {item['gpu']}" for item in found[:3]
    )
    yield doubt(
        "other_gpu_users",
        result.cell,
        f"{len(found)} other processes held the lane's GPU ({shown}): they may take time and "
        "memory from it. End them and measure again, or trust interleaved pairs only.",
        {"users": found},
    )


CHECKS = (throttled, other_gpu_users)


def slow_rounds(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return one entry a round and device that was slow: clocks in MHz, share, reasons."""
    clocks = {each.round_id: _clocks(each) for each in rounds}
    pooled: dict[str, list[float]] = {}
    for of_round in clocks.values():
        for gpu, values in of_round.items():
            pooled.setdefault(gpu, []).extend(values)
    usual = {gpu: median(values) for gpu, values in pooled.items()}
    found = []
    for each in rounds:
        reasons = _reasons(each)
        for gpu in sorted(set(clocks[each.round_id]) | set(reasons)):
            values = clocks[each.round_id].get(gpu, [])
            entry = _slow(values, usual.get(gpu, 0.0), reasons.get(gpu, ()))
            if entry:
                found.append({"round": each.round_id, "device": f"gpu {gpu}", **entry})
        if (times := _cpu_throttles(each)) > 0:
            found.append({"round": each.round_id, "device": "cpu", "throttled_times": times})
    return found


def foreign_users(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return the other processes on GPUs where the lane's own are: pid, name, most bytes."""
    used: dict[tuple[str, str, str], list[float]] = {}
    for each in rounds:
        inside = list(_inside(each))
        own = {_label(s.labels, "gpu") for s in inside if s.name == "gpu_own_bytes"}
        for sample in inside:
            gpu = _label(sample.labels, "gpu")
            if sample.name == "gpu_user_bytes" and gpu in own:
                who = (gpu, _label(sample.labels, "pid"), _label(sample.labels, "name"))
                used.setdefault(who, []).append(sample.value or 0.0)
    return [
        {"gpu": gpu, "pid": int(pid or 0), "name": name, "most_bytes": int(max(sizes))}
        for (gpu, pid, name), sizes in sorted(used.items())
        if len(sizes) >= MIN_SIGHTINGS
    ]


def _slow(values: Sequence[float], usual: float, reasons: Sequence[str]) -> dict[str, Any]:
    """Return how a device was slow, empty when it was not."""
    if not values:
        return {"reasons": list(reasons)} if _always_bad(reasons) else {}
    own = median(values)
    slow = [value for value in values if value < (1 - SLOW_SHARE) * own]
    dropped = len(slow) >= max(2, SLOW_READINGS * len(values))
    if not (dropped or own < (1 - SLOW_SHARE) * usual or _always_bad(reasons)):
        return {}
    return {
        "median_mhz": own,
        "usual_mhz": usual,
        "lowest_mhz": min(values),
        "slow_share": len(slow) / len(values),
        "reasons": list(reasons),
    }


def _always_bad(reasons: Sequence[str]) -> bool:
    return any(reason != "power_cap" for reason in reasons)


def _clocks(each: Round) -> dict[str, list[float]]:
    """Return clocks in MHz by GPU, of the readings in which it worked."""
    inside = list(_inside(each))
    idle = {
        (s.received_ns, s.labels)
        for s in inside
        if s.name == "gpu_util" and s.value is not None and s.value < MIN_UTIL
    }
    found: dict[str, list[float]] = {}
    for sample in inside:
        working = (sample.received_ns, sample.labels) not in idle
        if sample.name == "gpu_clock_mhz" and sample.value is not None and working:
            found.setdefault(_label(sample.labels, "gpu"), []).append(sample.value)
    return found


def _reasons(each: Round) -> dict[str, tuple[str, ...]]:
    bits: dict[str, int] = {}
    for sample in _inside(each):
        if sample.name == "gpu_throttle_reasons" and sample.value is not None:
            gpu = _label(sample.labels, "gpu")
            bits[gpu] = bits.get(gpu, 0) | int(sample.value)
    named = {**REASONS, POWER_CAP: "power_cap"}
    found = {gpu: tuple(n for bit, n in named.items() if mask & bit) for gpu, mask in bits.items()}
    return {gpu: names for gpu, names in found.items() if names}


def _cpu_throttles(each: Round) -> float:
    counts = [
        s.value for s in _inside(each) if s.name == "cpu_throttle_count" and s.value is not None
    ]
    return counts[-1] - counts[0] if len(counts) > 1 else 0.0


def _inside(each: Round) -> Iterator[ServerSample]:
    for sample in each.samples:
        of_machine = sample.source in ("gpu", "host")
        if of_machine and each.start_ns <= sample.received_ns <= each.end_ns:
            yield sample


def _label(labels: str, key: str) -> str:
    """Return one value of `gpu=0,pid=12,name=python`."""
    for part in labels.split(","):
        name, _, value = part.partition("=")
        if name == key:
            return value
    return ""


def _told(item: dict[str, Any]) -> str:
    if "median_mhz" in item:
        clocks = f"{item['lowest_mhz']:.0f} MHz at least, {item['usual_mhz']:.0f} usually"
        why = f", {', '.join(item['reasons'])}" if item["reasons"] else ""
        return f"{item['device']}: {clocks}{why}"
    return f"{item['device']}: " + (", ".join(item.get("reasons", ())) or "throttled")

"""What this machine does meanwhile: CPU by ours and by others, memory, clocks.

The machine's totals come from psutil; who used the CPU comes from `/proc`, where there is one.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from concbench.clock import now_ns

Reading = tuple[str, str, float]
"""name, labels, value."""

TOP_FOREIGN: Final = 3
MIN_FOREIGN_CORES: Final = 0.05
MAX_SHARE: Final = 0.02
"""Looking at all processes may cost this share of one core; on a crowded machine it is rarer."""

_KERNEL_THREADS = 2
_CLOCKS_READ = 16
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@dataclass(frozen=True, slots=True)
class Process:
    """One row of the process table. `born` and `pid` together are unique."""

    pid: int
    parent: int
    session: int
    born: int
    cpu_s: float
    rss_bytes: int
    name: str


class HostLoad:
    """Reads the machine. `own` maps a name to root process ids (see `Job.own`)."""

    def __init__(self, own: Mapping[str, Sequence[int]], proc: Path = Path("/proc")) -> None:
        self._roots = {pid: name for name, pids in own.items() for pid in pids}
        self._roots.setdefault(os.getpid(), "observer")
        self._proc = proc
        self._used: dict[tuple[int, int], float] = {}
        self._at_ns = 0
        self._next_ns = 0
        self._times: tuple[int, tuple[float, float, float]] | None = None
        self._clocks = _spread(
            sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
        )
        self.own_pids: frozenset[int] = frozenset()

    def read(self) -> list[Reading]:
        """Return what is known now; rates count from the last call, so the first gives none."""
        found = [*self._totals(), *_memory(), *self._clock()]
        if now_ns() >= self._next_ns:
            began_ns = now_ns()
            found += self._processes(began_ns)
            self._next_ns = began_ns + int((now_ns() - began_ns) / MAX_SHARE)
        return found

    def _totals(self) -> list[Reading]:
        times, at_ns = psutil.cpu_times(), now_ns()
        waiting, stolen = getattr(times, "iowait", 0.0), getattr(times, "steal", 0.0)
        # Guest time is part of user time: counted once.
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        busy = sum(times) - guests - times.idle - waiting - stolen
        now = (busy, waiting, stolen)
        before, self._times = self._times, (at_ns, now)
        found: list[Reading] = [("cpu_cores", "", float(os.cpu_count() or 1))]
        if before is None or at_ns <= before[0]:
            return found
        took_s = (at_ns - before[0]) / 1e9
        names = ("cpu_busy_cores", "cpu_iowait_cores", "cpu_steal_cores")
        return found + [
            (name, "", max(0.0, new - old) / took_s)
            for name, old, new in zip(names, before[1], now, strict=True)
        ]

    def _processes(self, at_ns: int) -> list[Reading]:
        table = {process.pid: process for process in process_table(self._proc)}
        if not table:
            return []
        group_of = {pid: self._group(process, table) for pid, process in table.items()}
        self.own_pids = frozenset(pid for pid, group in group_of.items() if group)
        took_s = (at_ns - self._at_ns) / 1e9
        cores: dict[str, float] = {}
        rss: dict[str, int] = {}
        foreign: list[tuple[float, Process]] = []
        for pid, process in table.items():
            before = self._used.get((pid, process.born), 0.0)
            share = max(0.0, process.cpu_s - before) / took_s
            if group := group_of[pid]:
                cores[group] = cores.get(group, 0.0) + share
                rss[group] = rss.get(group, 0) + process.rss_bytes
            elif _KERNEL_THREADS not in (pid, process.parent):
                foreign.append((share, process))
        first = not self._used
        self._used = {(pid, process.born): process.cpu_s for pid, process in table.items()}
        self._at_ns = at_ns
        found = [("memory_group_bytes", f"group={name}", float(used)) for name, used in rss.items()]
        if first:
            return found
        found += [("cpu_group_cores", f"group={name}", used) for name, used in cores.items()]
        found.append(("cpu_foreign_cores", "", sum(share for share, _ in foreign)))
        foreign.sort(key=lambda item: -item[0])
        return found + [
            ("cpu_foreign_cores_by", f"pid={process.pid},name={plain(process.name)}", share)
            for share, process in foreign[:TOP_FOREIGN]
            if share >= MIN_FOREIGN_CORES
        ]

    def _group(self, process: Process, table: Mapping[int, Process]) -> str:
        """Return whose it is: that of the nearest ancestor, or session, that is a root."""
        seen: set[int] = set()
        at: Process | None = process
        while at is not None and at.pid not in seen:
            seen.add(at.pid)
            if name := self._roots.get(at.pid) or self._roots.get(at.session):
                return name
            at = table.get(at.parent)
        return ""

    def _clock(self) -> list[Reading]:
        known = sorted(value for path in self._clocks if (value := _number(path)) is not None)
        found: list[Reading] = []
        if known:
            # The faster half: cores that idle are slow without being throttled.
            half = known[len(known) // 2 :]
            found.append(("cpu_clock_mhz", "", sum(half) / len(half) / 1e3))
        root = Path("/sys/devices/system/cpu/cpu0/thermal_throttle")
        counts = [_number(root / f"{part}_throttle_count") for part in ("core", "package")]
        if any(count is not None for count in counts):
            found.append(("cpu_throttle_count", "", sum(count or 0.0 for count in counts)))
        return found


def process_table(proc: Path = Path("/proc")) -> list[Process]:
    """Return all processes that `/proc` shows; empty where there is no such thing."""
    found = []
    with suppress(OSError):
        for entry in os.scandir(proc):
            if entry.name.isdigit():
                with suppress(OSError, ValueError, IndexError):
                    found.append(_process((Path(entry.path) / "stat").read_bytes()))
    return found


def _process(stat: bytes) -> Process:
    # The name may hold spaces and parentheses: it ends at the last one.
    head, _, rest = stat.rpartition(b") ")
    pid, _, name = head.partition(b" (")
    fields = rest.split()
    return Process(
        pid=int(pid),
        parent=int(fields[1]),
        session=int(fields[3]),
        born=int(fields[19]),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
        rss_bytes=int(fields[21]) * _PAGE,
        name=name.decode("utf-8", "replace"),
    )


def plain(name: str) -> str:
    """Return a name that can stand in a label."""
    return re.sub(r"[,=\s]+", "_", name)[:64]


def _memory() -> list[Reading]:
    memory = psutil.virtual_memory()
    found: list[Reading] = [
        ("memory_available_bytes", "", float(memory.available)),
        ("memory_used_bytes", "", float(memory.used)),
    ]
    if (cached := getattr(memory, "cached", None)) is not None:
        found.append(("page_cache_bytes", "", float(cached)))
    with warnings.catch_warnings():
        # psutil warns where a container hides the counters of swapping.
        warnings.simplefilter("ignore")
        swap = psutil.swap_memory()
    return [
        *found,
        ("swap_used_bytes", "", float(swap.used)),
        ("swapped_in_bytes", "", float(swap.sin)),
        ("swapped_out_bytes", "", float(swap.sout)),
    ]


def _spread(paths: Sequence[Path]) -> Sequence[Path]:
    """Return at most a few, evenly spread: each reading may wake a core."""
    step = max(1, len(paths) // _CLOCKS_READ)
    return paths[::step][:_CLOCKS_READ]


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None

"""What on this machine would spoil a result: one check a value, none of which changes anything.

The only exception are this process's own limits, which are raised where that is allowed.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from concbench.clock import sleep_s
from concbench.errors import UsageError
from concbench.load import stamps
from concbench.load.generator import ensure_files
from concbench.observe.hostload import HostLoad, Reading

State = Literal["ok", "warn", "bad", "unknown"]

WANTED_STREAMS = 4096
FEW_PORTS = 10_000
LOOK_S = 1.0
BUSY_SHARE = 0.10
"""Other programs that use more of the machine than this disturb a measurement."""

GOOD_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
GOOD_GOVERNORS = ("performance", "schedutil")


class Check(Struct, frozen=True, kw_only=True):
    """One finding. `message` says in a sentence what it means and, unless it is ok, what to do."""

    name: str
    state: State
    message: str
    values: dict[str, Any] = {}


def machine_checks(look_s: float = LOOK_S) -> list[Check]:
    """Return the checks of this machine; watches it for so many seconds."""
    busy, throttled = _watched(look_s)
    return [
        open_files(WANTED_STREAMS),
        ephemeral_ports(Path("/proc/sys/net/ipv4/ip_local_port_range")),
        governor(sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"))),
        throttled,
        busy,
        clock_source(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        receive_stamps(),
    ]


def open_files(streams: int) -> Check:
    """Whether so many streams can be open at once; the soft limit is raised where it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    values = {"soft": soft, "hard": hard}
    try:
        ensure_files(streams)
    except UsageError:
        return Check(
            name="open files",
            state="warn",
            message=f"at most {hard} files may be open: fewer than {hard} streams; raise the hard "
            f"limit (ulimit -Hn {2 * streams}) for more",
            values=values,
        )
    now = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    raised = f", raised from {soft}" if now != soft else ""
    text = "unlimited" if now == resource.RLIM_INFINITY else str(now)
    message = f"{text} may be open{raised}: enough for {streams} streams"
    return Check(name="open files", state="ok", message=message, values={**values, "now": now})


def ephemeral_ports(path: Path) -> Check:
    """Whether there are ports for many connections to one server."""
    try:
        low, high = map(int, path.read_text().split())
    except (OSError, ValueError):
        return _unknown("ephemeral ports", "this system does not tell its range of local ports")
    count = high - low + 1
    state: State = "ok" if count >= FEW_PORTS else "warn"
    more = "" if state == "ok" else "; widen net.ipv4.ip_local_port_range"
    return Check(
        name="ephemeral ports",
        state=state,
        message=f"{count} local ports for connections to one address{more}",
        values={"low": low, "high": high},
    )


def governor(folders: Sequence[Path]) -> Check:
    """Whether the CPU's frequency is held down while it waits."""
    found = sorted({text for folder in folders if (text := _text(folder / "scaling_governor"))})
    if not found:
        return _unknown("CPU governor", "not told here (a virtual machine, or no scaling)")
    good = all(name in GOOD_GOVERNORS for name in found)
    message = f"{', '.join(found)}"
    if not good:
        message += ": a waking core is slow, which lengthens latencies; set it to performance"
    return Check(
        name="CPU governor",
        state="ok" if good else "warn",
        message=message,
        values={"governors": found},
    )


def clock_source(path: Path) -> Check:
    """Whether reading the clock is quick."""
    name = _text(path)
    if name is None:
        return _unknown("clock source", "not told here")
    good = name in GOOD_CLOCKS
    message = name if good else f"{name} is slow to read: every stamp costs more; boot with tsc"
    return Check(
        name="clock source",
        state="ok" if good else "warn",
        message=message,
        values={"source": name},
    )


def receive_stamps() -> Check:
    """Whether the kernel stamps what is received."""
    kind = stamps.available()
    good = "the kernel stamps what arrives: a late client reads late but stamps right"
    bad = "no kernel stamps here: the client's own lateness is in every latency"
    return Check(
        name="receive stamps",
        state="ok" if kind == "kernel" else "warn",
        message=good if kind == "kernel" else bad,
        values={"kind": kind},
    )


def _watched(look_s: float) -> tuple[Check, Check]:
    """Watch the machine; return what others use of it, and whether the CPU was throttled."""
    host = HostLoad({"concbench": [os.getpid()]})
    before = _by_name(host.read())
    sleep_s(look_s)
    later = host.read()
    after = _by_name(later)
    others = [
        {"process": labels, "cores": round(value, 2)}
        for name, labels, value in later
        if name == "cpu_foreign_cores_by"
    ]
    return other_load(after, others), throttling(before, after)


def other_load(readings: Mapping[str, float], others: Sequence[Mapping[str, Any]]) -> Check:
    """Whether other programs use the machine."""
    used, cores = readings.get("cpu_foreign_cores"), readings.get("cpu_cores", 1.0)
    if used is None:
        return _unknown("other load", "this system does not tell who uses it")
    busy = used > BUSY_SHARE * cores
    names = ", ".join(f"{one['process']} {one['cores']} cores" for one in others)
    message = f"other programs use {used:.2f} of {cores:g} cores"
    if busy:
        message += f" ({names}): stop them" if names else ": stop them"
    return Check(
        name="other load",
        state="warn" if busy else "ok",
        message=message,
        values={"foreign_cores": used, "cores": cores, "top": list(others)},
    )


def throttling(before: Mapping[str, float], after: Mapping[str, float]) -> Check:
    """Whether the CPU was slowed down by heat or power while we looked."""
    first, last = before.get("cpu_throttle_count"), after.get("cpu_throttle_count")
    if first is None or last is None:
        return _unknown("throttling", "this system does not count it")
    grew = last > first
    message = "the CPU is throttled now: cool it, or lower its load" if grew else "none seen"
    return Check(
        name="throttling",
        state="warn" if grew else "ok",
        message=message,
        values={"count": last, "since_look": last - first},
    )


def _by_name(readings: Sequence[Reading]) -> dict[str, float]:
    return {name: value for name, labels, value in readings if not labels}


def _unknown(name: str, message: str) -> Check:
    return Check(name=name, state="unknown", message=message)


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None

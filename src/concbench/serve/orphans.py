"""Engines that an earlier run left behind: found and named, never ended unasked.

An engine carries its run's mark, in its environment or as its container's label. It is in good
hands while that run's guard lives, or while a record says that it was left running on purpose.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import psutil

from concbench.serve import records
from concbench.serve.family import has_life
from concbench.serve.guard import MARK_VARIABLE
from concbench.serve.runtime import LANE_LABEL, MARK_LABEL, RUNTIMES, marked_containers

_GUARD_PROGRAM = ("concbench", "guard.py")


@dataclass(frozen=True, slots=True)
class Orphan:
    """What was left behind. `pids` are all processes of it, the first one leading."""

    kind: Literal["process", "container"]
    name: str
    pids: tuple[int, ...]
    since_utc: str | None
    mark: str

    @property
    def end_with(self) -> str:
        """The command that ends it."""
        if self.kind == "container":
            return f"{self.name.partition(' ')[0]} rm --force {self.name.partition(' ')[2]}"
        return f"kill {' '.join(map(str, self.pids))}"

    @property
    def told(self) -> str:
        """One line that names it and says how to end it."""
        since = f", since {self.since_utc}" if self.since_utc else ""
        pids = f" (pid {', '.join(map(str, self.pids))}{since})" if self.pids else since
        return f"left over from an earlier run: {self.name}{pids}; end it with: {self.end_with}"


def find_orphans() -> list[Orphan]:
    """Return the engines of runs that are over, of this user, as far as this user may see them."""
    guarded, marked = _scan()
    cared_for = guarded | {record.mark for record in records.every()}
    found = [_process(mark, members) for mark, members in marked.items() if mark not in cared_for]
    boxes = [(name, box) for name in RUNTIMES if shutil.which(name) for box in _boxes(name)]
    found += [_container(runtime, box) for runtime, box in boxes if _label(box) not in cared_for]
    return found


def _scan() -> tuple[set[str], dict[str, list[psutil.Process]]]:
    """Return the marks that a living guard watches, and the marked processes by mark."""
    guarded: set[str] = set()
    marked: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if not has_life(process):
                continue
            words = process.cmdline()
            for index, word in enumerate(words[:-1]):
                if word.endswith(_GUARD_PROGRAM[1]) and _GUARD_PROGRAM[0] in word:
                    guarded.add(words[index + 1])
            mark = process.environ().get(MARK_VARIABLE)
            if mark and process.pid != os.getpid():
                marked.setdefault(mark, []).append(process)
    return guarded, marked


def _process(mark: str, members: list[psutil.Process]) -> Orphan:
    """Return the orphan; its name is that of the oldest process, which leads the session."""
    members = sorted(members, key=lambda process: _started_s(process))
    name, since = "a process", None
    with suppress(psutil.Error):
        name = " ".join(members[0].cmdline()[:4])[:100] or members[0].name()
        since = _utc(members[0].create_time())
    return Orphan("process", name, tuple(process.pid for process in members), since, mark)


def _container(runtime: str, box: dict[str, Any]) -> Orphan:
    state = box.get("State") or {}
    pid = int(state.get("Pid") or 0)
    since = state.get("StartedAt")
    name = f"{runtime} {str(box.get('Name', '')).lstrip('/')}"
    return Orphan(
        "container", name, (pid,) if pid else (), str(since) if since else None, _label(box)
    )


def _boxes(runtime: str) -> Iterable[dict[str, Any]]:
    return marked_containers(shutil.which(runtime) or runtime)


def _label(box: dict[str, Any], label: str = MARK_LABEL) -> str:
    return str(((box.get("Config") or {}).get("Labels") or {}).get(label) or "")


def lane_of(box: dict[str, Any]) -> str:
    """Return the lane that a container was started for, empty where it does not say."""
    return _label(box, LANE_LABEL)


def _started_s(process: psutil.Process) -> float:
    try:
        return float(process.create_time())
    except psutil.Error:
        return float("inf")


def _utc(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

"""Lanes that were left running (`lanes up`): one small file each, by which they are found again.

They live in the user's state folder, since they describe this machine and not a study.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psutil
from msgspec import Struct

from concbench.clock import now_ns, utc_stamp
from concbench.domain import TargetFacts
from concbench.errors import OutputUnusable
from concbench.serve import memory, ports
from concbench.serve.container import Container
from concbench.serve.family import Family
from concbench.serve.http import Access
from concbench.serve.lane import RunningLane, complete_teardown
from concbench.serve.logfile import lines_from
from concbench.serve.probe import Attached, Launch, attach
from concbench.serve.process import last_words
from concbench.serve.runtime import end_container, inspect, pid_of
from concbench.serve.words import masked, masked_env

_SAME_START_S = 1.0


class Record(Struct, kw_only=True):
    """A lane left running. `pid_started_s` is the process's own start, against reused numbers."""

    lane: str
    plan: str
    engine: str
    url: str
    model: str
    began_utc: str
    mark: str
    log_path: str
    log_offset: int
    spoken: list[str]
    env: dict[str, str] = {}
    pid: int = 0
    pid_started_s: float = 0.0
    runtime: str | None = None
    container: str | None = None
    stop: list[str] = []
    gpu_before: dict[int, int] | None = None
    cold_start: dict[str, float] = {}
    facts: TargetFacts
    extra: dict[str, Any] = {}

    @property
    def family(self) -> Family:
        """Its processes; the session counts only while its number is surely still the same."""
        with suppress(psutil.NoSuchProcess):
            started_s = psutil.Process(self.pid).create_time()
            return Family(
                self.pid if abs(started_s - self.pid_started_s) < _SAME_START_S else 0, self.mark
            )
        # A session's number is not given anew while a process of it lives.
        return Family(self.pid, self.mark)

    def alive(self) -> str | None:
        """Return None while the engine lives, otherwise one line on its end."""
        if self.container is not None:
            state = inspect(self.runtime or "docker", self.container).get("State") or {}
            if state.get("Running"):
                return None
            ended = f"ended with exit code {state['ExitCode']}" if state else "is gone"
        elif self.family.members():
            return None
        else:
            ended = "has ended"
        said = last_words(lines_from(Path(self.log_path), self.log_offset))
        return f"the engine {ended} (log {self.log_path}, last lines: {said})"

    def end(self) -> dict[str, Any]:
        """End the engine and take the record away; return the teardown, see `RunningLane.stop`."""
        began_ns = now_ns()
        if self.container is not None:
            pid = pid_of(self.runtime or "docker", self.container)
            rss = (memory.tree_rss_bytes([pid]) or 0) if pid else 0
            ended = end_container(self.runtime or "docker", self.container, self.stop)
            left = [pid] if pid and psutil.pid_exists(pid) else []
        else:
            family = self.family
            rss = family.rss_bytes()
            ended = {"signal": family.end(), "exit_code": None}
            left = [process.pid for process in family.members()]
        teardown = {
            **ended,
            "took_s": (now_ns() - began_ns) / 1e9,
            "rss_before_bytes": rss,
            "rss_after_bytes": (memory.tree_rss_bytes(left) or 0) if left else 0,
            "left_pids": left,
        }
        parts = urlsplit(self.url)
        complete_teardown(
            teardown, parts.port or 80, parts.hostname or ports.LOOPBACK, self.gpu_before
        )
        if not left and teardown.get("container_gone", True):
            _path(self.plan, self.lane).unlink(missing_ok=True)
        return teardown

    def attach(self, access: Access) -> Attached:
        """Meet the engine again; what its start told is kept. Raises what `attach` raises."""
        lines = lines_from(Path(self.log_path), self.log_offset)
        met = attach(
            self.url,
            access,
            self.model,
            self.engine,
            lane=self.lane,
            launch=Launch(self.spoken, lines),
        )
        told = self.facts.facts_from
        # What was known from files at the start was chosen over what the engine says of itself.
        files = {name: source for name, source in told.items() if source == "file"}
        kept = {
            name: value
            for name in TargetFacts.__struct_fields__
            if (value := getattr(self.facts, name)) is not None
            and (getattr(met.facts, name) is None or name in files)
        }
        sources = {**told, **met.facts.facts_from, **files}
        kept |= {"launch": self.facts.launch, "facts_from": sources}
        facts = msgspec.structs.replace(met.facts, **kept)
        return replace(met, facts=facts, extra={**self.extra, **met.extra})


def save(running: RunningLane, plan: str) -> Record:
    """Write down a lane that is to be left running. Raises OutputUnusable."""
    child = running.child
    boxed = isinstance(child, Container)
    recipe = running.recipe
    record = Record(
        lane=recipe.lane,
        plan=_absolute(plan),
        engine=recipe.engine,
        url=recipe.url,
        model=running.attached.model,
        began_utc=utc_stamp(),
        mark=child.guard.mark,
        log_path=str(child.log_path.absolute()),
        log_offset=child.log_offset,
        spoken=masked(recipe.spoken),
        env=masked_env(recipe.env),
        pid=0 if boxed else child.pid,
        pid_started_s=0.0 if boxed else psutil.Process(child.pid).create_time(),
        runtime=child.recipe.runtime if isinstance(child, Container) else None,
        container=child.name if isinstance(child, Container) else None,
        stop=list(recipe.container.stop) if recipe.container else [],
        gpu_before=dict(running.gpu_before) if running.gpu_before else None,
        cold_start=running.cold_start,
        facts=running.facts,
        extra=dict(running.attached.extra),
    )
    path = _path(plan, recipe.lane)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_suffix(f".{os.getpid()}")
        staged.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
        staged.replace(path)
    except OSError as error:
        raise OutputUnusable(
            f"{path} cannot be written ({error.strerror}): set XDG_STATE_HOME to a folder that can"
        ) from None
    return record


def find(plan: str, lane: str) -> Record | None:
    """Return the record of a lane that runs; a record of one that has ended is taken away."""
    record = _read(_path(plan, lane))
    if record is not None and record.alive() is not None:
        _path(plan, lane).unlink(missing_ok=True)
        return None
    return record


def every() -> list[Record]:
    """Return all records, also those whose engine has ended meanwhile."""
    paths = sorted((state_folder() / "lanes").glob("*.json"))
    return [record for path in paths if (record := _read(path)) is not None]


def log_folder() -> Path:
    """Return where lanes that are left running write their logs."""
    return state_folder() / "logs"


def state_folder() -> Path:
    """Return the user's state folder of this tool."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "concbench"


def _read(path: Path) -> Record | None:
    """Return a record, None where there is none or it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None


def _path(plan: str, lane: str) -> Path:
    mark = hashlib.sha256(_absolute(plan).encode()).hexdigest()[:8]
    return state_folder() / "lanes" / f"{lane}-{mark}.json"


def _absolute(plan: str) -> str:
    return str(Path(plan).resolve())

"""An engine as a process: its own session, its own log, a guard, and an end that is checked."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from concbench.clock import now_ns
from concbench.engines.failures import diagnose
from concbench.engines.spec import StartFailure
from concbench.errors import NotReady
from concbench.serve import guard as guard_program
from concbench.serve.family import GRACE_S, Family
from concbench.serve.logfile import append, lines_from

_SHOWN_LINES = 6

_DETACHED: list[subprocess.Popen[bytes]] = []


@atexit.register
def _forget() -> None:
    """Count those left running as over: a Popen that is collected before warns of it."""
    for popen in _DETACHED:
        popen.returncode = popen.poll() or 0


class Guard:
    """The tool's end of the guard's pipe. The guard acts when this end closes unreleased."""

    def __init__(self, log_path: Path) -> None:
        """Start the guard and wait until it listens. Raises NotReady when it cannot start."""
        self.mark = secrets.token_hex(16)
        argv = [sys.executable, "-I", "-S", guard_program.__file__, self.mark, str(os.getpid())]
        with append(log_path) as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        with self._process.stdout as told:
            if told.readline() != b"ready\n":
                self._process.kill()
                self._process.wait()
                raise NotReady(f"the guard process did not start; see {log_path}")

    @property
    def pid(self) -> int:
        """The guard's own process id."""
        return self._process.pid

    def watch(self, session: int) -> None:
        """Tell which session is to be ended."""
        self._tell(f"group {session}")

    def on_end(self, command: Sequence[str]) -> None:
        """Add a command to run, such as the one that stops a container."""
        self._tell("stop " + json.dumps(list(command)))

    def release(self) -> None:
        """Tell that all is over and wait for the guard to go."""
        if self._process.stdin is None or self._process.stdin.closed:
            return
        self._tell("done")
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()


@dataclass(slots=True)
class Child:
    """A started engine. `spawned_ns` is taken just before the spawn, `log_offset` likewise."""

    argv: tuple[str, ...]
    log_path: Path
    log_offset: int
    spawned_ns: int
    guard: Guard
    popen: subprocess.Popen[bytes]
    failures: Sequence[StartFailure] = ()
    teardown: dict[str, Any] | None = field(default=None)

    @property
    def pid(self) -> int:
        """The process id, which is also its session's and its group's."""
        return self.popen.pid

    @property
    def family(self) -> Family:
        """All its processes."""
        return Family(self.pid, self.guard.mark)

    def alive(self) -> str | None:
        """Return None while it lives, otherwise one line on how it ended and what it last said."""
        code = self.popen.poll()
        return None if code is None else told_end(_ending(code), self)

    def failure(self) -> StartFailure | None:
        """Return the known cause of a failed start that the log shows, if any."""
        found = diagnose(self.failures, self.log_lines())
        return found[0] if found else None

    def log_lines(self) -> list[str]:
        """Return what this process has logged: the first and the last few MiB of it."""
        return lines_from(self.log_path, self.log_offset)

    def members(self) -> list[psutil.Process]:
        """Return the living processes of its session, and those that left it but carry its mark."""
        return self.family.members()

    def rss_bytes(self) -> int:
        """Return the resident memory of all its processes; pages they share count for each."""
        return self.family.rss_bytes()

    def stop(self, grace_s: float = GRACE_S) -> dict[str, Any]:
        """End all its processes and return how that went. Safe to call again.

        Keys: `signal` (the one it took, None if it was gone), `exit_code` (negative: by signal),
        `took_s`, `rss_before_bytes`, `rss_after_bytes`, `left_pids`.
        """
        if self.teardown is not None:
            return self.teardown
        began_ns = now_ns()
        rss_before = self.rss_bytes()
        used = self.family.end(grace_s, self.popen.poll)
        left = self.members()
        self.teardown = {
            "signal": used,
            "exit_code": self.popen.poll(),
            "took_s": (now_ns() - began_ns) / 1e9,
            "rss_before_bytes": rss_before,
            "rss_after_bytes": self.rss_bytes() if left else 0,
            "left_pids": [process.pid for process in left],
        }
        if not left:
            self.guard.release()
        return self.teardown

    def detach(self) -> None:
        """Let it live on when the tool ends: the guard is told to go."""
        self.guard.release()
        _DETACHED.append(self.popen)


def spawn(
    argv: Sequence[str],
    log_path: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    failures: Sequence[StartFailure] = (),
) -> Child:
    """Start an engine under a guard; `env` is added to the tool's environment.

    Raises NotReady when the program cannot be started, OutputUnusable when the log cannot be
    written.
    """
    watching = Guard(log_path)
    marked = {**os.environ, **(env or {}), guard_program.MARK_VARIABLE: watching.mark}
    try:
        with append(log_path) as log:
            offset = log.seek(0, os.SEEK_END)
            spawned_ns = now_ns()
            popen = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=marked,
                cwd=cwd,
                start_new_session=True,
            )
    except OSError as error:
        watching.release()
        raise NotReady(_not_started(argv[0], cwd, error)) from None
    watching.watch(popen.pid)
    return Child(tuple(argv), log_path, offset, spawned_ns, watching, popen, failures)


def told_end(ending: str, child: Any) -> str:  # noqa: ANN401 - a Child, or a Container
    """Return one line: how an engine ended, the known cause with advice, or its last words."""
    lines = child.log_lines()
    known = diagnose(child.failures, lines)
    if known is None:
        return f"the engine {ending} (log {child.log_path}, last lines: {last_words(lines)})"
    cause, line = known
    said = f"it said: {line[:200]}; log {child.log_path}"
    return f"the engine {ending}: {cause.cause}; {cause.advice} ({said})"


def last_words(lines: Sequence[str]) -> str:
    """Return the last lines that say something, on one line."""
    spoken = [line.strip()[:200] for line in lines if line.strip()]
    return " | ".join(spoken[-_SHOWN_LINES:]) or "nothing"


def _not_started(program: str, cwd: Path | None, error: OSError) -> str:
    if cwd is not None and not cwd.is_dir():
        return f"{program} cannot be started: its folder {cwd} is not there"
    hint = ""
    if isinstance(error, FileNotFoundError):
        hint = ": is it installed, and on PATH? A path such as ./bin/engine works too"
    return f"{program} cannot be started: {error.strerror}{hint}"


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = " (the kernel ends what needs too much memory that way)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"

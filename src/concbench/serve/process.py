"""An engine as a process: its own session, its own log, a guard, and an end that is checked."""

from __future__ import annotations

import json
import os
import re
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

from concbench.clock import now_ns, sleep_s
from concbench.engines.spec import StartFailure
from concbench.errors import NotReady, OutputUnusable
from concbench.serve import guard as guard_program

GRACE_S = 10.0
"""How long an engine may take to end after SIGTERM."""

KILL_S = 5.0
LOG_READ_BYTES = 8 << 20
_SHOWN_LINES = 6
_POLL_S = 0.02


class Guard:
    """The tool's end of the guard's pipe. The guard acts when this end closes unreleased."""

    def __init__(self, log_path: Path) -> None:
        """Start the guard and wait until it listens. Raises NotReady when it cannot start."""
        self.mark = secrets.token_hex(16)
        argv = [sys.executable, "-I", "-S", guard_program.__file__, self.mark, str(os.getpid())]
        with _append(log_path) as log:
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

    def alive(self) -> str | None:
        """Return None while it lives, otherwise one line on how it ended and what it last said."""
        code = self.popen.poll()
        if code is None:
            return None
        lines = [line for line in self.log_lines() if line.strip()]
        said = " | ".join(line.strip()[:200] for line in lines[-_SHOWN_LINES:]) or "nothing"
        known = self.failure()
        why = f": {known.cause}; {known.advice}" if known else ""
        return f"the engine {_ending(code)}{why} (log {self.log_path}, last lines: {said})"

    def failure(self) -> StartFailure | None:
        """Return the known cause of a failed start that the log shows, if any."""
        lines = self.log_lines()
        for known in self.failures:
            pattern = re.compile(known.pattern)
            if any(pattern.search(line) for line in lines):
                return known
        return None

    def log_lines(self) -> list[str]:
        """Return what this process has logged: the first and the last few MiB of it."""
        with self.log_path.open("rb") as log:
            log.seek(self.log_offset)
            text = log.read(LOG_READ_BYTES)
            end = log.seek(0, os.SEEK_END)
            if end > self.log_offset + 2 * LOG_READ_BYTES:
                log.seek(end - LOG_READ_BYTES)
            else:
                log.seek(self.log_offset + len(text))
            text += log.read()
        return text.decode("utf-8", "replace").splitlines()

    def members(self) -> list[psutil.Process]:
        """Return the living processes of its session, and those that left it but carry its mark."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if self._is_mine(process) and has_life(process):
                    found.append(process)
        return found

    def rss_bytes(self) -> int:
        """Return the resident memory of all its processes; pages they share count for each."""
        total = 0
        for process in self.members():
            with suppress(psutil.Error):
                total += process.memory_info().rss
        return total

    def stop(self, grace_s: float = GRACE_S) -> dict[str, Any]:
        """End all its processes and return how that went. Safe to call again.

        Keys: `signal` (the one it took, None if it was gone), `exit_code` (negative: by signal),
        `took_s`, `rss_before_bytes`, `rss_after_bytes`, `left_pids`.
        """
        if self.teardown is not None:
            return self.teardown
        began_ns = now_ns()
        before = self.members()
        rss_before = self.rss_bytes()
        used = "SIGTERM" if before else None
        if before and not self._terminate(before, grace_s):
            used = "SIGKILL"
            self._kill()
        left = self.members()
        self.teardown = {
            "signal": used,
            "exit_code": self.popen.poll(),
            "took_s": (now_ns() - began_ns) / 1e9,
            "rss_before_bytes": rss_before,
            "rss_after_bytes": self.rss_bytes() if left else 0,
            "left_pids": [process.pid for process in left],
        }
        self.popen.poll()
        if not left:
            self.guard.release()
        return self.teardown

    def _is_mine(self, process: psutil.Process) -> bool:
        if os.getsid(process.pid) == self.pid:
            return True
        return bool(process.environ().get(guard_program.MARK_VARIABLE) == self.guard.mark)

    def _terminate(self, members: list[psutil.Process], grace_s: float) -> bool:
        """Send SIGTERM and return whether all of them were gone in time."""
        deadline_ns = now_ns() + int(grace_s * 1e9)
        _signal(members, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(grace_s)
        # Not psutil's wait: where nobody reaps orphans, it takes a zombie for a living process.
        while self.members():
            if now_ns() > deadline_ns:
                return False
            sleep_s(_POLL_S)
        return True

    def _kill(self) -> None:
        """Send SIGKILL until nothing is left, or KILL_S have passed."""
        deadline_ns = now_ns() + int(KILL_S * 1e9)
        while (members := self.members()) and now_ns() < deadline_ns:
            _signal(members, signal.SIGKILL)
            self.popen.poll()
            sleep_s(_POLL_S)
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(0.1)


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
        with _append(log_path) as log:
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
        raise NotReady(f"{argv[0]} cannot be started: {error.strerror}") from None
    watching.watch(popen.pid)
    return Child(tuple(argv), log_path, offset, spawned_ns, watching, popen, failures)


def has_life(process: psutil.Process) -> bool:
    """Return whether any of its threads still runs: those of a zombie can hold ports and memory."""
    return bool(process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1)


def _append(log_path: Path) -> Any:  # noqa: ANN401 - a binary file, whose class typeshed splits
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        return log_path.open("ab")
    except OSError as error:
        raise OutputUnusable(f"{log_path} cannot be written: {error.strerror}") from None


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = " (the kernel ends what needs too much memory that way)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"

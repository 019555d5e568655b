"""The tool's end of the observer: start it, mark a moment, take what came since, stop it.

The observer is a process of its own, so that reading pages costs the load nothing. When it dies it
is started once more; a round measured meanwhile carries an event, and the load goes on. Nothing
here raises because of it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import msgspec

from concbench.clock import now_ns
from concbench.domain import ServerSample
from concbench.engines.spec import EngineSpec
from concbench.observe.job import Job
from concbench.observe.parse import samples
from concbench.observe.spool import RawSample, offset, read_records, read_slot

START_S: Final = 20.0
FRESH_S: Final = 2.0
"""How long a mark waits for the reading that it asks for."""

SETTLE_S: Final = 0.1
"""Between the two readings after a round: counters may move a moment after the last byte."""

STOP_S: Final = 2.0
KEEP_BYTES: Final = 64 << 20
"""Of records; a mark beyond that drops all older ones."""


@dataclass(frozen=True, slots=True)
class LiveView:
    """The last values, for a display. None where the server does not say.

    `generated_tok_per_s` is over about the last 2 s; `stamp_ns` says how old the values are.
    """

    stamp_ns: int
    running: float | None
    waiting: float | None
    generated_tok: float | None
    generated_tok_per_s: float | None
    scrapes: int
    skipped: int
    failed: int


class Observer:
    """One lane's observer, running until `stop` or the end of its `with` block."""

    def __init__(self, job: Job) -> None:
        """Take a job; `start` does the rest."""
        self._job = job
        self._spool = tempfile.TemporaryFile(prefix="concbench-observed-")  # noqa: SIM115 - stop
        self._ready = False
        self._lock = threading.Lock()
        self._number = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._answers = b""
        self._lost_ns: int | None = None
        self.restarts = 0

    @classmethod
    def start(cls, job: Job) -> Self:
        """Start an observer and return it once it reads, or once it is known that it will not."""
        observer = cls(job)
        observer._launch()
        return observer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The observer's process, None when it is lost."""
        process = self._process
        return process.pid if process is not None and self._lost_ns is None else None

    @property
    def ready(self) -> bool:
        """Whether it reads and answers now."""
        return self._ready

    @property
    def lost(self) -> bool:
        """Whether it died twice, so that nothing is read any more."""
        return self._lost_ns is not None

    def mark(self, fresh_s: float = FRESH_S) -> int:
        """Return the offset just before a reading that is made now: the first of what follows.

        Waits at most `fresh_s` for that reading. Call it before a round's first request.
        """
        slot = read_slot(self._spool.fileno())
        if slot is not None and slot.end > KEEP_BYTES:
            self._command("drop", fresh_s)
        since = offset(read_slot(self._spool.fileno()))
        self._command("now", fresh_s)
        return since

    def take(self, since: int, fresh_s: float = FRESH_S) -> list[RawSample]:
        """Return the records since a mark, with two last readings that are made now.

        Waits at most `fresh_s` for each. Call it after a round's last response.
        """
        if self._command("now", fresh_s):
            threading.Event().wait(SETTLE_S)
            self._command("now", fresh_s)
        records = list(read_records(self._spool.fileno(), since))
        if self._lost_ns is not None:
            records.append(RawSample("note", self._lost_ns, self._lost_ns, 200, b"lost"))
        return records

    def samples(self, since: int, spec: EngineSpec) -> list[ServerSample]:
        """Return the rows since a mark: `take` and `parse.samples` in one."""
        return samples(self.take(since), spec)

    def live(self) -> LiveView:
        """Return the last values. Reads one small block: cheap enough for any display."""
        slot = read_slot(self._spool.fileno())
        if slot is None:
            return LiveView(0, None, None, None, None, 0, 0, 0)
        return LiveView(
            slot.stamp_ns,
            _known(slot.running),
            _known(slot.waiting),
            _known(slot.generated_tok),
            _known(slot.generated_tok_per_s),
            slot.scrapes,
            slot.skipped,
            slot.failed,
        )

    def cpu_s(self) -> float:
        """Return the CPU seconds that the observer has used, as last told (each second)."""
        slot = read_slot(self._spool.fileno())
        return 0.0 if slot is None else slot.cpu_ns / 1e9

    def stop(self) -> None:
        """End the observer and what it started. Safe to call again; records are gone after it."""
        with self._lock:
            self._stopping = True
            process, self._process = self._process, None
        if process is not None:
            self._end(process)
        self._spool.close()

    def _launch(self) -> None:
        with self._lock:
            if self._stopping:
                return
            try:
                self._process = process = self._spawn()
            except OSError:
                self._lost_ns = now_ns()
                return
            self._answers, self._ready = b"", False
        threading.Thread(target=self._watch, args=(process,), daemon=True).start()
        self._ready = self._wait(b"ready", START_S, process)

    def _spawn(self) -> subprocess.Popen[bytes]:
        fd = self._spool.fileno()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "concbench.observe.process", str(fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(fd,),
            start_new_session=True,
        )
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.write(msgspec.json.encode(self._job) + b"\n")
            process.stdin.flush()
        return process

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for its end; start it once more when that was not asked for."""
        process.wait()
        with self._lock:
            if self._stopping:
                return
            again = self.restarts == 0
            self.restarts += 1
            self._ready = False
            if not again:
                self._lost_ns = now_ns()
        self._sweep(process)
        if again:
            self._launch()

    def _command(self, word: str, timeout_s: float) -> bool:
        """Send a command and return whether its answer came in time."""
        process = self._process
        if process is None or not self._ready:
            return False
        self._number += 1
        number = str(self._number).encode()
        assert process.stdin is not None
        try:
            process.stdin.write(word.encode() + b" " + number + b"\n")
            process.stdin.flush()
        except (OSError, ValueError):
            return False
        return self._wait(number, timeout_s, process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Close its stdin and wait; what does not go is killed."""
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._sweep(process)

    def _sweep(self, process: subprocess.Popen[bytes]) -> None:
        """End what a dead observer left in its session: the command that follows a log."""
        if self._job.log_command:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _wait(self, line: bytes, timeout_s: float, process: subprocess.Popen[bytes]) -> bool:
        assert process.stdout is not None
        deadline_ns = now_ns() + int(timeout_s * 1e9)
        try:
            poll = select.poll()
            poll.register(process.stdout, select.POLLIN)
            while line not in self._answers.split(b"\n")[:-1]:
                left_ms = (deadline_ns - now_ns()) / 1e6
                if left_ms <= 0 or not poll.poll(left_ms):
                    return False
                got = os.read(process.stdout.fileno(), 4096)
                if not got:
                    return False
                # Answers that nobody waited for any longer are dropped with those before them.
                self._answers = self._answers[-256:] + got
        except (OSError, ValueError):
            return False
        return True


def _known(value: float) -> float | None:
    return None if value != value else value

"""Several generators in processes of their own: one round, begun together, put together again.

Each process opens its connections, says so, and is told one start in monotonic time, which all
processes of a host share. Reads come back through unlinked files, so that neither a pipe nor this
process's memory carries them while the load is on.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO

import msgspec

from concbench.clock import now_ns, utc_stamp
from concbench.errors import UsageError
from concbench.load import pipe
from concbench.load.generator import LoadPlan, Progress, RawRound
from concbench.load.log import ReadLog
from concbench.load.loop import News, tell
from concbench.load.share import Brought, ShareJob, ShareResult, merged, split
from concbench.load.signals import Signals, counted

STREAMS_A_PROCESS = 1024
HEAD_START_NS = 20_000_000
"""From "all are connected" to the start: enough for a message to reach every process."""

POLL_MS = 50
STOP_NS = 10_000_000_000


def auto_procs(streams: int, cores: int) -> int:
    """Return how many processes suit so many streams: one a thousand, at most half the cores."""
    return max(1, min(cores // 2, -(-streams // STREAMS_A_PROCESS)))


def run_split(plan: LoadPlan, procs: int) -> RawRound:
    """Run one round in up to `procs` processes, to its end or to SIGINT or SIGTERM.

    A process that dies costs its own requests and nothing else. Raises UsageError for a load that
    cannot be split, or where a process refuses (limits of the machine).
    """
    jobs = split(plan, procs)
    with ExitStack() as stack:
        crew = [stack.enter_context(_started(job)) for job in jobs]
        fleet = _Fleet(plan, crew, stack.enter_context(counted(wanted=plan.handle_signals)))
        fleet.until(lambda member: member.ready)
        began_utc, start_ns = utc_stamp(), now_ns() + HEAD_START_NS
        for member in crew if not fleet.interrupted else ():
            member.say(pipe.start_message(start_ns))
        fleet.until(lambda member: member.result is not None)
        for member in crew:
            if member.refusal is not None:
                raise UsageError(member.refusal)
        brought = [Brought(m.job, m.result, m.open_log) for m in crew]
        for member in crew:
            member.kept = member.result is not None
        return merged(brought, start_ns, began_utc, interrupted=fleet.interrupted)


@dataclass(slots=True)
class _Member:
    """One process. `gone` once it has closed its side, `kept` where its files are wanted still."""

    job: ShareJob
    process: subprocess.Popen[bytes]
    payload: IO[bytes]
    columns: IO[bytes]
    frames: pipe.Frames = field(default_factory=pipe.Frames)
    ready: bool = False
    gone: bool = False
    kept: bool = False
    result: ShareResult | None = None
    refusal: str | None = None
    progress: Progress | None = None
    news: list[News] = field(default_factory=list)

    def say(self, message: bytes) -> None:
        """Send bytes down; nothing where nobody is there."""
        assert self.process.stdin is not None
        with suppress(OSError):
            pipe.write_all(self.process.stdin.fileno(), message)

    def hear(self) -> None:
        """Take what it sent."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        if not data:
            self.gone = True
        for kind, body in self.frames.feed(data):
            if kind == pipe.READY:
                self.ready = True
            elif kind == pipe.RESULT:
                self.result = msgspec.msgpack.decode(body, type=ShareResult)
            elif kind == pipe.REFUSED:
                self.refusal = body.decode("utf-8", "replace")
            elif kind == pipe.NEWS:
                self.news.append(msgspec.msgpack.decode(body, type=News))
            elif kind == pipe.REPORT:
                self.progress = msgspec.msgpack.decode(body, type=Progress)

    def open_log(self) -> ReadLog:
        """Read its reads back; its columns are needed no more after that."""
        assert self.result is not None
        log = ReadLog.load(self.columns, self.payload, self.result.rows)
        self.columns.close()
        return log


@contextmanager
def _started(job: ShareJob) -> Iterator[_Member]:
    """Start a process with its job, in a session of its own; it is gone when the block ends."""
    payload = tempfile.TemporaryFile(prefix="concbench-", buffering=0)  # noqa: SIM115
    columns = tempfile.TemporaryFile(prefix="concbench-", buffering=0)  # noqa: SIM115
    fds = (payload.fileno(), columns.fileno())
    process = subprocess.Popen(
        [sys.executable, "-m", "concbench.load.worker", *map(str, fds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=fds,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    member = _Member(job, process, payload, columns)
    body = msgspec.msgpack.encode(job)
    try:
        member.say(struct.pack("=I", len(body)) + body)
        yield member
    finally:
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(STOP_NS / 1e9)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        if not member.kept:
            payload.close()
            columns.close()


class _Fleet:
    """Listens to all members until each has done something or is gone."""

    def __init__(self, plan: LoadPlan, crew: Sequence[_Member], signals: Signals) -> None:
        self._plan = plan
        self._crew = crew
        self._stopped_ns = 0
        self._signals = signals
        self.interrupted = False

    def until(self, done: Callable[[_Member], bool]) -> None:
        """Listen until `done` holds for every member that is not gone."""
        with select.epoll() as epoll:
            for member in self._crew:
                if not member.gone:
                    epoll.register(member.process.stdout.fileno())  # type: ignore[union-attr]
            waiting = [m for m in self._crew if not (m.gone or done(m))]
            while waiting:
                ready = {fd for fd, _ in epoll.poll(POLL_MS / 1e3)}
                for member in waiting:
                    if member.process.stdout.fileno() in ready:  # type: ignore[union-attr]
                        member.hear()
                self._look(waiting)
                waiting = [m for m in waiting if not (m.gone or done(m))]

    def _look(self, waiting: Sequence[_Member]) -> None:
        """Pass on progress, news and signals; kill what does not stop when it should."""
        self._tell_news()
        if self._signals.count and not self._stopped_ns:
            self.interrupted = True
            self._stop()
        if self._stopped_ns and now_ns() - self._stopped_ns > STOP_NS:
            for member in waiting:
                member.process.kill()
        known = [member.progress for member in self._crew if member.progress is not None]
        if not known:
            return
        progress = Progress.total(known)
        if self._plan.on_tick is not None:
            self._plan.on_tick(progress)
        rule = self._plan.stop_when
        if rule is not None and not self._stopped_ns and rule(progress):
            self._stop()

    def _tell_news(self) -> None:
        loop, first_worker = self._plan.loop, 0
        for member in self._crew:
            told, member.news = member.news, []
            for news in told if loop is not None else ():
                tell(loop, news, first_worker)  # type: ignore[arg-type]
            first_worker += member.job.workers

    def _stop(self) -> None:
        self._stopped_ns = now_ns()
        for member in self._crew:
            member.say(pipe.STOP)

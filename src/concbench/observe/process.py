"""The observer as a program: `python -m concbench.observe.process FD`.

The first line of stdin is the job as JSON, so that a key is in no command line; further lines are
commands, each answered by its number on stdout when it is done: `now N` reads everything at once,
`drop N` forgets the records so far. FD is the spool. It ignores SIGINT, and ends when stdin closes
or the process that started it dies.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import msgspec
import psutil

from concbench.clock import cpu_ns, now_ns
from concbench.engines.registry import ENGINES
from concbench.observe.gpu import Gpus
from concbench.observe.hostload import HostLoad
from concbench.observe.job import Job
from concbench.observe.live import Live
from concbench.observe.logs import CommandTail, FileTail
from concbench.observe.poll import Poller
from concbench.observe.spool import Writer
from concbench.observe.ticker import Ticker, Ticket

MS_NS = 1_000_000


def main() -> int:
    """Run until stdin closes; see the module."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    parent = os.getppid()
    commands = Commands(parent)
    first = commands.wait()
    if first is None:
        return 0
    job = msgspec.json.decode(first, type=Job)
    writer = Writer(int(sys.argv[1]))
    note(writer, "restarted" if writer.resumed else "started")
    tail = _tail(job, writer)
    sources = [*_pollers(job, writer), *_log(job, writer, tail), *_host(job, writer)]
    try:
        for source in sources:
            source.start()
        say(b"ready\n")
        while (line := commands.wait()) is not None:
            word, _, number = line.partition(b" ")
            if word == b"now":
                ticket = Ticket(len(sources), _answer(number))
                for source in sources:
                    source.poke(ticket)
            elif word == b"drop":
                writer.drop()
                say(number + b"\n")
    finally:
        if tail is not None:
            tail.close()
    return 0


class Commands:
    """Lines from stdin; none when it closes or the parent is gone."""

    def __init__(self, parent: int) -> None:
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._parent = parent
        self._rest = b""
        self._wait_ms: int | None = 1000
        # The pipe alone would not do: a forked worker of the tool may hold its other end.
        with suppress(AttributeError, OSError):
            self._poll.register(os.pidfd_open(parent), select.POLLIN)
            self._wait_ms = None

    def wait(self) -> bytes | None:
        """Return the next line."""
        while b"\n" not in self._rest:
            ready = {fd for fd, _ in self._poll.poll(self._wait_ms)}
            if (ready and 0 not in ready) or os.getppid() != self._parent:
                return None
            if 0 in ready:
                got = os.read(0, 1 << 16)
                if not got:
                    return None
                self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def say(line: bytes) -> None:
    """Answer the tool; nobody may be listening any more."""
    with suppress(OSError):
        os.write(1, line)


def note(writer: Writer, text: str) -> None:
    """Put a fact about the observer itself on record."""
    at_ns = now_ns()
    writer.add("note", at_ns, at_ns, text.encode())


def _answer(number: bytes) -> Callable[[], None]:
    return lambda: say(number + b"\n")


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _pollers(job: Job, writer: Writer) -> list[Ticker]:
    if not job.paths:
        return []
    try:
        poller = Poller(job, writer, Live(ENGINES[job.engine], writer).on_page)
    except (OSError, ValueError):
        note(writer, "not_polled")
        return []
    return [
        Ticker(
            "poll",
            job.interval_ms * MS_NS,
            poller.step,
            lambda missed: writer.count(skipped=missed),
        )
    ]


def _tail(job: Job, writer: Writer) -> FileTail | CommandTail | None:
    if job.log_file is not None:
        resumed = writer.slot.log_at if writer.resumed and writer.slot.log_at >= 0 else None
        offset = job.log_offset if resumed is None else resumed
        return FileTail(Path(job.log_file), offset)
    if job.log_command:
        try:
            return CommandTail(job.log_command)
        except OSError:
            note(writer, "log_ended")
    return None


def _log(job: Job, writer: Writer, tail: FileTail | CommandTail | None) -> list[Ticker]:
    if tail is None:
        return []
    last_ns = now_ns()
    told = False

    def work(_asked: bool) -> None:  # noqa: FBT001 - Ticker's
        nonlocal last_ns, told
        with suppress(OSError):
            lines = tail.read()
            at_ns = now_ns()
            if lines:
                writer.add("log", last_ns, at_ns, lines)
            last_ns = at_ns
            if isinstance(tail, FileTail):
                if lines:
                    writer.tell(log_at=tail.position)
            elif tail.ended and not told:
                told = True
                note(writer, "log_ended")

    return [Ticker("log", job.interval_ms * MS_NS, work)]


def _host(job: Job, writer: Writer) -> list[Ticker]:
    if not (job.host or job.gpu):
        return []
    load = HostLoad(job.own)
    gpus = Gpus() if job.gpu else None

    def work(_asked: bool) -> None:  # noqa: FBT001 - Ticker's
        with suppress(OSError, RuntimeError, psutil.Error):
            writer.tell(cpu_ns=cpu_ns())
            began_ns = now_ns()
            # The process table tells the GPU's users apart, so it is read in any case.
            found = load.read()
            if job.host:
                slot = writer.slot
                found += [
                    ("observer_cpu_s", "", slot.cpu_ns / 1e9),
                    ("scrapes", "", float(slot.scrapes)),
                    ("scrapes_skipped", "", float(slot.skipped)),
                    ("scrapes_failed", "", float(slot.failed)),
                    ("records_lost", "", float(slot.lost)),
                ]
                writer.add("host", began_ns, now_ns(), json.dumps(found).encode())
            if gpus:
                began_ns = now_ns()
                seen = gpus.read(load.own_pids)
                writer.add("gpu", began_ns, now_ns(), json.dumps(seen).encode())

    return [Ticker("host", job.host_interval_ms * MS_NS, work)]


if __name__ == "__main__":
    code = main()
    # The threads may wait for a server that never answers: nothing is left to be tidied up.
    os._exit(code)

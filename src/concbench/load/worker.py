"""A generator as a program: `python -m concbench.load.worker PAYLOAD_FD COLUMNS_FD`.

Its job comes by stdin, the payload and the columns of its reads go to the two open files, the rest
to stdout (see `pipe`). It ignores SIGINT, stops when it is told to, and ends when stdin closes:
when the process that started it dies, nothing of it is left.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
from contextlib import suppress
from typing import IO

import msgspec

from concbench.clock import now_ns, sleep_s
from concbench.errors import ConcbenchError
from concbench.load import pipe, share
from concbench.load.generator import Generator, LoadPlan, Progress, run
from concbench.load.loop import News

SPIN_NS = 2_000_000
"""Before the start the last stretch is polled: sleeping is good to a millisecond at best."""


def main() -> int:
    """Run one share of a round; see the module."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    payload, columns = (os.fdopen(int(fd), "r+b", buffering=0) for fd in sys.argv[1:3])
    try:
        length = struct.unpack("=I", pipe.read_exactly(0, 4))[0]
        job = msgspec.msgpack.decode(pipe.read_exactly(0, length), type=share.ShareJob)
    except EOFError:
        return 1
    plan = prepared(job, payload)
    try:
        raw = run(plan, listen)
        raw.log.save(columns)
        body = msgspec.msgpack.encode(share.result_of(raw))
        pipe.write_all(1, pipe.frame(pipe.RESULT, body))
    except (ConcbenchError, OSError) as error:
        with suppress(OSError):
            pipe.write_all(1, pipe.frame(pipe.REFUSED, str(error).encode()))
        return 1
    return 0


def prepared(job: share.ShareJob, payload: IO[bytes]) -> LoadPlan:
    """Return the job's load plan, with its reports."""
    news = News()

    def on_tick(progress: Progress) -> None:
        if plan.loop is not None:
            tell_news(news.drain(plan.loop))
        report(progress)

    plan = share.plan_of(job, gate, payload, on_tick if job.reports else None, news)
    return plan


def gate() -> int | None:
    """Say that all is connected, wait for the common start; None where there is none."""
    os.set_blocking(0, True)  # the event loop, which watches it, has made it non-blocking
    try:
        pipe.write_all(1, pipe.frame(pipe.READY))
        start_ns = pipe.start_of(pipe.read_exactly(0, pipe.START_BYTES))
    except (EOFError, OSError):
        return None
    if start_ns is not None:
        wait_until(start_ns)
    return start_ns


def wait_until(start_ns: int) -> None:
    """Return at that monotonic time: sleep, then poll."""
    left_ns = start_ns - now_ns() - SPIN_NS
    if left_ns > 0:
        sleep_s(left_ns / 1e9)
    while now_ns() < start_ns:
        pass


def report(progress: Progress) -> None:
    """Tell how far it is."""
    with suppress(OSError):
        pipe.write_all(1, pipe.frame(pipe.REPORT, msgspec.msgpack.encode(progress)))


def tell_news(news: News) -> None:
    """Tell what happened in a closed loop."""
    if news.issues_ns or news.ends or news.exhausted:
        with suppress(OSError):
            pipe.write_all(1, pipe.frame(pipe.NEWS, msgspec.msgpack.encode(news)))


def listen(generator: Generator) -> None:
    """Stop the generator when told to, or when the other side is gone."""

    def on_command() -> None:
        os.read(0, 64)
        generator.loop.remove_reader(0)
        generator.interrupt()

    generator.loop.add_reader(0, on_command)


if __name__ == "__main__":
    raise SystemExit(main())

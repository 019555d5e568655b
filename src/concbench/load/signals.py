"""SIGINT and SIGTERM counted, in place of what they do otherwise, while others carry the load."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Signals:
    """How many have come."""

    count: int = 0


@contextmanager
def counted(*, wanted: bool = True) -> Iterator[Signals]:
    """Count signals until the block ends; none where not `wanted`, or outside the main thread."""
    seen = Signals()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def count(number: int, frame: object) -> None:
        del number, frame
        seen.count += 1

    before = [(number, signal.signal(number, count)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield seen
    finally:
        for number, handler in before:
            signal.signal(number, handler)

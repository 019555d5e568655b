"""Signals while something is being written: the first waits until it is written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Insisted(KeyboardInterrupt):
    """A second signal: nothing is finished any more."""


@dataclass(slots=True)
class Held:
    """Whether a signal has come."""

    came: bool = False


@contextmanager
def held(*, came: bool = False) -> Iterator[Held]:
    """Hold the first SIGINT or SIGTERM back until the block ends; `came` says whether one came.

    A second one raises Insisted at once: whoever sends two does not want to wait. `came` tells
    that the first came before. Outside the main thread, where no handler can be set, nothing is
    held.
    """
    state = Held(came)
    if threading.current_thread() is not threading.main_thread():
        yield state
        return

    def hold(number: int, frame: FrameType | None) -> None:
        del number, frame
        if state.came:
            raise Insisted
        state.came = True

    before = [(number, signal.signal(number, hold)) for number in _SIGNALS]
    try:
        yield state
    finally:
        for number, handler in before:
            signal.signal(number, handler)

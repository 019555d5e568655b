"""The only reader of time.

All measurements are monotonic nanoseconds (`CLOCK_MONOTONIC`). The wall clock is read for
labels, and to convert the kernel's receive stamps, which are `CLOCK_REALTIME`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

now_ns = time.monotonic_ns
"""Monotonic nanoseconds. The bare builtin: one call, no wrapper, on the hot path."""

cpu_ns = time.process_time_ns
"""CPU nanoseconds (user and system) that this process has used."""

sleep_s = time.sleep
"""Blocks the calling thread for that many seconds."""


class Clock(Protocol):
    """What code that must run in virtual time is given instead of this module."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""
        ...


class VirtualClock:
    """A clock that stands still until told to move. For tests and simulations."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        """Return the virtual time in nanoseconds."""
        return self._now_ns

    def advance_ns(self, step_ns: int) -> None:
        """Move forward. Raises ValueError for a negative step: time never goes back."""
        if step_ns < 0:
            raise ValueError("a monotonic clock cannot go back")
        self._now_ns += step_ns


def realtime_offset_ns() -> int:
    """Return realtime − monotonic in nanoseconds, from the tightest of five brackets.

    Each reading of the wall clock is bracketed by two monotonic ones; the narrowest bracket has
    the least room for a preemption between the readings.
    """
    best_width, best_offset = 1 << 62, 0
    for _ in range(5):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_width:
            best_width, best_offset = after - before, wall - (before + after) // 2
    return best_offset


def utc_now() -> datetime:
    """Return the wall-clock time, aware, in UTC."""
    return datetime.now(UTC)


def utc_stamp() -> str:
    """Return the wall-clock time as `2026-11-29T15:20:00Z`."""
    return utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")


def folder_stamp() -> str:
    """Return the wall-clock time as `20261129T152000Z`, fit for a folder's name."""
    return utc_now().strftime("%Y%m%dT%H%M%SZ")

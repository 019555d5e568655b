"""Pauses of the whole server: too short to be called a stall, and they spoil a rate all the same.

A pause is a stretch in which no stream got a token although one of them was in the midst of its
answer. The rate of a window that holds one is still tokens ÷ time; its interval is what suffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from concbench.analyse.streams import Stream, times_of

LEAST_NS: Final = 1_000_000_000
TIMES_USUAL: Final = 10.0


@dataclass(frozen=True, slots=True)
class Pause:
    """From the last token before to the first one after, monotonic ns."""

    start_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        """How long nothing came, s."""
        return (self.end_ns - self.start_ns) / 1e9


def longest_pause(streams: Sequence[Stream]) -> Pause | None:
    """Return the longest pause of at least 1 s and ten times the usual gap; None without one."""
    told = [stream for stream in streams if stream.times_ns.size]
    if not told:
        return None
    times = np.sort(times_of(told))
    # Some gaps are 0, between events of one instant; the usual one is of those that are not.
    gaps = np.diff(times)
    if not gaps.any():
        return None
    least = max(LEAST_NS, TIMES_USUAL * float(np.median(gaps[gaps > 0])))
    long = np.flatnonzero(gaps >= least)
    for place in long[np.argsort(gaps[long])[::-1]]:
        start, end = int(times[place]), int(times[place + 1])
        if any(s.times_ns[0] <= start and s.times_ns[-1] >= end for s in told):
            return Pause(start, end)
    return None

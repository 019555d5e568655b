"""Stamps of another host put on our clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from concbench.load.share import ShareResult
from concbench.load.stream import RawRequest

Clock = tuple[tuple[int, int], tuple[int, int]]
"""(their monotonic ns, theirs − ours) before and after a round."""


def aligned(got: ShareResult, clock: Clock) -> ShareResult:
    """Return a share's result with its stamps on our clock.

    The clock offsets of its share stay on the host's own clock, as the reads do.
    """
    ours = clock_map(clock)
    moved = [_moved(one, ours) for one in got.requests]
    return msgspec.structs.replace(
        got, requests=moved, start_ns=ours(got.start_ns), end_ns=ours(got.end_ns)
    )


def _moved(one: RawRequest, ours: Callable[[int], int]) -> RawRequest:
    return replace(
        one,
        due_ns=ours(one.due_ns),
        sent_ns=None if one.sent_ns is None else ours(one.sent_ns),
        send_done_ns=None if one.send_done_ns is None else ours(one.send_done_ns),
        end_ns=None if one.end_ns is None else ours(one.end_ns),
    )


def clock_map(clock: Clock) -> Callable[[int], int]:
    """Return what puts a host's monotonic ns on ours: the offset is taken for a line in time."""
    (first_ns, first_offset), (last_ns, last_offset) = clock
    slope = (last_offset - first_offset) / max(1, last_ns - first_ns)
    return lambda theirs: theirs - first_offset - round((theirs - first_ns) * slope)

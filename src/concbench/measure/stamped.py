"""The stamps of a round's reads as columns: kernel stamps on the monotonic clock, reads by request.

A round may hold ten million reads, so nothing here has a Python object a read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from concbench.load.log import ReadLog

Ints = NDArray[np.int64]


def to_monotonic(kernel: bytes | bytearray, offsets: Sequence[tuple[int, int]]) -> Ints:
    """Decode raw `struct timespec` stamps to monotonic nanoseconds, 0 where there was none.

    `offsets` are samples `(monotonic_ns, realtime − monotonic in ns)`, at least one, in order;
    between two of them the offset is interpolated, outside it is held.
    """
    pairs = np.frombuffer(kernel, dtype=np.int64).reshape(-1, 2)
    real_ns: Ints = pairs[:, 0] * 1_000_000_000 + pairs[:, 1]
    unstamped = pairs[:, 0] == 0
    at = np.array([mono + offset for mono, offset in offsets], dtype=np.int64)
    offset_ns = np.array([offset for _, offset in offsets], dtype=np.int64)
    # Differences from the first sample are small enough for a float; the stamps are not.
    since = (real_ns - at[0]).astype(np.float64)
    drift = np.interp(since, (at - at[0]).astype(float), (offset_ns - offset_ns[0]).astype(float))
    real_ns -= offset_ns[0]
    real_ns -= np.rint(drift).astype(np.int64)
    real_ns[unstamped] = 0
    return real_ns


@dataclass(frozen=True, slots=True)
class Stamps:
    """Both stamps of every read, grouped by request and in order of arrival within each.

    Request `k` (from 0) has the rows `edges[k]` to `edges[k + 1]`.
    """

    kernel_ns: Ints
    user_ns: Ints
    edges: Ints

    def of(self, request: int) -> tuple[Ints, Ints]:
        """Return kernel and user stamps of a request's reads."""
        rows = slice(int(self.edges[request]), int(self.edges[request + 1]))
        return self.kernel_ns[rows], self.user_ns[rows]


def grouped(
    log: ReadLog,
    offsets: Sequence[tuple[int, int]],
    requests: int,
    clock: tuple[tuple[int, int], tuple[int, int]] | None = None,
) -> Stamps:
    """Return the log's stamps by request, put on our clock where they are of another host's."""
    if not len(log):
        nothing = np.empty(0, dtype=np.int64)
        return Stamps(nothing, nothing, np.zeros(requests + 1, dtype=np.int64))
    request = np.frombuffer(log.request, dtype=np.int32)
    order = np.argsort(request, kind="stable")
    edges = np.searchsorted(request[order], np.arange(requests + 1))
    return Stamps(
        kernel_ns=_on_our_clock(to_monotonic(log.kernel, offsets)[order], clock),
        user_ns=_on_our_clock(np.frombuffer(log.user_ns, dtype=np.int64)[order], clock),
        edges=edges.astype(np.int64),
    )


def _on_our_clock(stamps: Ints, clock: tuple[tuple[int, int], tuple[int, int]] | None) -> Ints:
    """Take off the offset, a line in time through its two readings; 0 stays 0."""
    if clock is None:
        return stamps
    (first_ns, first_offset), (last_ns, last_offset) = clock
    slope = (last_offset - first_offset) / max(1, last_ns - first_ns)
    moved: Ints = stamps - first_offset - np.rint((stamps - first_ns) * slope).astype(np.int64)
    return np.where(stamps == 0, 0, moved)

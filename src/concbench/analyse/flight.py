"""How many at once: step functions of intervals, their means, and the tests made on them.

An interval is half open, [start, end): at an instant where one ends and another starts, the
end comes first, so a closed loop of N never shows N + 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """A count over time: `counts[i]` holds from `times_ns[i]` until `times_ns[i + 1]`."""

    times_ns: Ints
    counts: Ints

    @property
    def peak(self) -> int:
        """The largest count, 0 where there was nothing."""
        return int(self.counts.max()) if self.counts.size else 0


def count_at_once(intervals: Iterable[tuple[int, int]]) -> Steps:
    """Return how many of the intervals [start, end) hold at each instant."""
    pairs = np.array([pair for pair in intervals if pair[1] > pair[0]], dtype=np.int64)
    if pairs.size == 0:
        return Steps(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    times, place = np.unique(pairs.T.ravel(), return_inverse=True)
    change = np.zeros(times.size, dtype=np.int64)
    half = len(pairs)
    np.add.at(change, place[:half], 1)
    np.add.at(change, place[half:], -1)
    return Steps(times, np.cumsum(change))


def within(steps: Steps, start_ns: int, end_ns: int) -> tuple[float, float, float] | None:
    """Return the smallest, the time-averaged and the largest count in [start, end)."""
    if end_ns <= start_ns:
        return None
    first = int(np.searchsorted(steps.times_ns, start_ns, side="right")) - 1
    last = int(np.searchsorted(steps.times_ns, end_ns, side="left"))
    counts = steps.counts[max(first, 0) : last]
    if first < 0:
        counts = np.concatenate(([0], counts))
    mean = float(bin_means(steps, np.array([start_ns, end_ns]))[0])
    low, high = float(counts.min()), float(counts.max())
    return low, min(max(mean, low), high), high


def bin_means(steps: Steps, edges_ns: NDArray[np.int64] | Floats) -> Floats:
    """Return the time average between each pair of neighbouring edges (ns, increasing)."""
    edges = np.asarray(edges_ns)
    if steps.times_ns.size == 0:
        return np.zeros(edges.size - 1)
    # Stamps are near 1e15 ns, where a float's step is 1/8 ns; relative ones stay exact.
    origin = steps.times_ns[0]
    times = (steps.times_ns - origin).astype(np.float64)
    area = np.concatenate(([0.0], np.cumsum(steps.counts[:-1] * np.diff(times))))
    at_edges = np.interp((edges - origin).astype(np.float64), times, area)
    widths = np.diff(edges).astype(np.float64)
    means: Floats = np.diff(at_edges) / np.where(widths > 0, widths, np.inf)
    return means


def segments_at(steps: Steps, count: int, min_ns: int) -> list[tuple[int, int]]:
    """Return the intervals of at least `min_ns` in which exactly `count` hold."""
    if steps.times_ns.size < 2:
        return []
    starts, ends = steps.times_ns[:-1], steps.times_ns[1:]
    exact = steps.counts[:-1] == count
    merged: list[tuple[int, int]] = []
    for start, end in zip(starts[exact].tolist(), ends[exact].tolist(), strict=True):
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return [(start, end) for start, end in merged if end - start >= min_ns]


def mser5(values: Floats) -> int:
    """Return how many leading values to cut: MSER on means of five (White 1997).

    The cut minimises the squared standard error of what remains; it is looked for in the first
    half, since the statistic degenerates when little remains.
    """
    batches = values[: values.size // 5 * 5].reshape(-1, 5).mean(axis=1)
    if batches.size < 4:
        return 0
    error = [
        float(batches[cut:].var()) / (batches.size - cut) for cut in range(batches.size // 2 + 1)
    ]
    return 5 * int(np.argmin(error))


def kendall_p(values: Sequence[float] | Floats) -> tuple[float, float]:
    """Return Kendall's tau of the values against their order and its exact two-sided p.

    Ties count as neither concordant nor discordant and are judged by the distribution without
    ties, which errs to the cautious side. Meant for small n (8 batch means).
    """
    data = np.asarray(values, dtype=np.float64)
    n = int(data.size)
    pairs = n * (n - 1) // 2
    if pairs == 0:
        return 0.0, 1.0
    score = int(np.sign(data[None, :] - data[:, None])[np.triu_indices(n, 1)].sum())
    discordant = (pairs - abs(score)) // 2
    tail = sum(_inversions(n)[: discordant + 1]) / math.factorial(n)
    return score / pairs, min(1.0, 2 * tail)


def slope_per_s(steps: Steps, start_ns: int, end_ns: int, bins: int = 32) -> float | None:
    """Return the least-squares slope of the count over [start, end), per second."""
    if end_ns <= start_ns:
        return None
    edges = np.linspace(0, end_ns - start_ns, bins + 1).astype(np.int64) + start_ns
    middles_s = ((edges[:-1] + edges[1:]) / 2 - start_ns) / 1e9
    slope = np.polynomial.Polynomial.fit(middles_s, bin_means(steps, edges), 1).convert().coef
    return float(slope[1]) if slope.size > 1 else 0.0


@lru_cache(maxsize=16)
def _inversions(n: int) -> tuple[int, ...]:
    """How many orders of n things have 0, 1, 2, … inversions."""
    counts = [1]
    for size in range(2, n + 1):
        grown = [0] * (len(counts) + size - 1)
        for inversions, orders in enumerate(counts):
            for extra in range(size):
                grown[inversions + extra] += orders
        counts = grown
    return tuple(counts)

"""The interval of a mean of logarithms, and how many pairs would narrow it enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

POWER = 0.8
"""With the number of pairs given, four repetitions in five would settle it."""

MOST_PAIRS = 9_999


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean and bounds of ln(B ÷ A)."""

    middle: float
    low: float
    high: float


def interval_of(logs: Sequence[float], level: float) -> Interval:
    """Return the mean with Student's t interval of confidence 1 − `level`; needs two values."""
    data = np.asarray(logs)
    middle = float(data.mean())
    half = t_of(data.size - 1, level) * float(data.std(ddof=1)) / math.sqrt(data.size)
    return Interval(middle, middle - half, middle + half)


def t_of(freedom: float, level: float) -> float:
    """Return Student's t that leaves `level` outside on both sides together."""
    return float(stdtrit(freedom, 1 - level / 2))


def pairs_to_settle(logs: Sequence[float], limit: float, alpha: float) -> int | None:
    """Return the smallest number of pairs at which this mean and spread would be settled.

    Settled is: apart from 0 at `alpha`, or equivalent within ±`limit` at 2·`alpha`, either with a
    power of 80 %. None where not even 9,999 pairs would do. Needs three values.
    """
    data = np.asarray(logs)
    middle, spread = abs(float(data.mean())), float(data.std(ddof=1))
    if spread == 0:
        return int(data.size)
    low, high = int(data.size), MOST_PAIRS
    if not _settles(high, middle, spread, limit, alpha):
        return None
    while low < high:
        half = (low + high) // 2
        if _settles(half, middle, spread, limit, alpha):
            high = half
        else:
            low = half + 1
    return low


def _settles(pairs: int, middle: float, spread: float, limit: float, alpha: float) -> bool:
    error = spread / math.sqrt(pairs)
    extra = float(stdtrit(pairs - 1, POWER))
    apart = (t_of(pairs - 1, alpha) + extra) * error <= middle
    return apart or middle + (t_of(pairs - 1, 2 * alpha) + extra) * error <= limit

"""Runs that fall in two states: a hidden slow one makes a mean that describes neither.

Two states need two runs each. A single run apart is named too, as what it is: one run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_GAP = 0.05
"""States closer than 5 % are not told apart: the drift gate and the interval deal with those."""

GAP_TO_RANGE = 3.0
LEAST_RUNS = 5
LEAST_IN_STATE = 2


@dataclass(frozen=True, slots=True)
class Modes:
    """The two groups' geometric means and sizes, in the metric's unit; one may be a single run."""

    low: float
    high: float
    n_low: int
    n_high: int

    @property
    def two_states(self) -> bool:
        """Whether both groups have two runs or more."""
        return min(self.n_low, self.n_high) >= LEAST_IN_STATE

    @property
    def text(self) -> str:
        """`runs fall in two groups, 3 near 63.1 and 2 near 94.2`, or that one run is apart."""
        if not self.two_states:
            alone, rest = self.low, self.high
            if self.n_high < self.n_low:
                alone, rest = rest, alone
            others = self.n_low + self.n_high - 1
            return f"one run near {alone:.3g} and {others} others near {rest:.3g}"
        return (
            f"runs fall in two groups, {self.n_low} near {self.low:.3g} "
            f"and {self.n_high} near {self.high:.3g}"
        )


def modes(values: Sequence[float]) -> Modes | None:
    """Return the two groups that positive values fall in, or None when they are one.

    Split at the widest gap of the sorted logarithms, which must be 5 % or more and three times
    the range of the wider group. One run apart from four others is named, not dropped, though
    it is no state (`two_states`). None for fewer than 5 runs.
    """
    if len(values) < LEAST_RUNS:
        return None
    logs = np.sort(np.log(np.asarray(values, dtype=np.float64)))
    gaps = np.diff(logs)
    place = int(np.argmax(gaps)) + 1
    low, high = logs[:place], logs[place:]
    widest = max(float(np.ptp(low)), float(np.ptp(high)))
    if gaps[place - 1] < max(math.log1p(LEAST_GAP), GAP_TO_RANGE * widest):
        return None
    return Modes(
        math.exp(float(low.mean())), math.exp(float(high.mean())), int(low.size), int(high.size)
    )

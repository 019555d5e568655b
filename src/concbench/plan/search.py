"""Which level or rate to measure next when the largest that holds is looked for. Pure."""

from __future__ import annotations

import math

CLOSE_ENOUGH = 1.25
"""The bracket is narrow enough when what fails is at most 25 % above what holds."""


class Search:
    """Doubles from `least` until a level fails or `most` is reached, then halves the bracket."""

    def __init__(self, least: int = 1, most: int = 1024) -> None:
        self._least = least
        self._most = most
        self._held: list[int] = []
        self.fails: int | None = None

    @property
    def holds(self) -> int | None:
        """The largest level that held below the first that failed."""
        below = [level for level in self._held if self.fails is None or level < self.fails]
        return max(below, default=None)

    def next(self) -> int | None:
        """Return the next level, None where the answer is known as well as it will be."""
        if self.fails is None:
            if self.holds is None:
                return self._least
            return None if self.holds >= self._most else min(2 * self.holds, self._most)
        if self.holds is None:
            return max(1, self.fails // 2) if self.fails > 1 else None
        if self.fails - self.holds <= 1 or self.fails <= CLOSE_ENOUGH * self.holds:
            return None
        return min(self.fails - 1, max(self.holds + 1, round(math.sqrt(self.holds * self.fails))))

    def tell(self, level: int, *, held: bool) -> None:
        """Take note of how a level came out. One that is not shown to hold counts as failing."""
        if held:
            self._held.append(level)
        else:
            self.fails = level if self.fails is None else min(self.fails, level)


LEAST_SHARE = 1 / 64
"""So far below the first rate a search goes where not even that one holds."""


class RateSearch:
    """Doubles from `least` until a rate fails or `most` is reached, then bisects on a log scale.

    A rate that held and does not when it is measured again counts as failing: what held below it
    is the answer then, and the bracket is narrowed anew. Rates are requests a second.
    """

    def __init__(self, least: float = 1.0, most: float = 256.0) -> None:
        self._least = least
        self._most = most
        self._held: list[float] = []
        self.fails: float | None = None

    @property
    def holds(self) -> float | None:
        """The largest rate that held below the first that failed."""
        below = [rate for rate in self._held if self.fails is None or rate < self.fails]
        return max(below, default=None)

    def next(self) -> float | None:
        """Return the next rate, None where the answer is known as well as it will be."""
        holds = self.holds
        if self.fails is None:
            if holds is None:
                return self._least
            return None if holds >= self._most else min(2 * holds, self._most)
        if holds is None:
            lower = self.fails / 2
            return lower if lower >= LEAST_SHARE * self._least else None
        if self.fails <= CLOSE_ENOUGH * holds:
            return None
        return float(f"{math.sqrt(holds * self.fails):.3g}")

    def tell(self, rate: float, *, held: bool) -> None:
        """Take note of how a rate came out. One that is not shown to hold counts as failing."""
        if held:
            self._held.append(rate)
        else:
            self.fails = rate if self.fails is None else min(self.fails, rate)

"""Which level or rate to measure next when the largest that holds is looked for. Pure."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

Level = TypeVar("Level", int, float)

CLOSE_ENOUGH = 1.25
"""The bracket is narrow enough when what fails is at most 25 % above what holds."""


class _Bracket(Generic[Level]):
    """What held, and the least that failed. `least` is where it begins, `most` the end."""

    def __init__(self, least: Level, most: Level) -> None:
        self._least: Level = least
        self._most: Level = most
        self._held: list[Level] = []
        self.fails: Level | None = None

    @property
    def holds(self) -> Level | None:
        """The largest that held below the first that failed."""
        below = [level for level in self._held if self.fails is None or level < self.fails]
        return max(below, default=None)

    def tell(self, level: Level, *, held: bool) -> None:
        """Take note of how a level came out. One that is not shown to hold counts as failing."""
        if held:
            self._held.append(level)
        else:
            self.fails = level if self.fails is None else min(self.fails, level)

    def _upwards(self) -> Level | None:
        """Return what comes next while nothing has failed."""
        holds = self.holds
        if holds is None:
            return self._least
        twice: Level = holds + holds
        return None if holds >= self._most else min(twice, self._most)


class Search(_Bracket[int]):
    """Doubles from `least` until a level fails or `most` is reached, then halves the bracket."""

    def __init__(self, least: int = 1, most: int = 1024) -> None:
        super().__init__(least, most)

    def next(self) -> int | None:
        """Return the next level, None where the answer is known as well as it will be."""
        if self.fails is None:
            return self._upwards()
        if self.holds is None:
            return max(1, self.fails // 2) if self.fails > 1 else None
        if self.fails - self.holds <= 1 or self.fails <= CLOSE_ENOUGH * self.holds:
            return None
        return min(self.fails - 1, max(self.holds + 1, round(math.sqrt(self.holds * self.fails))))


LEAST_SHARE = 1 / 64
"""So far below the first rate a search goes where not even that one holds."""


class RateSearch(_Bracket[float]):
    """Doubles from `least` until a rate fails or `most` is reached, then bisects on a log scale.

    A rate that held and does not when it is measured again counts as failing: what held below it
    is the answer then, and the bracket is narrowed anew. Rates are requests a second.
    """

    def __init__(self, least: float = 1.0, most: float = 256.0) -> None:
        super().__init__(least, most)

    def next(self) -> float | None:
        """Return the next rate, None where the answer is known as well as it will be."""
        if self.fails is None:
            return self._upwards()
        holds = self.holds
        if holds is None:
            lower = self.fails / 2
            return lower if lower >= LEAST_SHARE * self._least else None
        if self.fails <= CLOSE_ENOUGH * holds:
            return None
        return float(f"{math.sqrt(holds * self.fails):.3g}")

"""Which level to measure next when the largest one that holds is looked for. Pure."""

from __future__ import annotations

import math

CLOSE_ENOUGH = 1.25
"""The bracket is narrow enough when what fails is at most 25 % above what holds."""


class Search:
    """Doubles from `least` until a level fails or `most` is reached, then halves the bracket."""

    def __init__(self, least: int = 1, most: int = 1024) -> None:
        self._least = least
        self._most = most
        self.holds: int | None = None
        self.fails: int | None = None

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
            self.holds = max(self.holds or 0, level)
        else:
            self.fails = level if self.fails is None else min(self.fails, level)

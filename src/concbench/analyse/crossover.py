"""Where one lane stops being the fastest and another begins: ranges, ties, a bracket.

Every level's interval is Bonferroni's, at α ÷ (number of contests), so that all of them hold
together. The bracket is (the largest level at which the winner of the low levels is shown, the
smallest at which the other is); what lies between are ties. A point is given only where the bracket
is at most one doubling wide, interpolated on log₂ of the level; nothing is ever extrapolated, and
more than one change of the winner is "no single crossover".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from msgspec import Struct

from concbench.analyse.intervals import interval_of
from concbench.analyse.looks import nominal_level
from concbench.analyse.verdict import ALPHA, DELTA, MIN_PAIRS, Comparison, logs_of
from concbench.result import VerdictResult

Axis = Literal["concurrency", "context"]
TIE = "tie"
NO_SINGLE = "no single crossover"
UNJUDGED = frozenset({"invalid", "drifted", "not_comparable"})


class Contest(Struct, frozen=True, kw_only=True):
    """Two lanes at one level. `gain` is ln of how much better `b` is, above 0 in its favour.

    `low` and `high` bound it over all contests together; None where there is no interval, and then
    a gain beyond ±ln(1 + `delta`) has to do.
    """

    level: int
    a: str
    b: str
    gain: float
    low: float | None = None
    high: float | None = None
    delta: float = DELTA

    @property
    def winner(self) -> str:
        """The better lane, or `tie`."""
        limit = math.log1p(self.delta)
        low = self.gain - limit if self.low is None else self.low
        high = self.gain + limit if self.high is None else self.high
        return self.b if low > 0 else self.a if high < 0 else TIE


def contests(
    comparisons: Sequence[Comparison],
    verdicts: Sequence[VerdictResult],
    alpha: float = ALPHA,
) -> list[tuple[VerdictResult, Contest]]:
    """Return the contests of one metric by concurrency, each with its verdict.

    `verdicts` go with `comparisons`, one each. Levels without a valid verdict are left out.
    """
    found: list[tuple[VerdictResult, Contest]] = []
    share = alpha / max(1, len(comparisons))
    for given, verdict in zip(comparisons, verdicts, strict=True):
        if verdict.verdict in UNJUDGED or verdict.ratio is None:
            continue
        sign = 1 if given.better == "higher" else -1
        gains = [sign * log for log in logs_of(given.pairs)]
        bounds = None
        if len(gains) >= MIN_PAIRS:
            bounds = interval_of(gains, nominal_level(share, len(gains), given.looks))
        contest = Contest(
            level=given.concurrency,
            a=given.a,
            b=given.b,
            gain=sum(gains) / len(gains),
            low=None if bounds is None else bounds.low,
            high=None if bounds is None else bounds.high,
            delta=given.delta,
        )
        found.append((verdict, contest))
    return found


def crossover(
    metric: str, found: Sequence[Contest], axis: Axis = "concurrency", **more: object
) -> dict[str, Any] | None:
    """Return the crossover entry of the result, or None with fewer than two levels.

    Beside the contract's keys: `lanes`, `point` (a level or None), `note`, `basis` (`intervals`, or
    `points` where some level has none), and `within` of a tie, the lanes that none beats. `more`
    is added as it is.
    """
    by_level: dict[int, list[Contest]] = {}
    for one in found:
        by_level.setdefault(one.level, []).append(one)
    if len(by_level) < 2:
        return None
    lanes = list(dict.fromkeys(name for one in found for name in (one.a, one.b)))
    levels = sorted(by_level)
    best = {level: unbeaten(by_level[level]) for level in levels}
    changes = _changes([(level, best[level][0]) for level in levels if len(best[level]) == 1])
    bracket = changes[0] if len(changes) == 1 else None
    return {
        "metric": metric,
        "axis": axis,
        "ranges": _ranges(levels, best),
        "bracket": None if bracket is None else list(bracket),
        "lanes": lanes,
        "point": None if bracket is None or len(lanes) != 2 else _point(bracket, by_level),
        "note": NO_SINGLE if len(changes) > 1 else None,
        "basis": "points" if any(one.low is None for one in found) else "intervals",
        **more,
    }


def unbeaten(contests_: Sequence[Contest]) -> list[str]:
    """Return the lanes that no other is shown to beat at this level: one winner, or a tie.

    Where each is beaten by another all are left: noise can go round in a circle.
    """
    lanes = list(dict.fromkeys(name for one in contests_ for name in (one.a, one.b)))
    beaten = {one.a if one.winner == one.b else one.b for one in contests_ if one.winner != TIE}
    return [name for name in lanes if name not in beaten] or lanes


def _changes(winners: Sequence[tuple[int, str]]) -> list[tuple[int, int]]:
    """Return between which levels the winner changes, ties left out."""
    return [(low, high) for (low, before), (high, after) in pairwise(winners) if before != after]


def _ranges(levels: Sequence[int], best: Mapping[int, Sequence[str]]) -> list[dict[str, Any]]:
    """Return neighbouring levels of one winner as ranges; only levels that were measured."""
    ranges: list[dict[str, Any]] = []
    for level in levels:
        names = best[level]
        winner = names[0] if len(names) == 1 else TIE
        within = [] if len(names) == 1 else list(names)
        if ranges and (ranges[-1]["winner"], ranges[-1]["within"]) == (winner, within):
            ranges[-1]["to"] = level
        else:
            ranges.append({"from": level, "to": level, "winner": winner, "within": within})
    return ranges


def _point(bracket: tuple[int, int], by_level: Mapping[int, Sequence[Contest]]) -> float | None:
    """Return where the gain crosses 0 on log₂ of the level, within at most one doubling."""
    low, high = bracket
    if low < 1 or high > 2 * low:
        return None
    below, above = by_level[low][0].gain, by_level[high][0].gain
    if below == above:
        return None
    share = below / (below - above)
    return float(2 ** (math.log2(low) + share * (math.log2(high) - math.log2(low))))

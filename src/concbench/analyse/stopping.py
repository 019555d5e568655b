"""When a sustained loop has run for long enough: a rule for repeated looks at a growing loop.

The loop is looked at when its steady part has lasted the longer of `min_s` (30 s where nothing else
is asked for) and eight mean request times, and then at times that grow by a fourth each, so that
there are few looks and every one sees much that the last did not. Stopping at the first interval
that is narrow enough prefers intervals that are narrow by chance: 95 % intervals then cover 91 to
96 %. So two successive looks must both be narrow enough, with which they cover 94 to 97 %
(`bench.coverage`); a higher confidence for the decision alone, or fewer looks, did not help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from concbench.analyse.batches import MIN_BATCHES, Floats, Ints, Spread, wave_spread

FIRST_LOOK_S: Final = 30.0
GROWTH: Final = 1.25
NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class LoopSoFar:
    """What is known of a loop while it runs, all stamps on one monotonic clock.

    `times_ns` (rising) and `tokens` (all tokens until then, from the loop's reads or from the
    server's counter) are ticks, `issues_ns` the times at which requests were sent. `steady_ns` is
    when every worker had finished twice, None until then; `request_s` the mean request time.
    """

    workers: int
    began_ns: int
    steady_ns: int | None
    request_s: float
    times_ns: Ints
    tokens: Floats
    issues_ns: Ints


@dataclass(frozen=True, slots=True)
class StopRule:
    """`target` is the relative half-width wanted, such as 0.01; None runs until `max_s`.

    `min_s` counts from the beginning of the steady part, `max_s` from that of the loop.
    """

    target: float | None
    max_s: float
    min_s: float = FIRST_LOOK_S


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on; nothing will change before `next_look_s` after the loop's beginning."""

    next_look_s: float
    half_width: float | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Issue no more requests. `half_width` is relative, None where there is no interval."""

    ended_by: Literal["interval", "max_s"]
    half_width: float | None


def decide(loop: LoopSoFar, rule: StopRule, now_ns: int) -> Continue | Stop:
    """Return whether the loop goes on. Asking more often than needed changes no answer."""
    elapsed_s = (now_ns - loop.began_ns) / NS
    if loop.steady_ns is None:
        following_s = elapsed_s + max(1.0, loop.request_s)
        return _unless_over(rule, elapsed_s, following_s, None)
    before_s = (loop.steady_ns - loop.began_ns) / NS
    first_s = max(rule.min_s, MIN_BATCHES * loop.request_s)
    steady_s = elapsed_s - before_s
    if steady_s < first_s:
        return _unless_over(rule, elapsed_s, before_s + first_s, None)
    number = int(math.log(steady_s / first_s) / math.log(GROWTH) + 1e-9)
    latest_s = first_s * GROWTH**number
    width = _half_width(loop, latest_s)
    if number and rule.target is not None and width is not None and width <= rule.target:
        earlier = _half_width(loop, latest_s / GROWTH)
        if earlier is not None and earlier <= rule.target:
            return Stop("interval", width)
    return _unless_over(rule, elapsed_s, before_s + latest_s * GROWTH, width)


def spread_until(loop: LoopSoFar, until_ns: int) -> Spread | None:
    """Return the spread of the loop's steady part up to a time; None below eight batches."""
    if loop.steady_ns is None:
        return None
    first, last = np.searchsorted(loop.issues_ns, (loop.steady_ns, until_ns + 1))
    return wave_spread(loop.times_ns, loop.tokens, loop.issues_ns[first:last], loop.workers)


def _half_width(loop: LoopSoFar, steady_s: float) -> float | None:
    found = spread_until(loop, (loop.steady_ns or 0) + int(steady_s * NS))
    return None if found is None else found.half_width()


def _unless_over(
    rule: StopRule, elapsed_s: float, next_look_s: float, width: float | None
) -> Continue | Stop:
    if elapsed_s >= rule.max_s:
        return Stop("max_s", width)
    return Continue(min(rule.max_s, next_look_s), width)

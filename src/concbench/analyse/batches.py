"""How far the rate of one closed loop may be from its long-run rate, from batches of whole waves.

A wave is N issues by N workers, one mean request time on average. Batches end at every so manyth
issue, so each holds as many admissions as the others, and what differs between them is the
engine's own noise and how much of the answers in flight their ends happened to cut. The latter is
taken out by regressing a batch's time on its tokens: over the whole window it does not add up,
only its two ends count. Batches of equal time leave it in; their intervals came out two to five
times too wide (coverage 98 to 100 % where 95 % was claimed; `bench.coverage`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_BATCHES: Final = 8
MAX_BATCHES: Final = 20
LASTING: Final = 0.1
"""Correlation of neighbouring batches from which noise counts as outlasting a batch."""

FAR_OFF: Final = 4.0
"""Standard deviations of a batch by which what is left over may be off."""

EDGE_SHARE: Final = 0.25
"""Share of a batch that convoys and prefills may put on one side or the other of its first edge."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard error of a loop's rate as a share of it, with its (effective) degrees of freedom."""

    batches: int
    relative_error: float
    freedom: float

    def half_width(self, confidence: float = 0.95) -> float:
        """Return half the t interval as a share of the rate."""
        return float(stdtrit(self.freedom, 0.5 + confidence / 2)) * self.relative_error


def wave_spread(times_ns: Ints, tokens: Floats, issues_ns: Ints, workers: int) -> Spread | None:
    """Return the spread between the first and the last issue; None below eight waves.

    `times_ns` increase, and `tokens` counts all tokens until each of them; they may be events or
    the ticks of a counter. `issues_ns` are in order. Batches hold two waves where that leaves at
    least eight of them, more above twenty.
    """
    waves = (issues_ns.size - 1) // workers
    if waves < MIN_BATCHES or times_ns.size < 2:
        return None
    each = max(1, min(2, waves // MIN_BATCHES), -(-waves // MAX_BATCHES))
    count = waves // each
    # Counted from the last issue backwards: what is left over is next to the ramp.
    edges = issues_ns[issues_ns.size - 1 - np.arange(count + 1)[::-1] * each * workers]
    place = np.searchsorted(times_ns, edges, side="right") - 1
    if place[0] < 0:
        return None
    spans_s = np.diff(times_ns[place]) / 1e9
    carried = np.diff(tokens[place])
    if not (spans_s > 0).all() or carried.sum() <= 0:
        return None
    found = _spread(spans_s, carried)
    first = int(np.searchsorted(times_ns, issues_ns[0], side="right")) - 1
    if not 0 <= first < place[0]:
        return found
    left_s = float(times_ns[place[0]] - times_ns[first]) / 1e9
    return _with_rest(found, spans_s, carried, left_s, float(tokens[place[0]] - tokens[first]))


def _with_rest(
    found: Spread, spans_s: Floats, tokens: Floats, left_s: float, left_tok: float
) -> Spread:
    """Return the spread, widened where what is left over took a time that no batch explains.

    What is left over is in the rate though it fills no batch; a pause there must show.
    """
    off_s = left_s - left_tok * float(spans_s.sum() / tokens.sum())
    usual_s = found.relative_error * float(spans_s.mean()) * math.sqrt(spans_s.size)
    if abs(off_s) <= FAR_OFF * usual_s + float(spans_s.mean()) * EDGE_SHARE:
        return found
    error = math.hypot(found.relative_error, off_s / float(spans_s.sum() + left_s))
    return Spread(found.batches, error, found.freedom)


def _spread(spans_s: Floats, tokens: Floats) -> Spread:
    """Split the variance of time per token into noise, which adds up, and ends, which do not."""
    count = spans_s.size
    by_tokens = tokens - tokens.mean()
    by_time = spans_s - spans_s.mean()
    square = float(by_tokens @ by_tokens)
    slope = float(by_tokens @ by_time) / square if square > 0 else 0.0
    # A token more at a batch's end takes a step's share of time: more than none, and less than
    # tokens take on average, prefill included. Without these bounds one batch that holds a pause
    # and by chance the most tokens would explain its own length away.
    each_s = float(spans_s.sum() / tokens.sum())
    slope = min(max(slope, 0.0), each_s)
    left = count - 2 if square > 0 else count - 1
    rest = by_time - slope * by_tokens
    noise = float(rest @ rest) / left / count * _lasting(rest)
    surplus = slope - each_s
    ends = surplus**2 * square / (count - 1) / count**2
    total = noise + ends
    if total <= 0:
        return Spread(count, 0.0, float(left))
    # Welch and Satterthwaite: the two parts are known to different degrees.
    freedom = total**2 / (noise**2 / left + ends**2 / (count - 1))
    return Spread(count, math.sqrt(total) / float(spans_s.mean()), freedom)


def _lasting(rest: Floats) -> float:
    """Return by how much neighbouring batches that err alike raise the variance of their mean.

    1 + 2 r₁, where r₁ (corrected for its bias of −1 ÷ n) is beyond what chance gives.
    """
    square = float(rest @ rest)
    if square <= 0:
        return 1.0
    neighbours = float(rest[1:] @ rest[:-1]) / square + 1 / rest.size
    return 1 + 2 * max(0.0, neighbours - LASTING)

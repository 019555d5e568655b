"""One figure against another, and whether the difference exceeds the noise of both.

Where both are means with t intervals, the difference of their logarithms has Welch's interval
(B. L. Welch, *Biometrika* 34, 1947): its standard errors are what the intervals imply,
half-width ÷ t(0.975, n − 1), as shares of the points. Two intervals of which one is of another kind
(a median's from order statistics) are joined on logarithms: the distances of each point to its
bounds are added in quadrature (G. Y. Zou and A. Donner, *Statistics in Medicine* 27, 2008). Where a
side has no interval, nothing is judged: two ranges of two rounds lie apart by chance in one of
three cases, of three rounds in one of ten.
"""

from __future__ import annotations

import math

from scipy.special import stdtrit

from concbench.analyse.matrix_model import Change
from concbench.domain import Estimate

T_INTERVAL = "t interval"
WELCH = "Welch interval on logarithms, 95 %"
JOINED = "both 95 % intervals joined on logarithms"


def change(a: Estimate | None, b: Estimate | None) -> Change | None:
    """Return b against a; None where one is missing or not positive."""
    if a is None or b is None or a.point <= 0 or b.point <= 0:
        return None
    interval, basis = _interval(a, b)
    low, high = interval or (None, None)
    return Change(
        relative_pct=100 * (b.point / a.point - 1),
        low_pct=None if low is None else 100 * low,
        high_pct=None if high is None else 100 * high,
        exceeds_noise=None if low is None or high is None else low > 0 or high < 0,
        spreads_overlap=_overlap(a, b),
        basis=basis,
    )


def _overlap(a: Estimate, b: Estimate) -> bool | None:
    first, second = a.spread, b.spread
    if first is None or second is None:
        return None
    return first[0] <= second[1] and second[0] <= first[1]


def _interval(a: Estimate, b: Estimate) -> tuple[tuple[float, float] | None, str]:
    """Return the relative change's interval, as shares, or None; and what it rests on."""
    if a.n < 2 or b.n < 2:
        return None, "not repeated: noise unknown"
    bounds = (a.low, a.high, b.low, b.high)
    if None in bounds:
        return None, "too few values for an interval: noise unknown"
    if T_INTERVAL in a.method and T_INTERVAL in b.method:
        return _welch(a, b), WELCH
    if any(bound is not None and bound <= 0 for bound in bounds):
        return None, "an interval that reaches 0: noise unknown"
    return _joined(a, b), JOINED


def _joined(a: Estimate, b: Estimate) -> tuple[float, float]:
    """Return the interval of the change from the distances of the points to their own bounds."""
    (a_down, a_up), (b_down, b_up) = _distances(a), _distances(b)
    middle = math.log(b.point / a.point)
    low = middle - math.hypot(b_down, a_up)
    return math.expm1(low), math.expm1(middle + math.hypot(b_up, a_down))


def _distances(estimate: Estimate) -> tuple[float, float]:
    """Return how far the bounds lie below and above the point, on the logarithm."""
    assert estimate.low is not None
    assert estimate.high is not None
    return math.log(estimate.point / estimate.low), math.log(estimate.high / estimate.point)


def _welch(a: Estimate, b: Estimate) -> tuple[float, float]:
    """Return the relative change's interval, as shares."""
    first, second = _variance(a), _variance(b)
    middle = math.log(b.point / a.point)
    both = first + second
    if both <= 0:
        return math.expm1(middle), math.expm1(middle)
    freedom = both**2 / (first**2 / (a.n - 1) + second**2 / (b.n - 1))
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(both)
    return math.expm1(middle - half), math.expm1(middle + half)


def _variance(estimate: Estimate) -> float:
    """Return the variance of the logarithm of the mean, as its interval implies it."""
    assert estimate.low is not None
    assert estimate.high is not None
    quantile = float(stdtrit(estimate.n - 1, 0.5 + estimate.confidence / 2))
    return float(((estimate.high - estimate.low) / 2 / quantile / estimate.point) ** 2)

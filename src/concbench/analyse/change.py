"""One figure against another, and whether the difference exceeds the noise of both.

Where both are means with t intervals, the difference of their logarithms has Welch's interval
(B. L. Welch, *Biometrika* 34, 1947): its standard errors are what the intervals imply,
half-width ÷ t(0.975, n − 1), as shares of the points. Otherwise what is printed decides: two
intervals, or with fewer than three rounds two ranges, that lie apart.
"""

from __future__ import annotations

import math

from scipy.special import stdtrit

from concbench.analyse.matrix_model import Change
from concbench.domain import Estimate

T_INTERVAL = "t interval"


def change(a: Estimate | None, b: Estimate | None) -> Change | None:
    """Return b against a; None where one is missing or not positive."""
    if a is None or b is None or a.point <= 0 or b.point <= 0:
        return None
    relative = b.point / a.point - 1
    apart = _apart(a, b)
    if T_INTERVAL in a.method and T_INTERVAL in b.method and a.n > 1 and b.n > 1:
        low, high = _welch(a, b)
        return Change(
            relative_pct=100 * relative,
            low_pct=100 * low,
            high_pct=100 * high,
            exceeds_noise=low > 0 or high < 0,
            spreads_overlap=None if apart is None else not apart,
            basis="Welch interval on logarithms, 95 %",
        )
    return Change(
        relative_pct=100 * relative,
        exceeds_noise=apart,
        spreads_overlap=None if apart is None else not apart,
        basis=_basis(a, b, apart),
    )


def spread(estimate: Estimate) -> tuple[float, float] | None:
    """Return the interval, or the range where there is none; None for a single observation."""
    if estimate.low is not None and estimate.high is not None:
        return estimate.low, estimate.high
    return estimate.range if estimate.n > 1 else None


def _apart(a: Estimate, b: Estimate) -> bool | None:
    first, second = spread(a), spread(b)
    if first is None or second is None:
        return None
    return first[1] < second[0] or second[1] < first[0]


def _basis(a: Estimate, b: Estimate, apart: bool | None) -> str:  # noqa: FBT001
    if apart is None:
        return "not repeated: noise unknown"
    ranges = a.low is None or b.low is None
    return "ranges of too few rounds for an interval" if ranges else "95 % intervals"


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

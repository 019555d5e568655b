"""Estimates over rounds and summaries of distributions.

The unit of replication is the round: `mean_estimate` is x̄ ± t(1 − α/2, k − 1)·s/√k over k
rounds, `ratio_estimate` the same on logarithms. `summary` holds nearest-rank percentiles with
distribution-free intervals from order statistics (David and Nagaraja, *Order Statistics*, 7.1).
`scipy.special` is used rather than `scipy.stats`, which takes twice as long to import.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from scipy.special import bdtr, stdtrit

from concbench.domain import Estimate, Summary

if TYPE_CHECKING:
    from numpy.typing import NDArray

PERCENTILES = (50, 90, 95, 99)
MIN_ROUNDS_FOR_INTERVAL = 3
_MOST_LOG = 700.0


def mean_estimate(
    values: Iterable[float], confidence: float = 0.95, unit: str = "round"
) -> Estimate | None:
    """Return the mean with its t interval, or None when there is no finite value.

    With fewer than 3 values there is no interval: `range` holds the smallest and the largest.
    `unit` names what was replicated, for the method's text.
    """
    data = _finite(values)
    if data.size == 0:
        return None
    point = float(data.mean())
    if data.size < MIN_ROUNDS_FOR_INTERVAL:
        return _without_interval(data, point, confidence, f"mean of {_count(data.size, unit)}")
    half = _t_half_width(data, confidence)
    return Estimate(
        point=point,
        low=point - half,
        high=point + half,
        confidence=confidence,
        n=int(data.size),
        method=f"mean of {_count(data.size, unit)}, t interval",
    )


def ratio_estimate(
    ratios: Iterable[float], confidence: float = 0.95, unit: str = "pair"
) -> Estimate | None:
    """Return the geometric mean of positive ratios with the t interval of their logarithms.

    None when there is none. Ratios that are zero, negative or not finite are left out: they have
    no logarithm.
    """
    data = _finite(ratios)
    data = data[data > 0]
    if data.size == 0:
        return None
    logs = np.log(data)
    middle = float(logs.mean())
    if data.size < MIN_ROUNDS_FOR_INTERVAL:
        method = f"geometric mean of {_count(data.size, unit)}"
        return _without_interval(data, math.exp(middle), confidence, method)
    half = _t_half_width(logs, confidence)
    return Estimate(
        point=math.exp(middle),
        low=bounded_exp(middle - half),
        high=bounded_exp(middle + half),
        confidence=confidence,
        n=int(data.size),
        method=f"geometric mean of {_count(data.size, unit)}, t interval on logarithms",
    )


def bounded_exp(log: float) -> float:
    """Return e to that power, within what a double holds: wild values must not cost the rest."""
    return math.exp(min(max(log, -_MOST_LOG), _MOST_LOG))


def widen(estimate: Estimate, relative_error: float, why: str) -> Estimate:
    """Return the estimate with a bound on a systematic error added on both sides.

    `relative_error` is a share of the point; `why` is added to the method. The range of an
    estimate without an interval is widened alike.
    """
    if relative_error <= 0:
        return estimate
    extra = abs(estimate.point) * relative_error
    method = f"{estimate.method}; {why}"
    if estimate.low is None or estimate.high is None:
        seen = estimate.range
        wider = None if seen is None else (seen[0] - extra, seen[1] + extra)
        return replace(estimate, range=wider, method=method)
    return replace(estimate, low=estimate.low - extra, high=estimate.high + extra, method=method)


def relative_half_width(estimate: Estimate | None) -> float | None:
    """Return half the interval's width as a share of the point; None without an interval."""
    return None if estimate is None else estimate.relative_half_width


def summary(values: Iterable[float]) -> Summary:
    """Return count, mean, extremes, nearest-rank percentiles and their 95 % intervals.

    A percentile is given when n(1 − p) ≥ 1 (n ≥ 2, 10, 20, 100), its interval from n ≥ 6, 36,
    72, 368; otherwise None. Nothing is interpolated, so nothing lies above the maximum.
    """
    data = np.sort(_finite(values))
    n = int(data.size)
    if n == 0:
        return Summary(n=0, ci=dict.fromkeys(_NAMES))
    points = {f"p{percent}": _percentile(data, percent) for percent in PERCENTILES}
    return Summary(
        n=n,
        # Rounding can put the mean of equal numbers one step outside their range.
        mean=float(np.clip(data.mean(), data[0], data[-1])),
        min=float(data[0]),
        max=float(data[-1]),
        p50=points["p50"],
        p90=points["p90"],
        p95=points["p95"],
        p99=points["p99"],
        ci={f"p{percent}": _order_interval(data, percent) for percent in PERCENTILES},
    )


@lru_cache(maxsize=4096)
def order_ranks(n: int, percent: int, confidence: float = 0.95) -> tuple[int, int] | None:
    """Return the 1-based ranks whose order statistics bound the percentile, or None.

    The ranks are binom.ppf(α/2, n, p) and binom.ppf(1 − α/2, n, p) + 1; None when one of them
    does not exist. Assumes independent values.
    """
    tail = (1 - confidence) / 2
    share = percent / 100
    low = binomial_quantile(tail, n, share)
    high = binomial_quantile(1 - tail, n, share) + 1
    return (low, high) if low >= 1 and high <= n else None


def binomial_quantile(q: float, n: int, p: float) -> int:
    """Return the smallest k with P(Binomial(n, p) ≤ k) ≥ q."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if bdtr(middle, n, p) >= q:
            high = middle
        else:
            low = middle + 1
    return low


_NAMES = tuple(f"p{percent}" for percent in PERCENTILES)


def nearest_rank(ordered: NDArray[np.float64], percent: int) -> float:
    """Return the percentile of at least one value in ascending order: always one of them."""
    # In integers: 0.95 · 60 in floating point may land just above 57 and shift the rank.
    return float(ordered[-(-int(ordered.size) * percent // 100) - 1])


def _percentile(ordered: NDArray[np.float64], percent: int) -> float | None:
    return None if ordered.size * (100 - percent) < 100 else nearest_rank(ordered, percent)


def _order_interval(ordered: NDArray[np.float64], percent: int) -> tuple[float, float] | None:
    ranks = order_ranks(int(ordered.size), percent)
    return None if ranks is None else (float(ordered[ranks[0] - 1]), float(ordered[ranks[1] - 1]))


def _t_half_width(data: NDArray[np.float64], confidence: float) -> float:
    quantile = float(stdtrit(data.size - 1, 0.5 + confidence / 2))
    return quantile * float(data.std(ddof=1)) / math.sqrt(data.size)


def _without_interval(
    data: NDArray[np.float64], point: float, confidence: float, method: str
) -> Estimate:
    return Estimate(
        point=point,
        low=None,
        high=None,
        confidence=confidence,
        n=int(data.size),
        method=f"{method}, range",
        range=(float(data.min()), float(data.max())),
    )


def _finite(values: Iterable[float]) -> NDArray[np.float64]:
    data = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=np.float64)
    data = data.astype(np.float64, copy=False)
    return data[np.isfinite(data)]


def _count(n: int, unit: str) -> str:
    if n == 1:
        return f"1 {unit}"
    return f"{n} {unit}{'es' if unit.endswith('ch') else 's'}"

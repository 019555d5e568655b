from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.analyse.estimate import (
    binomial_quantile,
    mean_estimate,
    order_ranks,
    ratio_estimate,
    relative_half_width,
    summary,
    widen,
)


def test_t_interval_known_answer():
    found = mean_estimate([10.0, 12.0, 11.0, 13.0])
    assert found is not None
    # s = 1.29099, t(0.975, 3) = 3.18245
    assert found.point == 11.5
    assert found.high == pytest.approx(11.5 + 3.182446 * 1.290994 / 2, rel=1e-6)
    assert found.low == pytest.approx(11.5 - 3.182446 * 1.290994 / 2, rel=1e-6)
    assert (found.n, found.range, found.confidence) == (4, None, 0.95)
    assert "t interval" in found.method


@pytest.mark.parametrize(("values", "seen"), [([5.0], (5.0, 5.0)), ([7.0, 5.0], (5.0, 7.0))])
def test_fewer_than_three_rounds_give_a_range(values, seen):
    found = mean_estimate(values)
    assert found is not None
    assert (found.low, found.high, found.range) == (None, None, seen)
    assert relative_half_width(found) is None


def test_no_values_give_no_estimate():
    assert mean_estimate([]) is None
    assert mean_estimate([float("nan"), float("inf")]) is None
    assert ratio_estimate([0.0, -1.0]) is None
    assert relative_half_width(None) is None


def test_t_interval_covers_as_stated():
    rng = np.random.default_rng(1)
    covered = 0
    for values in rng.normal(100, 2, size=(1000, 4)):
        found = mean_estimate(values)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 100 <= found.high
    assert 0.93 <= covered / 1000 <= 0.97


def test_ratio_is_symmetric():
    ratios = [1.9, 2.0, 2.2]
    one, other = ratio_estimate(ratios), ratio_estimate([1 / r for r in ratios])
    assert one is not None
    assert other is not None
    assert one.point == pytest.approx(math.prod(ratios) ** (1 / 3))
    assert one.point * other.point == pytest.approx(1)
    assert one.low is not None
    assert other.high is not None
    assert one.low * other.high == pytest.approx(1)


def test_widen_adds_on_both_sides():
    found = mean_estimate([99.0, 100.0, 101.0])
    assert found is not None
    wider = widen(found, 0.005, "edge")
    assert wider.high == pytest.approx((found.high or 0) + 0.5)
    assert wider.low == pytest.approx((found.low or 0) - 0.5)
    assert wider.method.endswith("edge")
    assert relative_half_width(wider) == pytest.approx((relative_half_width(found) or 0) + 0.005)
    single = mean_estimate([100.0])
    assert single is not None
    assert widen(single, 0.01, "edge").range == (99.0, 101.0)


@pytest.mark.parametrize(
    ("n", "given"),
    [
        (1, ""),
        (2, "50"),
        (9, "50"),
        (10, "50 90"),
        (20, "50 90 95"),
        (99, "50 90 95"),
        (100, "50 90 95 99"),
    ],
)
def test_percentiles_appear_with_n(n, given):
    found = summary(range(1, n + 1))
    present = [p for p in (50, 90, 95, 99) if getattr(found, f"p{p}") is not None]
    assert present == [int(p) for p in given.split()]
    for percent in present:
        assert getattr(found, f"p{percent}") == math.ceil(n * percent / 100 - 1e-9)


@pytest.mark.parametrize(("percent", "least"), [(50, 6), (90, 36), (95, 72), (99, 368)])
def test_intervals_appear_with_n(percent, least):
    assert order_ranks(least - 1, percent) is None
    assert order_ranks(least, percent) is not None


@pytest.mark.parametrize("percent", [50, 90, 95, 99])
@pytest.mark.parametrize("n", [6, 37, 72, 400, 1000])
def test_order_ranks_against_brute_force(n, percent):
    p = percent / 100
    masses = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    cumulative = np.cumsum(masses)
    low = int(np.argmax(cumulative >= 0.025))
    high = int(np.argmax(cumulative >= 0.975)) + 1
    expected = (low, high) if low >= 1 and high <= n else None
    assert order_ranks(n, percent) == expected
    assert binomial_quantile(0.025, n, p) == low


def test_order_interval_covers():
    rng = np.random.default_rng(2)
    truth = math.log(2)
    covered = 0
    for values in rng.exponential(size=(1000, 40)):
        interval = summary(values).ci["p50"]
        assert interval is not None
        covered += interval[0] <= truth <= interval[1]
    assert covered / 1000 >= 0.94


def test_p99_of_71_samples_is_withheld():
    """D11: at n = 71 the nearest rank of p99 is the maximum."""
    found = summary(np.linspace(100, 128.42, 71))
    assert (found.n, found.p99, found.ci["p99"], found.max) == (71, None, None, 128.42)


def test_empty_summary_has_every_key():
    found = summary([])
    assert (found.n, found.mean, found.p50) == (0, None, None)
    assert found.ci == {"p50": None, "p90": None, "p95": None, "p99": None}


@given(st.lists(st.floats(-1e9, 1e9), max_size=400), st.randoms())
def test_summary_is_ordered_and_blind_to_order(values, rng):
    found = summary(values)
    points = [found.min, found.p50, found.p90, found.p95, found.p99, found.max]
    known = [point for point in points if point is not None]
    assert known == sorted(known)
    if found.mean is not None:
        assert found.min <= found.mean <= found.max
    for name, interval in found.ci.items():
        if interval is not None:
            assert interval[0] <= getattr(found, name) <= interval[1]
    shuffled = list(values)
    rng.shuffle(shuffled)
    again = summary(shuffled)
    assert (again.p50, again.p99, again.max, again.ci) == (
        found.p50,
        found.p99,
        found.max,
        found.ci,
    )


def test_a_wild_ratio_has_bounds_that_a_double_holds():
    found = ratio_estimate([1.0, 1.0, 2.5e174])
    assert found is not None
    assert 0 < found.low < found.high < math.inf

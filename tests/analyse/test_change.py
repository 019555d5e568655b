import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from concbench.analyse.change import change
from concbench.analyse.estimate import mean_estimate
from concbench.domain import Estimate


def test_welch_agrees_with_scipy_on_small_spreads():
    a, b = [100.0, 101.0, 99.5, 100.4], [103.0, 102.0, 104.1, 103.3]
    found = change(mean_estimate(a), mean_estimate(b))
    assert found is not None
    truth = ttest_ind(
        [math.log(x) for x in b], [math.log(x) for x in a], equal_var=False
    ).confidence_interval()
    assert found.low_pct == pytest.approx(100 * math.expm1(truth.low), abs=0.02)
    assert found.high_pct == pytest.approx(100 * math.expm1(truth.high), abs=0.02)
    assert found.relative_pct == pytest.approx(100 * (103.1 / 100.225 - 1))
    assert found.exceeds_noise is True
    assert "Welch" in found.basis


def test_within_the_noise():
    found = change(mean_estimate([100, 104, 97]), mean_estimate([101, 98, 105]))
    assert found is not None
    assert found.exceeds_noise is False
    assert found.spreads_overlap is True


@pytest.mark.parametrize(
    ("other", "exceeds"), [([110.0, 111.0], True), ([100.5, 111.0], False), ([110.0], None)]
)
def test_with_too_few_rounds_the_ranges_decide(other, exceeds):
    found = change(mean_estimate([100.0, 101.0]), mean_estimate(other))
    assert found is not None
    assert found.exceeds_noise is exceeds
    assert (found.low_pct, found.high_pct) == (None, None)


def test_nothing_to_compare():
    assert change(None, mean_estimate([1.0])) is None
    assert change(mean_estimate([0.0, 0.0]), mean_estimate([1.0])) is None


def test_equal_rounds_without_any_spread():
    found = change(mean_estimate([5.0] * 3), mean_estimate([5.0] * 3))
    assert found is not None
    assert found.exceeds_noise is False
    assert found.relative_pct == 0


rates = st.lists(st.floats(50, 200), min_size=3, max_size=6)


@given(rates, rates)
def test_sides_swapped_give_the_same_judgement(a, b):
    first, second = mean_estimate(a), mean_estimate(b)
    there, back = change(first, second), change(second, first)
    assert there is not None
    assert back is not None
    assert there.exceeds_noise == back.exceeds_noise
    assert (1 + there.relative_pct / 100) * (1 + back.relative_pct / 100) == pytest.approx(1)


def test_an_interval_against_a_range():
    odd = Estimate(point=50.0, low=45.0, high=55.0, n=8, method="median of requests")
    found = change(odd, mean_estimate([60.0, 61.0]))
    assert found is not None
    assert found.exceeds_noise is True
    assert "range" in found.basis

import math
import random

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


@pytest.mark.parametrize("other", [[110.0, 111.0], [100.5, 111.0], [110.0], [120.0, 121.0, 122.0]])
def test_with_too_few_rounds_the_noise_is_unknown(other):
    found = change(mean_estimate([100.0, 101.0]), mean_estimate(other))
    assert found is not None
    assert found.exceeds_noise is None
    assert (found.low_pct, found.high_pct) == (None, None)
    assert found.basis.endswith("noise unknown")


def test_of_equal_sides_one_in_twenty_exceeds_the_noise():
    chance = random.Random(7)
    for rounds in (3, 5):
        sides = [[chance.gauss(100, 2) for _ in range(rounds)] for _ in range(4000)]
        found = [
            change(mean_estimate(a), mean_estimate(b))
            for a, b in zip(sides[::2], sides[1::2], strict=True)
        ]
        beyond = sum(one is not None and bool(one.exceeds_noise) for one in found)
        assert beyond / len(found) < 0.065


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


def median(point, low, high, n=8):
    return Estimate(point=point, low=low, high=high, n=n, method="median of requests")


def test_an_interval_against_a_range_is_not_judged():
    found = change(median(50.0, 45.0, 55.0), mean_estimate([60.0, 61.0]))
    assert found is not None
    assert found.exceeds_noise is None
    assert found.spreads_overlap is False


def test_intervals_of_medians_are_joined_on_logarithms():
    # Each reaches 10 % down and up: the difference reaches √2 times as far on the logarithm.
    a, b = median(50.0, 50 / 1.1, 55.0), median(60.0, 60 / 1.1, 66.0)
    found = change(a, b)
    assert found is not None
    factor = 1.1 ** math.sqrt(2)
    assert found.low_pct == pytest.approx(100 * (1.2 / factor - 1))
    assert found.high_pct == pytest.approx(100 * (1.2 * factor - 1))
    # Though both intervals overlap: 55 is above 54.5.
    assert (found.spreads_overlap, found.exceeds_noise) == (True, True)


def test_a_median_against_a_mean_has_an_interval_too():
    found = change(median(50.0, 49.0, 51.0), mean_estimate([60.0, 61.0, 62.0]))
    assert found is not None
    assert found.exceeds_noise is True
    wide = change(median(50.0, 0.0, 51.0), median(60.0, 59.0, 61.0))
    assert wide is not None
    assert wide.exceeds_noise is None

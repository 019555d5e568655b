from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.analyse.flight import (
    bin_means,
    count_at_once,
    kendall_p,
    mser5,
    segments_at,
    slope_per_s,
    within,
)
from tests.analyse.simulate import S


def test_an_end_comes_before_a_start():
    steps = count_at_once([(0, 10), (10, 20), (20, 30)])
    assert steps.peak == 1
    assert within(steps, 0, 30) == (1, 1, 1)
    assert within(steps, -10, 20) == (0, pytest.approx(2 / 3), 1)


def test_nothing_in_flight():
    steps = count_at_once([(5, 5)])
    assert steps.peak == 0
    assert bin_means(steps, np.array([0, 10])).tolist() == [0]
    assert within(steps, 0, 0) is None
    assert segments_at(steps, 1, 0) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20))
def test_counts_against_brute_force(pairs):
    intervals = [(min(pair), max(pair)) for pair in pairs]
    steps = count_at_once(intervals)
    truth = [sum(a <= t < b for a, b in intervals) for t in range(51)]
    found = within(steps, 0, 51)
    assert found is not None
    low, mean, high = found
    assert (low, high) == (min(truth), max(truth))
    assert mean == pytest.approx(sum(truth) / 51)
    exact = {t for a, b in segments_at(steps, 2, 1) for t in range(a, b)}
    assert exact == {t for t, count in enumerate(truth) if count == 2}


def test_means_are_exact_far_from_zero():
    origin = 10**17
    steps = count_at_once([(origin, origin + 3), (origin + 1, origin + 3)])
    assert bin_means(steps, np.array([origin, origin + 3])).tolist() == [5 / 3]


def test_kendall_against_all_orders():
    scores = {}
    for order in itertools.permutations(range(5)):
        tau, p = kendall_p(order)
        scores.setdefault(tau, []).append(p)
    total = sum(len(found) for found in scores.values())
    for tau, found in scores.items():
        tail = sum(len(ps) for other, ps in scores.items() if abs(other) >= abs(tau) - 1e-12)
        assert found[0] == pytest.approx(min(1.0, tail / total) if tau else 1.0)


def test_kendall_of_eight_rising_means():
    tau, p = kendall_p([1, 2, 3, 4, 5, 6, 7, 8])
    assert tau == 1
    assert p == pytest.approx(2 / 40320)
    assert kendall_p([3, 3, 3, 3])[1] == 1
    assert kendall_p([1]) == (0, 1)


def test_mser_cuts_a_ramp():
    rng = np.random.default_rng(3)
    values = np.concatenate((np.linspace(0, 10, 100), np.full(400, 10.0)))
    cut = mser5(values + rng.normal(0, 0.2, 500))
    assert 80 <= cut <= 120
    assert mser5(np.ones(10)) == 0


def test_slope_of_a_growing_queue():
    steps = count_at_once([(k * S, 10_000 * S) for k in range(100)])
    assert slope_per_s(steps, 0, 100 * S) == pytest.approx(1, rel=0.02)
    assert slope_per_s(steps, 5, 5) is None

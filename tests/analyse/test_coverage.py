"""The number is right, and its interval holds the truth as often as it says. See bench.coverage."""

from __future__ import annotations

import pytest

from concbench.analyse.rates import batch_tok_per_s
from concbench.analyse.stopping import StopRule
from concbench.analyse.streams import streams_of
from concbench.analyse.windows import Window, burst_window, closed_window
from tests.analyse.loops import (
    Model,
    covered_by_batches,
    covered_by_rounds,
    covered_when_stopped,
    rates_of,
    run,
    true_rate,
)
from tests.analyse.simulate import MS, Engine, S, burst, closed_loop

RAGGED = Model(spread=0.5)


@pytest.fixture(scope="module")
def truth() -> float:
    return true_rate(RAGGED)


def test_loops_are_right_where_the_classic_figure_is_not():
    n, length = 8, 800
    true = n * length / (n * 0.060 + (length - 1) * (0.020 + n * 0.00025))
    classic = []
    for seed in range(5):
        engine = Engine(
            lambda batch: 20 * MS + batch * MS // 4, 60 * MS, slots=8, noise=0.03, seed=seed
        )
        round_ = closed_loop(engine, n, length, 42 * S)
        window = closed_window(round_, streams_of(round_))
        assert isinstance(window, Window)
        assert window.tok_per_s == pytest.approx(true, rel=0.005)
        classic.append(batch_tok_per_s(round_) or 0.0)
    assert sum(classic) / 5 < 0.9 * true
    assert max(classic) - min(classic) > 0.05 * true


@pytest.mark.parametrize("n", [16, 32])
def test_a_burst_is_right_where_the_classic_figure_is_not(n):
    engine = Engine(lambda batch: 20 * MS + batch * MS // 4, 60 * MS, noise=0.05, seed=n)
    round_ = burst(engine, n, 300)
    window = burst_window(round_, streams_of(round_))
    assert isinstance(window, Window)
    assert window.tok_per_s == pytest.approx(n / (0.020 + n * 0.00025), rel=0.005)
    classic = batch_tok_per_s(round_)
    assert classic is not None
    assert classic < 0.9 * n / (0.020 + n * 0.00025)


def test_intervals_over_batches_hold_the_truth(truth):
    coverage, width = covered_by_batches(run(RAGGED, 1000, 60.0, seed=1), RAGGED, truth)
    assert 0.93 <= coverage <= 0.975
    assert width < 0.007


def test_intervals_over_rounds_hold_the_truth(truth):
    rates = rates_of(run(RAGGED, 4000, 30.0, seed=3), RAGGED)
    assert rates.mean() == pytest.approx(truth, rel=0.001)
    assert 0.93 <= covered_by_rounds(rates, truth) <= 0.97


def test_loops_that_the_rule_ended_hold_the_truth(truth):
    found = run(RAGGED, 500, 120.0, seed=2)
    coverage, length_s, met = covered_when_stopped(
        found, RAGGED, truth, StopRule(0.007, max_s=115.0)
    )
    assert coverage >= 0.93
    assert 40 < length_s < 115
    assert met > 0.9

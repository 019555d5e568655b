import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.errors import UsageError
from concbench.plan.schedule import burst, constant, output_lengths_closed, poisson, trace

RATES = st.floats(0.01, 1e5)


def test_burst():
    assert burst(3) == [0, 0, 0]
    for n in (0, -1):
        with pytest.raises(UsageError, match="must be 1 to"):
            burst(n)


def test_constant_by_number_and_by_duration():
    assert constant(4, n=3) == [0, 250_000_000, 500_000_000]
    assert constant(4, duration_s=1) == [0, 250_000_000, 500_000_000, 750_000_000]
    assert constant(4, n=2, duration_s=1) == [0, 250_000_000]
    assert constant(0.5, duration_s=1) == [0]


def test_constant_never_drifts():
    """200 asked are 200 sent, over half an hour: due times come from the number, not the last."""
    dues = constant(200, duration_s=1800)
    assert len(dues) == 360_000
    assert all(due_ns == k * 5_000_000 for k, due_ns in enumerate(dues))
    assert constant(3, n=3_000_001)[-1] == 1_000_000 * 10**9


@given(RATES, st.integers(0, 1 << 64), st.integers(1, 300))
def test_due_times_never_decrease(rps, seed, n):
    for dues in (constant(rps, n=n), poisson(rps, seed, n=n)):
        assert len(dues) == n
        assert dues == sorted(dues)
        assert dues[0] >= 0


@given(RATES, st.floats(0.001, 100), st.integers(0, 9))
def test_durations_hold(rps, duration_s, seed):
    if rps * duration_s < 5000:
        for dues in (
            constant(rps, duration_s=duration_s),
            poisson(rps, seed, duration_s=duration_s),
        ):
            assert all(due_ns <= duration_s * 1e9 for due_ns in dues)


def test_poisson_has_exponential_gaps_of_the_right_mean():
    dues = poisson(50, 7, n=40_000)
    gaps_s = [(b - a) / 1e9 for a, b in zip([0, *dues], dues, strict=False)]
    # The mean of 40,000 gaps has a standard error of 0.5 %; their standard deviation equals it.
    assert statistics.fmean(gaps_s) == pytest.approx(1 / 50, rel=0.02)
    assert statistics.pstdev(gaps_s) == pytest.approx(1 / 50, rel=0.03)
    for share in (0.1, 0.5, 0.9, 0.99):
        below = sum(gap <= -math.log(1 - share) / 50 for gap in gaps_s) / len(gaps_s)
        assert below == pytest.approx(share, abs=0.01)


def test_poisson_counts_have_variance_equal_to_their_mean():
    counts = [len(poisson(20, seed, duration_s=5)) for seed in range(1500)]
    assert statistics.fmean(counts) == pytest.approx(100, rel=0.01)
    assert statistics.pvariance(counts) == pytest.approx(100, rel=0.12)


def test_poisson_is_seeded():
    assert poisson(5, 1, n=50) == poisson(5, 1, n=50) != poisson(5, 2, n=50)
    assert poisson(5, 1, n=10) == poisson(5, 1, n=50)[:10]
    assert [due_ns // 1000 for due_ns in poisson(5, 1, n=4)] == GOLDEN_POISSON_US


GOLDEN_POISSON_US = [46513, 169050, 253518, 528348]


@pytest.mark.parametrize("rps", [0, -1, math.nan, math.inf])
def test_bad_rates(rps):
    for schedule in (lambda: constant(rps, n=1), lambda: poisson(rps, 0, n=1)):
        with pytest.raises(UsageError, match="rate must be more than 0"):
            schedule()


def test_bad_limits():
    with pytest.raises(UsageError, match="a number of requests or a duration"):
        constant(1)
    for duration_s in (0, -1, math.nan, math.inf):
        with pytest.raises(UsageError, match="duration must be more than 0"):
            poisson(1, 0, duration_s=duration_s)
    with pytest.raises(UsageError, match="must be 1 to"):
        constant(1, n=0)
    with pytest.raises(UsageError, match="at most 10,000,000"):
        constant(1e9, duration_s=1)


def test_trace():
    assert trace([5.0, 5.0, 5.25]) == [0, 0, 250_000_000]
    with pytest.raises(UsageError, match="request 3 of the trace is due at 1 s, before"):
        trace([0.0, 2.0, 1.0])
    with pytest.raises(UsageError, match="request 2 of the trace has no finite time"):
        trace([0.0, math.nan])
    with pytest.raises(UsageError, match="holds no requests"):
        trace([])


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_any_sorted_trace(offsets_s):
    dues = trace(sorted(offsets_s))
    assert dues == sorted(dues)
    assert dues[0] == 0


def test_closed_lengths_are_frozen_by_the_seed():
    assert output_lengths_closed(4, 20, 100, 3, 0.5) == output_lengths_closed(4, 20, 100, 3, 0.5)
    assert output_lengths_closed(4, 20, 100, 3, 0.5) != output_lengths_closed(4, 20, 100, 4, 0.5)
    longer = output_lengths_closed(4, 40, 100, 3, 0.5)
    assert longer.later_tok[:20] == output_lengths_closed(4, 20, 100, 3, 0.5).later_tok


def test_first_lengths_are_residual_lives():
    firsts = [f for seed in range(200) for f in output_lengths_closed(10, 0, 1000, seed).first_tok]
    assert min(firsts) >= 1
    assert max(firsts) <= 1000
    assert statistics.fmean(firsts) == pytest.approx(500, rel=0.02)
    assert statistics.pstdev(firsts) == pytest.approx(1000 / math.sqrt(12), rel=0.03)
    one_run = sorted(output_lengths_closed(10, 0, 1000, 1).first_tok)
    assert all(100 * w < tok <= 100 * (w + 1) + 1 for w, tok in enumerate(one_run))


def test_later_lengths_are_fixed_without_spread():
    assert output_lengths_closed(3, 7, 128, 1).later_tok == [128] * 7


def test_every_stretch_carries_the_same_work():
    lengths = output_lengths_closed(16, 1600, 200, 5, 0.5).later_tok
    blocks = [statistics.fmean(lengths[start : start + 16]) for start in range(0, 1600, 16)]
    independent_sd = 200 * 0.5 / math.sqrt(3) / 4
    assert statistics.pstdev(blocks) < independent_sd / 8
    assert statistics.fmean(lengths) == pytest.approx(200, rel=0.002)
    assert 100 <= min(lengths) < 104
    assert 296 < max(lengths) <= 300


@given(st.integers(1, 64), st.integers(0, 100), st.integers(1, 50), st.floats(0, 0.999))
def test_closed_lengths_are_possible(workers, requests, output_tok, spread):
    lengths = output_lengths_closed(workers, requests, output_tok, 1, spread)
    assert len(lengths.first_tok) == workers
    assert len(lengths.later_tok) == requests
    assert all(1 <= tok <= output_tok for tok in lengths.first_tok)
    assert all(1 <= tok <= 2 * output_tok for tok in lengths.later_tok)


@pytest.mark.parametrize(
    ("workers", "output_tok", "spread"),
    [(0, 1, 0), (1, 0, 0), (1, 1, 1), (1, 1, -0.1), (1, 1, math.nan)],
)
def test_bad_closed_lengths(workers, output_tok, spread):
    with pytest.raises(UsageError):
        output_lengths_closed(workers, 1, output_tok, 1, spread)

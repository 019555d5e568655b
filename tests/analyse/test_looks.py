import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

from concbench.analyse.looks import LOOKS, SMALL_SAMPLE, nominal_level, spent


def test_the_whole_of_alpha_is_there_for_one_look():
    assert nominal_level(0.05, 4, None) == 0.05
    assert nominal_level(0.05, 10, (10,)) == pytest.approx(0.05, rel=1e-9)


def test_two_equal_looks_are_the_published_bounds():
    # Lan and DeMets' Pocock-like spending at t = 0.5 and 1: 2.157 and 2.201 (two-sided 5 %).
    alpha = 0.05 / SMALL_SAMPLE
    first, second = (nominal_level(alpha, n, (50, 100)) for n in (50, 100))
    assert -ndtri(first / 2) == pytest.approx(2.157, abs=0.002)
    assert -ndtri(second / 2) == pytest.approx(2.201, abs=0.002)


def test_spending_grows_from_nothing_to_alpha():
    assert spent(0.05, 0) == 0
    assert spent(0.05, 1) == pytest.approx(0.05)
    assert spent(0.05, 3) == pytest.approx(0.05)
    assert 0.03 < spent(0.05, 0.5) < 0.032


@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.0125])
def test_three_looks_with_students_t_keep_alpha(alpha):
    draw = np.random.default_rng(3).standard_normal((60_000, 10))
    wrong = np.zeros(len(draw), dtype=bool)
    for n in LOOKS:
        part = draw[:, :n]
        t = np.abs(part.mean(1)) * np.sqrt(n) / part.std(1, ddof=1)
        wrong |= t > stdtrit(n - 1, 1 - nominal_level(alpha, n) / 2)
    assert wrong.mean() <= alpha * 1.06


def test_a_look_that_was_not_planned_spends_its_own_share():
    assert 0 < nominal_level(0.05, 6) < nominal_level(0.05, 6, None)
    assert nominal_level(0.05, 12) < 0.05
    assert nominal_level(0.05, 3) < nominal_level(0.05, 5)


@pytest.mark.parametrize(("alpha", "pairs"), [(0.05, 0), (0.0, 5), (1.0, 5)])
def test_nonsense_is_refused(alpha, pairs):
    with pytest.raises(ValueError, match="pair"):
        nominal_level(alpha, pairs)

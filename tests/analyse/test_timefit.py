"""The fit that the predictions share, on times whose factors are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.analyse.timefit import relative_nnls, resident_tok

POSITIVE = st.floats(1e-4, 10)


@given(a=POSITIVE, b=POSITIVE, c=POSITIVE)
def test_exact_times_give_their_factors_back(a: float, b: float, c: float) -> None:
    rows = np.array([[1.0, n, k] for n in (1.0, 2.0, 8.0) for k in (1.0, 5.0, 9.0)])
    assert relative_nnls(rows, rows @ [a, b, c]) == pytest.approx([a, b, c], rel=1e-5, abs=1e-6)


def test_no_factor_is_below_nothing() -> None:
    rows = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    factors = relative_nnls(rows, np.array([3.0, 2.0, 1.0]))
    assert (factors >= 0).all()
    assert factors[1] == 0


def test_relative_errors_count_not_absolute_ones() -> None:
    rows = np.ones((2, 1))
    times = np.array([1.0, 100.0])
    found = relative_nnls(rows, times)[0]
    best = (1 / times).sum() / (1 / times**2).sum()
    assert found == pytest.approx(best)


def test_half_an_answer_is_held_in_the_middle_of_it() -> None:
    assert resident_tok(4, 100, 20) == 440

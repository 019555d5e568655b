"""Times as sums of non-negative factors: the fit that all predictions of this tool share. Pure.

A decode step of B sequences that hold K tokens of KV cache together takes a + b·B + c·K; what they
hold grows while they answer, so half of an answer stands for the middle of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Floats = NDArray[np.float64]


def resident_tok(n: float, context_tok: float, output_tok: float) -> float:
    """Return K: tokens that n requests hold together in the middle of their answers."""
    return n * (context_tok + output_tok / 2)


def relative_nnls(rows: Floats, times_s: Floats) -> Floats:
    """Return the factors (one a column, ≥ 0) whose sums come nearest to `times_s`, relatively.

    Non-negative least squares on rows scaled by 1 ÷ t, so that relative errors count (Lawson and
    Hanson, *Solving Least Squares Problems*, 1974). `rows` is (samples, factors), `times_s` one a
    sample, all above 0.
    """
    factors, _ = nnls(rows / times_s[:, None], np.ones(len(times_s)))
    return np.asarray(factors, dtype=np.float64)

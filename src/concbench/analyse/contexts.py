"""Speed by context: two small models, fitted without the longest context and tried on it. Pure.

Decode: one step of N sequences that hold K tokens together takes t = a + b·N + c·K. Prefill: the
time for one more token of a prompt of length L is p + q·L, attention being linear in what was read
already; a rate measured between L ÷ 2 and L belongs to 0.75·L. Both are fitted by
`timefit.relative_nnls`. An error that is taken from the fitted rows themselves would flatter: the
longest context is held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from concbench.analyse.timefit import relative_nnls, resident_tok

MIN_CONTEXTS = 3
MIDDLE = 0.75


@dataclass(frozen=True, slots=True)
class Point:
    """A measured rate (tok/s) of `n` requests at once at a context; `output_tok` an answer."""

    n: int
    context_tok: int
    output_tok: float
    tok_per_s: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted rates (tok/s), one a point, and the largest relative error where it was held out.

    `held_out_tok` is the context that the fit did not see.
    """

    tok_per_s: tuple[float, ...]
    held_out_tok: int
    error: float


def predict(points: Sequence[Point], kind: Literal["decode", "prefill"]) -> Prediction | None:
    """Return predictions for the points by the fit that never saw the longest context.

    None with fewer than three contexts, with fewer rows than factors, or beyond twice the longest
    context that was fitted: such a prediction would be a guess.
    """
    contexts = sorted({point.context_tok for point in points})
    if len(contexts) < MIN_CONTEXTS or contexts[-1] > 2 * contexts[-2]:
        return None
    usable = [point for point in points if point.tok_per_s > 0]
    rows = np.array([_row(point, kind) for point in usable], dtype=float)
    times = np.array([_time_s(point, kind) for point in usable])
    known = np.array([point.context_tok < contexts[-1] for point in usable])
    if known.sum() < rows.shape[1] or known.all():
        return None
    predicted = rows @ relative_nnls(rows[known], times[known])
    if not (predicted > 0).all():
        return None
    errors = np.abs(times[~known] / predicted[~known] - 1)
    rates = [_rate(point, time, kind) for point, time in zip(usable, predicted, strict=True)]
    if len(usable) != len(points):
        return None
    return Prediction(tuple(rates), contexts[-1], float(errors.max()))


def _row(point: Point, kind: str) -> list[float]:
    if kind == "prefill":
        return [1.0, MIDDLE * point.context_tok]
    return [1.0, float(point.n), resident_tok(point.n, point.context_tok, point.output_tok)]


def _time_s(point: Point, kind: str) -> float:
    """Return seconds a step of `n` tokens, or a prompt token."""
    return (point.n if kind == "decode" else 1) / point.tok_per_s


def _rate(point: Point, time_s: float, kind: str) -> float:
    return float((point.n if kind == "decode" else 1) / time_s)

"""How throughput grows with concurrency: factors against N = 1, gains per doubling, the ceiling.

Facts as data; the report words them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from concbench.domain import Estimate
from concbench.result import CellResult

STILL_GROWING = 1.5
"""A doubling of N that still adds half as much again has not met the ceiling."""

NO_GAIN = 1.03
"""A doubling below this adds nothing that the usual error would not explain."""


LEAST_STEP = 0.5
"""Doublings of N from which a step is scaled to a whole one: the noise of a smaller one would be
scaled more than twofold, and that between N = 31 and 33 elevenfold."""


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """One concurrency. `factor` is against N = 1, `gain_per_doubling` against the nearest level
    that is at least half a doubling below.

    `estimand` is `decode`, `sustained` or `batch`, the figure that both sides share.
    """

    concurrency: int
    tok_per_s: float
    factor: float | None
    gain_per_doubling: float | None
    estimand: str


@dataclass(frozen=True, slots=True)
class Scaling:
    """The curve, and what its end says of the ceiling.

    `beyond`: the last doubling still gains at least 1.5 ×; `approaching`: less; `reached`: under
    1.03 ×; `passed`: the best level is not the last and lies above it by more than 3 %.
    """

    points: tuple[ScalePoint, ...]
    ceiling: Literal["beyond", "approaching", "reached", "passed", "unknown"]
    best_concurrency: int | None
    gain_min: float | None
    gain_max: float | None


def scaling(cells: Sequence[CellResult]) -> Scaling:
    """Return how the cells of one lane and context scale, in order of their concurrency.

    Steady figures are compared where every cell has one of the same estimand, batch figures
    otherwise: a steady and a batch figure are different quantities.
    """
    ordered = sorted(cells, key=lambda cell: cell.concurrency)
    estimand, figures = _common_figures(ordered)
    points: list[ScalePoint] = []
    known: list[Estimate] = []
    for cell, figure in zip(ordered, figures, strict=True):
        if figure is None or figure.point <= 0:
            continue
        single = points[0].tok_per_s if points and points[0].concurrency == 1 else None
        if cell.concurrency == 1:
            single = figure.point
        points.append(
            ScalePoint(
                concurrency=cell.concurrency,
                tok_per_s=figure.point,
                factor=None if single is None else figure.point / single,
                gain_per_doubling=_gain(points, cell, figure),
                estimand=estimand,
            )
        )
        known.append(figure)
    gains = [p.gain_per_doubling for p in points if p.gain_per_doubling is not None]
    best = max(points, key=lambda p: p.tok_per_s) if points else None
    return Scaling(
        points=tuple(points),
        ceiling=_ceiling(points, gains, best, known),
        best_concurrency=None if best is None else best.concurrency,
        gain_min=min(gains, default=None),
        gain_max=max(gains, default=None),
    )


def _common_figures(cells: Sequence[CellResult]) -> tuple[str, list[Estimate | None]]:
    estimands = {cell.steady.estimand if cell.steady.found else None for cell in cells}
    if len(estimands) == 1:
        (estimand,) = estimands
        if estimand is not None:
            return estimand, [cell.client.steady_output_tok_per_s for cell in cells]
    return "batch", [cell.client.output_tok_per_s for cell in cells]


def _gain(points: Sequence[ScalePoint], cell: CellResult, figure: Estimate) -> float | None:
    """Return what a doubling adds, by the nearest level that is far enough below."""
    for below in reversed(points):
        doublings = math.log2(cell.concurrency / below.concurrency)
        if doublings >= LEAST_STEP:
            return float((figure.point / below.tok_per_s) ** (1 / doublings))
    return None


def surely_below(low: Estimate, high: Estimate, factor: float) -> bool:
    """Return whether two intervals show that a step brings less than a factor."""
    below, above = low.relative_half_width, high.relative_half_width
    if below is None or above is None or low.point <= 0:
        return False
    return high.point / low.point * (1 + math.hypot(below, above)) < factor


def _ceiling(
    points: Sequence[ScalePoint],
    gains: Sequence[float],
    best: ScalePoint | None,
    known: Sequence[Estimate],
) -> Literal["beyond", "approaching", "reached", "passed", "unknown"]:
    if best is None or not gains:
        return "unknown"
    if (
        best.concurrency != points[-1].concurrency
        and best.tok_per_s > NO_GAIN * points[-1].tok_per_s
    ):
        return "passed"
    doublings = math.log2(points[-1].concurrency / points[-2].concurrency)
    near = doublings < LEAST_STEP and surely_below(known[-2], known[-1], NO_GAIN**doublings)
    if gains[-1] < NO_GAIN or near:
        return "reached"
    return "beyond" if gains[-1] >= STILL_GROWING else "approaching"

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


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """One concurrency. `factor` is against N = 1, `gain_per_doubling` against the level below.

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
                gain_per_doubling=_gain(points[-1], cell, figure) if points else None,
                estimand=estimand,
            )
        )
    gains = [p.gain_per_doubling for p in points if p.gain_per_doubling is not None]
    best = max(points, key=lambda p: p.tok_per_s) if points else None
    return Scaling(
        points=tuple(points),
        ceiling=_ceiling(points, gains, best),
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


def _gain(below: ScalePoint, cell: CellResult, figure: Estimate) -> float | None:
    doublings = math.log2(cell.concurrency / below.concurrency)
    if doublings <= 0:
        return None
    return float((figure.point / below.tok_per_s) ** (1 / doublings))


def _ceiling(
    points: Sequence[ScalePoint], gains: Sequence[float], best: ScalePoint | None
) -> Literal["beyond", "approaching", "reached", "passed", "unknown"]:
    if best is None or not gains:
        return "unknown"
    if (
        best.concurrency != points[-1].concurrency
        and best.tok_per_s > NO_GAIN * points[-1].tok_per_s
    ):
        return "passed"
    if gains[-1] < NO_GAIN:
        return "reached"
    return "beyond" if gains[-1] >= STILL_GROWING else "approaching"

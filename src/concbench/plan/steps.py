"""In which order a sweep's rounds are run. Pure.

All cells have their first round before any has its second, so that the rounds of a cell spread
over the whole time and a drift falls on all cells alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from concbench.plan.matrix import MatrixCell
from concbench.plan.order import cell_order

PREFILL_LEAST_TOK = 256
"""Prompts from this length on get a second, half as long one at N = 1: the prefill rate."""


class Step(Struct, frozen=True, kw_only=True):
    """One round of one cell, or of the companion that stands beside it.

    `half` is the request with half the prompt after a round at N = 1, `control` the first cell of
    a lane once more after all others.
    """

    cell: MatrixCell
    index: int
    kind: str = "round"

    @property
    def cell_id(self) -> str:
        """The id that the step's round carries."""
        name = self.cell.cell.cell
        return name if self.kind == "round" else f"{name}.{self.kind}"

    @property
    def prompt_tok(self) -> int:
        """The length of its prompts."""
        tokens = self.cell.cell.context_tok
        return tokens // 2 if self.kind == "half" else tokens


def steps_of(cells: Sequence[MatrixCell], rounds: int, seed: int) -> list[Step]:
    """Return every step of cells that can be measured at any time, the controls last.

    With one lane the cells are shuffled anew in each round. With several, each point of the
    matrix visits all lanes before the next, in the order A B in even rounds and B A in odd ones:
    two lanes are then compared over moments that lie close together.
    """
    points: dict[tuple[int, int], list[MatrixCell]] = {}
    for each in cells:
        points.setdefault((each.cell.context_tok, each.cell.concurrency), []).append(each)
    steps: list[Step] = []
    for index, point in cell_order(list(points), rounds, seed):
        members = points[point]
        for each in members if index % 2 == 0 else reversed(members):
            steps += _with_half(each, index)
    return [*steps, *_controls(steps)]


def _with_half(cell: MatrixCell, index: int) -> list[Step]:
    step = Step(cell=cell, index=index)
    if cell.cell.concurrency == 1 and cell.cell.context_tok >= PREFILL_LEAST_TOK:
        return [step, Step(cell=cell, index=index, kind="half")]
    return [step]


def _controls(steps: Sequence[Step]) -> list[Step]:
    """Return the first step of each lane once more, for lanes of more than one cell."""
    first: dict[str, Step] = {}
    others: set[str] = set()
    for step in steps:
        known = first.setdefault(step.cell.cell.lane, step)
        if known.cell.cell.cell != step.cell.cell.cell:
            others.add(step.cell.cell.lane)
    return [
        Step(cell=step.cell, index=0, kind="control")
        for lane, step in first.items()
        if lane in others
    ]

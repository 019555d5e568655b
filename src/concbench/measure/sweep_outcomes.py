"""Outcomes of a sweep's cells, put on record: a final one ends its cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from concbench.domain import Cell, CellOutcome
from concbench.measure.sweep_state import Standing
from concbench.plan.matrix import MatrixCell
from concbench.plan.steps import Step
from concbench.store.write import StudyWriter


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Writes outcomes into the study's log, and final ones into where the sweep stands."""

    state: Standing
    writer: StudyWriter

    def end(
        self,
        cell: MatrixCell,
        outcome: CellOutcome,
        why: str,
        log: list[str],
        **more: Any,  # noqa: ANN401 - data of the log's line
    ) -> None:
        """Write down how a cell ended."""
        self.failed(cell.cell.cell, cell.cell, outcome, why, log, final=True, **more)

    def refused(self, step: Step, why: str) -> None:
        """End the one cell whose length was refused although others of it were answered."""
        cell = step.cell.cell
        told = f"{why} (at N = {cell.concurrency}; one of that length was answered)"
        self.failed(step.cell_id, cell, "context_rejected", told, [], final=True)

    def too_long(self, step: Step, cells: Iterable[MatrixCell], why: str) -> None:
        """End every one of these cells with the length that was refused, and skip longer ones."""
        limit = step.cell.cell.context_tok
        for each in cells:
            if each.cell.cell in self.state.ended:
                continue
            if each.cell.context_tok == limit:
                self.end(each, "context_rejected", why, [])
            elif each.cell.context_tok > limit:
                self.end(each, "skipped", f"a context of {limit} tokens was rejected", [])

    def failed(
        self,
        cell_id: str,
        cell: Cell,
        outcome: CellOutcome,
        why: str,
        log: list[str],
        *,
        final: bool,
        **more: Any,  # noqa: ANN401 - data of the log's line
    ) -> None:
        """Write down an outcome with the engine's last lines; a final one ends the cell."""
        data = {
            "outcome": outcome,
            "final": final,
            "lane": cell.lane,
            "cell": msgspec.to_builtins(cell),
            "log": log,
            **more,
        }
        self.writer.failed(cell_id, why, data)
        if final:
            self.state.ended[cell_id] = (outcome, why)

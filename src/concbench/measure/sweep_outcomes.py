"""Outcomes of a sweep's cells, put on record: a final one ends its cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from concbench.domain import Cell, CellOutcome
from concbench.measure.sweep_state import Standing
from concbench.plan.matrix import MatrixCell
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

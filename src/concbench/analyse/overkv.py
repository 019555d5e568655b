"""What happens beyond the KV pool or the engine's own cap: queueing, preemptions, failures.

Queueing is linear: with N requests where n fit, the whole takes N ÷ n times as long and the
throughput stays as it was. The two ratios stand beside each other, so that anything else shows.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from concbench.result import CellResult

CONSTANT_WITHIN = 0.03
"""Throughput counts as constant, and elapsed time as linear, within this share."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a cell asks of the pool: N × (context + output), in tokens, and what that exceeds."""

    demand_tok: int
    pool_tok: int | None = None
    cap: int | None = None
    over_kv: bool = False
    capped: bool = False

    @property
    def beyond(self) -> bool:
        """Whether not all requests can run at once."""
        return self.over_kv or self.capped


def sweep_cells(
    cells: Sequence[CellResult],
    demands: Mapping[str, Demand],
    elapsed_s: Mapping[str, Sequence[float]],
    doubted: Container[str] = (),
) -> list[dict[str, Any]]:
    """Return one entry a cell: its demand, how long its rounds took, what the server told.

    `elapsed_s` has the lengths of the measured rounds by cell id. A cell beyond pool or cap is set
    `against` the largest cell inside at the same lane, link and context: None where there is none,
    where either has a fatal doubt (`doubted`), and where not every request of both was answered.
    """
    inside: dict[tuple[str, str | None, int], CellResult] = {}
    for cell in sorted(cells, key=lambda each: each.concurrency):
        demand = demands.get(cell.cell)
        fit = demand is not None and not demand.beyond and elapsed_s.get(cell.cell)
        if fit and cell.cell not in doubted and all_answered(cell):
            inside[_point(cell)] = cell
    return [
        _entry(
            cell,
            demands[cell.cell],
            inside.get(_point(cell)) if cell.cell not in doubted and all_answered(cell) else None,
            elapsed_s,
        )
        for cell in cells
        if cell.cell in demands
    ]


def all_answered(cell: CellResult) -> bool:
    """Return whether every request was answered: part of a batch takes less time."""
    return bool(cell.requests.ok) and cell.requests.ok == cell.requests.sent


def _point(cell: CellResult) -> tuple[str, str | None, int]:
    return (cell.lane, cell.link, cell.context_tok)


def _entry(
    cell: CellResult,
    demand: Demand,
    base: CellResult | None,
    elapsed_s: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    took = elapsed_s.get(cell.cell, ())
    compared = None
    if demand.beyond and base is not None and took:
        compared = _against(cell, base, mean(took), mean(elapsed_s[base.cell]))
    return {
        "cell": cell.cell,
        "demand_tok": demand.demand_tok,
        "pool_tok": demand.pool_tok,
        "cap": demand.cap,
        "over_kv": demand.over_kv,
        "capped": demand.capped,
        "elapsed_s": mean(took) if took else None,
        "failures": cell.requests.failed,
        "preemptions": cell.server.preemptions,
        "waiting_max": cell.server.waiting_max,
        "queue_ms": cell.server.queue_ms,
        "against": compared,
    }


def _against(cell: CellResult, base: CellResult, took_s: float, base_s: float) -> dict[str, Any]:
    wanted = cell.concurrency / base.concurrency
    elapsed = took_s / base_s if base_s > 0 else None
    here, there = cell.client.output_tok_per_s, base.client.output_tok_per_s
    rate = here.point / there.point if here and there and there.point > 0 else None
    return {
        "cell": base.cell,
        "concurrency_ratio": wanted,
        "elapsed_ratio": elapsed,
        "throughput_ratio": rate,
        "linear": None if elapsed is None else abs(elapsed / wanted - 1) <= CONSTANT_WITHIN,
        "constant": None if rate is None else abs(rate - 1) <= CONSTANT_WITHIN,
    }

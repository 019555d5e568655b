"""Cells beyond the KV pool beside the last one inside, with known answers."""

from __future__ import annotations

import pytest

from concbench.analyse.cell import empty_cell
from concbench.analyse.overkv import Demand, sweep_cells
from concbench.domain import Cell, Estimate
from concbench.result import CellResult, Requests


def cell(n: int, rate: float, context: int = 32_000) -> CellResult:
    name = f"q.{context}.c{n}"
    made = empty_cell(
        Cell(cell=name, lane="q", concurrency=n, context_tok=context), "measured", None
    )
    made.requests = Requests(sent=n, ok=n)
    made.client.output_tok_per_s = Estimate(point=rate, low=None, high=None, n=2, method="mean")
    return made


def test_the_published_case_of_queueing() -> None:
    """19 inside in 415.1 s, 29 beyond in 632.2 s: 1.523 beside 1.526, throughput constant."""
    cells = [cell(1, 5.4), cell(19, 5.9), cell(29, 5.9)]
    demands = {
        "q.32000.c1": Demand(32_128, 635_712),
        "q.32000.c19": Demand(610_432, 635_712),
        "q.32000.c29": Demand(931_712, 635_712, over_kv=True),
    }
    took = {"q.32000.c1": [30.0], "q.32000.c19": [415.0, 415.2], "q.32000.c29": [632.2]}
    first, _, last = sweep_cells(cells, demands, took)
    assert first["against"] is None
    against = last["against"]
    assert against["cell"] == "q.32000.c19"
    assert against["elapsed_ratio"] == pytest.approx(1.523, abs=5e-4)
    assert against["concurrency_ratio"] == pytest.approx(1.526, abs=5e-4)
    assert against["linear"] is True
    assert against["constant"] is True
    assert last["failures"] == 0


def test_a_cell_that_slows_down_beyond_its_pool_is_not_constant() -> None:
    cells = [cell(4, 10.0), cell(6, 6.0)]
    demands = {"q.32000.c4": Demand(1, 2), "q.32000.c6": Demand(3, 2, over_kv=True)}
    _, over = sweep_cells(cells, demands, {"q.32000.c4": [10.0], "q.32000.c6": [25.0]})
    assert over["against"]["constant"] is False
    assert over["against"]["linear"] is False


def test_without_a_cell_inside_there_is_nothing_to_compare_with() -> None:
    cells = [cell(4, 10.0, context=50), cell(6, 6.0)]
    demands = {"q.50.c4": Demand(1, 2), "q.32000.c6": Demand(3, 2, over_kv=True)}
    _, over = sweep_cells(cells, demands, {"q.50.c4": [10.0], "q.32000.c6": [25.0]})
    assert over["against"] is None
    assert sweep_cells(cells, {}, {}) == []


def test_nothing_is_set_against_a_doubted_cell_or_one_with_failures() -> None:
    demands = {"q.32000.c4": Demand(1, 2), "q.32000.c6": Demand(3, 2, over_kv=True)}
    took = {"q.32000.c4": [10.0], "q.32000.c6": [15.0]}
    cells = [cell(4, 10.0), cell(6, 10.0)]
    assert sweep_cells(cells, demands, took)[1]["against"] is not None
    for name in demands:
        assert sweep_cells(cells, demands, took, {name})[1]["against"] is None
    for place in (0, 1):
        cells = [cell(4, 10.0), cell(6, 10.0)]
        cells[place].requests = Requests(sent=6, ok=5, failed=1)
        assert sweep_cells(cells, demands, took)[1]["against"] is None

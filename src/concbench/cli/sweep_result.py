"""What a sweep's study says beyond its rounds: outcomes, the KV pool, controls, ceilings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from concbench.analyse.cell import empty_cell
from concbench.analyse.overkv import Demand, sweep_cells
from concbench.analyse.severity import doubt
from concbench.domain import Cell, Doubt
from concbench.measure.sweep_state import CEILING_NOTE, CRASHES, listed_cells, standing_of
from concbench.result import CellResult, Result
from concbench.store.read import RoundInfo, StudyReader

_RANK = {"fatal": 0, "warning": 1, "note": 2}


def add_sweep(result: Result, reader: StudyReader) -> None:
    """Put the sweep's outcomes into the result's cells, doubts and payload."""
    state = standing_of(reader)
    found = {cell.cell: cell for cell in result.cells}
    demands: dict[str, Demand] = {}
    for note, entry in listed_cells(reader):
        demands[entry["cell"]["cell"]] = Demand(
            demand_tok=entry["demand_tok"],
            pool_tok=note["pool_tok"],
            cap=note["cap"],
            over_kv=entry["over_kv"],
            capped=entry["capped"],
        )
    for name, (outcome, why) in state.ended.items():
        cell = _failed_cell(reader, name)
        if cell is None or cell.context_label in ("half", "control", "ceiling"):
            continue
        if name not in found:
            found[name] = empty_cell(cell, outcome, why)
            result.cells.append(found[name])
        found[name].outcome, found[name].outcome_detail = outcome, why
        result.doubts += _doubts(found[name])
    result.cells.sort(key=_place)
    result.doubts.sort(key=lambda one: _RANK[one.severity])
    payload = {
        "cells": sweep_cells(result.cells, demands, state.took_s),
        "controls": list(_controls(reader, found)),
        "ceilings": reader.notes(CEILING_NOTE),
        "failures": [
            {"cell": line.cell, "why": line.why, "at_utc": line.utc, **_told(line.data or {})}
            for line in reader.failures()
        ],
    }
    result.payload = {**(result.payload or {}), "sweep": payload}


def is_left_out(info: RoundInfo) -> bool:
    """Whether a round of a sweep has no part in the figures: a failed attempt, on record apart."""
    return info.phase == "discarded"


def _place(cell: CellResult) -> tuple[str, str, int, int]:
    return (cell.lane, cell.link or "", cell.context_tok, cell.concurrency)


def _failed_cell(reader: StudyReader, name: str) -> Cell | None:
    for line in reversed(reader.failures()):
        if line.cell == name and line.data and "cell" in line.data:
            return msgspec.convert(line.data["cell"], Cell)
    return None


def _told(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: data.get(key) for key in ("outcome", "final", "lane", "log")}


def _doubts(cell: CellResult) -> Iterator[Doubt]:
    detail = cell.outcome_detail or "no reason was given"
    evidence = {"outcome": cell.outcome, "detail": detail}
    if cell.outcome == "context_rejected":
        yield doubt(
            "context_rejected",
            cell.cell,
            f"the server refused a prompt of {cell.context_tok} tokens as too long ({detail}): the "
            "cell lies outside its context. Shorten prompt or answer, or start it with more "
            "context a slot.",
            evidence,
        )
    elif cell.outcome in CRASHES:
        yield doubt(
            "lane_incomplete",
            cell.cell,
            f"{cell.outcome}: {detail}. The cell ended with {cell.rounds} measured rounds: look at "
            "the engine's log, then start the same command with --retry-failed.",
            evidence,
        )


def _controls(reader: StudyReader, cells: Mapping[str, CellResult]) -> Iterator[dict[str, Any]]:
    """Yield the repeated first cell of each lane beside its earlier rounds."""
    first: dict[str, list[float]] = {}
    for info in reader.rounds("measured"):
        if not info.interrupted and not info.retracted:
            first.setdefault(info.cell.cell, []).append((info.end_ns - info.start_ns) / 1e9)
    for name, took in first.items():
        base, _, kind = name.rpartition(".")
        if kind != "control" or base not in cells or base not in first:
            continue
        drift = math.log((sum(first[base]) / len(first[base])) / took[-1])
        yield {
            "cell": base,
            "lane": cells[base].lane,
            "elapsed_s": sum(first[base]) / len(first[base]),
            "control_elapsed_s": took[-1],
            "drift_pct": 100 * (math.exp(drift) - 1),
        }

"""What a sweep's study says beyond its rounds: outcomes, the KV pool, controls, ceilings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from concbench.analyse.cell import empty_cell
from concbench.analyse.matrix_against import family
from concbench.analyse.overkv import Demand, sweep_cells
from concbench.analyse.severity import doubt
from concbench.domain import Cell, Doubt
from concbench.measure.sweep_state import CEILING_NOTE, CRASHES, listed_cells, standing_of
from concbench.report.headline import fatal_codes
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
    lanes = lanes_of(reader, [cell.lane for cell in result.cells])
    result.cells.sort(key=lambda cell: _place(cell, lanes))
    result.doubts.sort(key=lambda one: _RANK[one.severity])
    payload = {
        "cells": sweep_cells(result.cells, demands, state.took_s, fatal_by_cell(result)),
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


def planned(reader: StudyReader) -> Mapping[str, Any]:
    """Return the plan file's content as a sweep keeps it; empty for other studies."""
    found = reader.plan.get("plan")
    return found if isinstance(found, Mapping) else {}


def lanes_of(reader: StudyReader, measured: Iterable[str]) -> list[str]:
    """Return the lanes in the plan's order: the first is what others are compared with.

    Those that vary a flag stand where their lane does, in the order in which they were started.
    """
    plan = planned(reader)
    wanted = (plan.get("sweep") or {}).get("lanes") or plan.get("lanes") or ()
    started = [info.cell.lane for info in reader.rounds()]
    place = {name: index for index, name in enumerate(wanted)}
    seen = dict.fromkeys([*started, *measured])
    return sorted(seen, key=lambda lane: place.get(family(lane), len(place)))


def fatal_by_cell(result: Result) -> dict[str, list[str]]:
    """Return the codes of the fatal doubts that stand on each cell that has any."""
    fatal = [one for one in result.doubts if one.severity == "fatal"]
    found = {cell.cell: fatal_codes(cell, fatal) for cell in result.cells}
    return {name: codes for name, codes in found.items() if codes}


def _place(cell: CellResult, lanes: Sequence[str]) -> tuple[int, str, str, int, int]:
    lane = lanes.index(cell.lane) if cell.lane in lanes else len(lanes)
    return (lane, cell.lane, cell.link or "", cell.context_tok, cell.concurrency)


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
    """Yield the repeated cell of each lane and link beside its earlier rounds: the latest one."""
    took: dict[str, list[float]] = {}
    latest: dict[tuple[str, str | None], tuple[str, float]] = {}
    for info in reader.rounds("measured"):
        if info.interrupted or info.retracted:
            continue
        length_s, name = (info.end_ns - info.start_ns) / 1e9, info.cell.cell
        took.setdefault(name, []).append(length_s)
        if info.cell.context_label == "control":
            latest[info.cell.lane, info.cell.link] = (name.rpartition(".")[0], length_s)
    for (lane, _), (base, length_s) in latest.items():
        if base not in cells or base not in took:
            continue
        mean_s = sum(took[base]) / len(took[base])
        yield {
            "cell": base,
            "lane": lane,
            "elapsed_s": mean_s,
            "control_elapsed_s": length_s,
            "drift_pct": 100 * (mean_s / length_s - 1),
        }

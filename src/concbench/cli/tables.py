"""A table of published figures judged: each reading by itself, corrections and updates on top."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from concbench import __version__
from concbench.analyse.compare import Outcome, Party
from concbench.analyse.severity import doubt
from concbench.analyse.told import told_cell
from concbench.analyse.toldcompare import compare_told
from concbench.cli.judging import add_outcome, said
from concbench.domain import Doubt
from concbench.result import CellResult, Result
from concbench.store.importers.table import Reading, Table, read_table


def compared_table(path: Path, accept: Sequence[str]) -> Result:
    """Return what the readings of a table that still stand come to.

    Readings that were retracted or superseded are not judged again with the others: what they said
    is told with the correction. Raises PlanError for a file that is no table.
    """
    table = read_table(path)
    result = _empty(path, table)
    replaced = {one.supersedes: one for one in table.readings if one.supersedes}
    for reading in table.readings:
        alone = _judged(path, table, reading, accept)
        newer = replaced.get(reading.id)
        if reading.retracted is None and newer is None:
            _take(result, alone)
            continue
        result.corrections.append(_correction(reading, newer, said(alone)))
    result.doubts = [_note(table), *result.doubts]
    add_outcome(result, Outcome((), tuple(result.verdicts), tuple(result.crossovers), ()))
    return result


def _empty(path: Path, table: Table) -> Result:
    return Result(
        tool_version=__version__,
        command="compare",
        study=str(path),
        began_utc=next((one.at for one in table.readings if one.at), None) or "",
        targets=dict(table.facts),
    )


def _judged(path: Path, table: Table, reading: Reading, accept: Sequence[str]) -> Result:
    """Return one reading's verdicts, lanes in the table's order."""
    result = _empty(path, table)
    parties: list[Party] = []
    for lane, facts in table.facts.items():
        cells = [
            told_cell(msgspec.to_builtins(told), "the table")
            for told in reading.cells
            if told.lane == lane and told.measured
        ]
        result.cells += cells
        if cells:
            parties.append(
                Party(name=lane, study=reading.id, facts=facts, rounds=(), cells=_by_key(cells))
            )
    result.cells += [
        told_cell(msgspec.to_builtins(told), "the table")
        for told in reading.cells
        if not told.measured
    ]
    add_outcome(result, compare_told(parties, accept))
    return result


def _by_key(cells: Sequence[CellResult]) -> dict[tuple[int, int, float | None], CellResult]:
    return {(cell.context_tok, cell.concurrency, cell.rate_rps): cell for cell in cells}


def _take(result: Result, alone: Result) -> None:
    result.cells += alone.cells
    result.verdicts += alone.verdicts
    result.crossovers += alone.crossovers
    result.doubts += alone.doubts


def _correction(reading: Reading, newer: Reading | None, was: Sequence[str]) -> dict[str, Any]:
    """Return a retracted or superseded reading as an entry of `corrections`."""
    entry: dict[str, Any] = {"round": None, "reading": reading.id, "was": list(was)}
    if reading.retracted is not None:
        return {**entry, "why": reading.retracted, "by": reading.by, "at_utc": None}
    assert newer is not None
    return {
        **entry,
        "why": newer.why or "measured again",
        "by": None,
        "at_utc": newer.at,
        "superseded_by": newer.id,
    }


def _note(table: Table) -> Doubt:
    message = (
        f"figures of a table ({table.title}), not measured by this tool: its definitions are the "
        "source's."
    )
    return doubt("imported", None, message, {"title": table.title})

"""The tables of a matrix in a result's payload, with what forbids to read some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.analyse.matrix_against import Caveats
from concbench.analyse.matrix_tables import is_matrix, matrix
from concbench.analyse.unlike import unfair_names, unlike
from concbench.cli.judging import COMPARING
from concbench.cli.sweep_result import fatal_by_cell, lanes_of, planned
from concbench.domain import to_builtins
from concbench.result import LaneResult, Result
from concbench.store.read import StudyReader


def add_matrix(result: Result, reader: StudyReader) -> None:
    """Put the tables of a matrix into the payload, where there is more than one series.

    A comparison has its verdicts instead. Links that were measured are told in any case.
    """
    measured = reader.notes("link")
    if measured:
        result.payload = {**(result.payload or {}), "links": measured}
    if result.command in COMPARING or not is_matrix(result.cells):
        return
    asked = None if result.workload is None else result.workload.output_tokens
    lanes = lanes_of(reader, [cell.lane for cell in result.cells])
    links = list(dict.fromkeys(info.cell.link for info in reader.rounds()))
    wanted = (planned(reader).get("sweep") or {}).get("links") or []
    # Links, like lanes, are compared with the one that the plan names first.
    links.sort(key=lambda link: wanted.index(link) if link in wanted else len(wanted))
    swept = (result.payload or {}).get("sweep") or {}
    demands = {entry["cell"]: entry for entry in swept.get("cells", ())}
    found = matrix(
        result.cells,
        result.targets,
        asked,
        lanes=lanes,
        links=links,
        demands=demands,
        caveats=caveats_of(result, swept.get("controls", ())),
    )
    result.payload = {**(result.payload or {}), "matrix": to_builtins(found)}


def caveats_of(result: Result, controls: Sequence[Mapping[str, Any]]) -> Caveats:
    """Return what forbids to read a difference between the result's cells."""
    links = {cell.cell: cell.link for cell in result.cells}
    drift = {(each["lane"], links.get(each["cell"])): each["drift_pct"] for each in controls}
    nothing = LaneResult()

    def names(a: str, b: str) -> list[str]:
        sides = [(result.targets.get(lane), result.lanes.get(lane, nothing)) for lane in (a, b)]
        (facts_a, lane_a), (facts_b, lane_b) = sides
        if facts_a is None or facts_b is None:
            return []
        more = (lane_a.extra, lane_b.extra, lane_a.flags, lane_b.flags)
        return unfair_names(unlike(facts_a, facts_b, *more))

    return Caveats(fatal=fatal_by_cell(result), drift_pct=drift, unlike=names)

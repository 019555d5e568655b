"""Figures as another tool told them: cells of summaries, and how they differ from ours.

Where a file keeps its requests, everything is computed again under our definitions and the told
figure stands beside it with the reason for the difference. Where it does not, the summary is kept
as such: it has the other tool's meaning, and no interval unless it came with one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from concbench.analyse.cell import empty_cell
from concbench.analyse.estimate import mean_estimate
from concbench.analyse.severity import doubt
from concbench.domain import Cell, Doubt, Estimate, Summary
from concbench.result import CellResult, Requests, Result, Steady, Tokens

RATES = ("output_tok_per_s", "steady_output_tok_per_s", "prefill_tok_per_s", "decode_tok_per_s")
SERVER_RATE = "server_output_tok_per_s"
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "icl_ms", "e2e_ms", "per_request_tok_per_s")
THEIRS = "theirs:"
"""Before the name of a figure that the tool calls so, and that means something else."""

WORTH_TELLING = 0.01
"""Differences under 1 % need no explanation."""

UNKNOWN_WHY = "the definitions are not known to differ: look at what was left out"

_RANK = {"fatal": 0, "warning": 1, "note": 2}
# Doubts about our own client, which did not run.
_OURS_ALONE = frozenset({"user_stamps", "late_reads", "late_sends", "client_bound", "single_round"})


def told_estimate(told: Mapping[str, Any], tool: str) -> Estimate | None:
    """Return a told rate: with an interval where repetitions or a half-width came with it."""
    values = told.get("values")
    if values:
        found = mean_estimate(values)
        return None if found is None else replace(found, method=f"{found.method}, told by {tool}")
    mean = told.get("mean")
    if mean is None:
        return None
    half = told.get("half_width")
    count = int(told.get("n", 1))
    return Estimate(
        point=mean,
        low=None if half is None else mean - half,
        high=None if half is None else mean + half,
        n=max(1, count),
        method=f"told by {tool}" + ("" if half is None else ", ± taken as 95 %"),
    )


def told_summary(told: Mapping[str, Any]) -> Summary:
    """Return a told distribution; what was not told stays None."""
    values = told.get("values")
    if values:
        told = {"mean": sum(values) / len(values), "min": min(values), "max": max(values),
                "n": len(values), **told}  # fmt: skip
    return Summary(
        n=int(told.get("n", 0)),
        mean=told.get("mean"),
        min=told.get("min"),
        max=told.get("max"),
        p50=told.get("p50"),
        p90=told.get("p90"),
        p95=told.get("p95"),
        p99=told.get("p99"),
    )


def told_cell(told: Mapping[str, Any], tool: str) -> CellResult:
    """Return a cell that holds nothing but what was told."""
    place = Cell(
        cell=told["cell"],
        lane=told["lane"],
        concurrency=told["concurrency"],
        context_tok=told["context_tok"],
        context_label=told["context_label"],
        rate_rps=told.get("rate_rps"),
    )
    figures = told["figures"]
    if not told.get("measured", True):
        return empty_cell(place, "skipped", told.get("detail"))
    result = empty_cell(place, "measured", f"summary told by {tool}")
    result.rounds = max((len(one.get("values", ())) for one in figures.values()), default=0) or 1
    result.requests = Requests(sent=told["sent"], ok=told["ok"], failed=told["failed"])
    result.tokens = Tokens(prompt=told.get("prompt_tok"), output=told.get("output_tok") or 0)
    result.steady = Steady(found=False, reason=f"a summary by {tool}: no events to find one in")
    _fill(result, figures, tool)
    return result


def _fill(result: CellResult, figures: Mapping[str, Mapping[str, Any]], tool: str) -> None:
    for name in RATES:
        if name in figures:
            setattr(result.client, name, told_estimate(figures[name], tool))
    for name in LATENCIES:
        if name in figures:
            setattr(result.client, name, told_summary(figures[name]))
    if SERVER_RATE in figures:
        result.server.output_tok_per_s = told_estimate(figures[SERVER_RATE], tool)
        result.server.source = "log"


def with_told(result: Result, notes: Sequence[Mapping[str, Any]]) -> Result:
    """Return the result of an imported study: cells told or computed again, and the differences.

    `notes` are the study's notes of kind `imported`. Nothing told is put beside a figure of ours in
    one cell but rates that cannot be computed again, and those say whose they are.
    """
    again = {cell.cell: cell for cell in result.cells}
    cells: list[CellResult] = []
    entries: list[dict[str, Any]] = []
    doubts = [item for item in result.doubts if item.code not in _OURS_ALONE]
    for note in notes:
        tool = str(note["tool"])
        for told in note["cells"]:
            known = again.get(told["cell"])
            if known is None:
                cells.append(told_cell(told, tool))
            else:
                _without_what_cannot_be(known, told["figures"], tool, timed=bool(note["timed"]))
                cells.append(known)
            entries.append({
                "cell": told["cell"],
                "tool": tool,
                "recomputed": known is not None,
                "differences": differences(known, told["figures"], note["why"]) if known else [],
            })  # fmt: skip
        again_computed = any(entry["recomputed"] for entry in entries)
        doubts.append(_note(tool, note, recomputed=again_computed))
    remarks = [remark for note in notes for remark in note["remarks"]]
    result.cells = cells
    result.doubts = sorted(doubts, key=lambda item: _RANK[item.severity])
    result.payload = {**(result.payload or {}), "imported": entries, "remarks": remarks}
    return result


def _without_what_cannot_be(
    cell: CellResult, figures: Mapping[str, Mapping[str, Any]], tool: str, *, timed: bool
) -> None:
    """Take back the rates that need times which the file does not hold; put the told one there."""
    if cell.client.icl_ms.n == 0:
        cell.client.steady_output_tok_per_s = None
        cell.steady = Steady(found=False, reason=f"{tool} keeps no times between first and last")
    if timed:
        return
    cell.client.steady_output_tok_per_s = None
    cell.steady = Steady(found=False, reason=f"{tool} keeps no start times")
    cell.client.output_tok_per_s = _over_duration(cell, figures, tool)
    cell.overlap = None


def _over_duration(
    cell: CellResult, figures: Mapping[str, Mapping[str, Any]], tool: str
) -> Estimate | None:
    """Return the tokens that came ÷ the tool's own duration, or the told rate without one."""
    duration = figures.get("duration_s", {}).get("mean")
    if duration and cell.tokens.output:
        method = f"output tokens ÷ the duration told by {tool}"
        return Estimate(
            point=cell.tokens.output / duration, low=None, high=None, n=1, method=method
        )
    told = figures.get("output_tok_per_s")
    return None if told is None else told_estimate(told, tool)


def differences(
    cell: CellResult, figures: Mapping[str, Mapping[str, Any]], why: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return where told and ours differ by 1 % or more: both values and the reason."""
    found: list[dict[str, Any]] = []
    for name in (*RATES, *LATENCIES, *(f"{THEIRS}{name}" for name in LATENCIES)):
        told = figures.get(name, {}).get("mean")
        ours = getattr(cell.client, name.removeprefix(THEIRS))
        value = ours.mean if isinstance(ours, Summary) else ours.point if ours else None
        if told is None or value is None or not value:
            continue
        share = told / value - 1
        if abs(share) >= WORTH_TELLING:
            found.append({
                "figure": name.removeprefix(THEIRS),
                "theirs": told,
                "ours": value,
                "difference_pct": 100 * share,
                "why": why.get(name, UNKNOWN_WHY),
            })  # fmt: skip
    return found


def _note(tool: str, note: Mapping[str, Any], *, recomputed: bool) -> Doubt:
    version = f" {note['version']}" if note.get("version") else ""
    what = (
        "its requests were computed again under our definitions"
        if recomputed
        else "its summaries are kept as such, with its meaning of each figure"
    )
    message = f"measured by {tool}{version}, not by this tool: {what}."
    return doubt("imported", None, message, {"tool": tool, "version": note.get("version")})

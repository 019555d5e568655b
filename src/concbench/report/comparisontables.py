"""What a comparison is shown as: a table for each metric, and who is best at each level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.cells import cell_len

from concbench.domain import Estimate, Summary
from concbench.report.inert import inert
from concbench.report.numbers import MISSING, estimate_text, number, ratio_estimate
from concbench.report.verdicts import metric_label
from concbench.result import CellResult, Result, VerdictResult

NAME_LIMIT = 40
RATIO_NOTES = (
    "sides and ratio: geometric means over the pairs of runs, each run with its own figure",
    "the ratio's interval is that of the pairs: what disturbs both sides of one alike is not in it",
)
WORDS = {
    "equivalent": "equal",
    "inconclusive": "undecided",
    "drifted": "control drifted",
    "not_comparable": "not comparable",
    "invalid": "no verdict",
}


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """One metric of two sides at one context: texts by row, levels first."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def tables(result: Result) -> list[ComparisonTable]:
    """Return a table for each metric and pair of sides, and context where levels vary as well."""
    together: dict[tuple[str, str, str], list[VerdictResult]] = {}
    for row in result.verdicts:
        together.setdefault((row.metric, row.a, row.b), []).append(row)
    cells = {cell.cell: cell for cell in result.cells}
    found: list[ComparisonTable] = []
    for rows in together.values():
        contexts = dict.fromkeys(row.context_tok for row in rows)
        levels = dict.fromkeys(row.concurrency for row in rows)
        if len(contexts) > 1 and len(levels) == 1:
            found.append(_table(rows, cells, f" · N = {next(iter(levels))}", by_context=True))
            continue
        for context in contexts:
            place = f" · {context:,} tokens of context" if len(contexts) > 1 else ""
            part = [row for row in rows if row.context_tok == context]
            found.append(_table(part, cells, place, by_context=False))
    if any(row.value_a is not None for row in result.verdicts):
        found[-1] = replace(found[-1], notes=RATIO_NOTES)
    return found


def _table(
    rows: Sequence[VerdictResult],
    cells: dict[str, CellResult],
    place: str,
    *,
    by_context: bool,
) -> ComparisonTable:
    metric = rows[0].metric
    a, b = inert(rows[0].a, NAME_LIMIT), inert(rows[0].b, NAME_LIMIT)

    def level(row: VerdictResult) -> int:
        return row.context_tok if by_context else row.concurrency

    return ComparisonTable(
        f"{metric_label(metric)}: {b} against {a}{place}",
        ("context" if by_context else "N", a, b, f"{b} ÷ {a}", "pairs", "verdict"),
        tuple(
            (
                f"{level(row):,}",
                estimate_text(row.value_a)
                if row.value_a
                else _value(cells.get(row.cell_a), metric),
                estimate_text(row.value_b)
                if row.value_b
                else _value(cells.get(row.cell_b), metric),
                MISSING if row.ratio is None else ratio_estimate(row.ratio),
                str(row.n_pairs) if row.n_pairs else MISSING,
                word(row),
            )
            for row in sorted(rows, key=level)
        ),
    )


def word(row: VerdictResult) -> str:
    """Return a verdict in a word or two: `nvfp4 faster`, `equal`, `undecided`."""
    if row.verdict in ("a_faster", "b_faster"):
        name = inert(row.a if row.verdict == "a_faster" else row.b, NAME_LIMIT)
        return f"{name} faster" + ("" if row.beyond_delta else " (slightly)")
    if row.verdict == "inconclusive" and not row.n_pairs and row.ratio and row.ratio.low is None:
        return "single reading"
    return WORDS.get(row.verdict, inert(row.verdict, NAME_LIMIT))


def _value(cell: CellResult | None, metric: str) -> str:
    """Return a cell's own figure of a metric; the worst quarter is known of rounds alone."""
    base, _, suffix = metric.partition(".")
    if cell is None or suffix == "worst_quarter":
        return MISSING
    if base == "server_output_tok_per_s":
        return estimate_text(cell.server.output_tok_per_s)
    found = getattr(cell.client, base, None)
    if isinstance(found, Summary):
        return number(found.p50 if found.p50 is not None else found.mean)
    return estimate_text(found) if isinstance(found, Estimate) else MISSING


def crossover_tables(result: Result) -> list[ComparisonTable]:
    """Return who is best at each level, and who is within noise of it, for each rate.

    What latencies come to is in their tables and sentences.
    """
    return [
        _best(entry)
        for entry in result.crossovers
        if entry.get("ranges") and str(entry.get("metric")).endswith("tok_per_s")
    ]


def _best(entry: Mapping[str, Any]) -> ComparisonTable:
    by_context = entry.get("axis") == "context"
    place = f" at N = {entry['concurrency']}" if entry.get("concurrency") is not None else ""
    rows: list[tuple[str, ...]] = []
    for part in entry["ranges"]:
        low, high = part.get("from"), part.get("to")
        near = ", ".join(inert(name, NAME_LIMIT) for name in part.get("within") or ())
        winner = inert(part.get("winner"), NAME_LIMIT)
        rows.append((f"{low:,}" if low == high else f"{low:,} to {high:,}", winner, near))
    return ComparisonTable(
        f"crossover of {metric_label(str(entry.get('metric')))}{place}: {crossover_line(entry)}",
        ("context" if by_context else "N", "best", "within noise of each other"),
        tuple(rows),
    )


def crossover_line(entry: Mapping[str, Any]) -> str:
    """Return a crossover as one clause: `gguf up to 2, tie at 4, nvfp4 from 8`."""
    ranges = list(entry.get("ranges") or ())
    points = " (single readings)" if entry.get("basis") == "points" else ""
    if len(ranges) == 1:
        winner = inert(ranges[0].get("winner"), NAME_LIMIT)
        return f"{winner} at every level measured{points}"
    said: list[str] = []
    for place, part in enumerate(ranges):
        low, high = part.get("from"), part.get("to")
        where = f"at {low:,}" if low == high else f"from {low:,} to {high:,}"
        if place == 0:
            where = f"up to {high:,}"
        elif place == len(ranges) - 1:
            where = f"from {low:,}"
        said.append(f"{inert(part.get('winner'), NAME_LIMIT)} {where}")
    note = f" ({inert(entry['note'], NAME_LIMIT)})" if entry.get("note") else ""
    return ", ".join(said) + note + points


def table_lines(table: ComparisonTable) -> list[str]:
    """Return header and rows with columns of one width; numbers to the right, words to the left."""
    whole = [table.header, *table.rows]
    widths = [max(cell_len(row[k]) for row in whole) for k in range(len(table.header))]
    last = len(widths) - 1

    def filled(row: Sequence[str], k: int) -> str:
        blank = " " * (widths[k] - cell_len(row[k]))
        return row[k] if k == last else blank + row[k]

    rows = ["  " + "   ".join(filled(row, k) for k in range(len(row))) for row in whole]
    return [row.rstrip() for row in rows] + [f"  {note}" for note in table.notes]

"""The same points that a figure by level draws, as a table, as CSV and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concbench.report.csv import rows_to_csv
from concbench.report.numbers import decimals, fixed, span
from concbench.report.rows import MAXIMUM_SHOWN
from concbench.report.view import Quantity, Row, SeriesView


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure: a column of the table, and how it is named and drawn."""

    column: str
    name: str
    dash: int = 0


Point = tuple[Row, SeriesView, Line, Quantity]
"""What is drawn once: a level of a series, the line that it is on, and the number."""


def whole_text(cell: Quantity) -> str:
    """Return a cell as text with the interval that is drawn of it, though no table prints it.

    A maximum that stands for a percentile says so.
    """
    if cell.note == MAXIMUM_SHOWN:
        return f"{cell.whole} (max)"
    if cell.spread or cell.interval is None:
        return cell.whole
    low, high = cell.interval
    if cell.is_range:
        return f"{cell.text} ({span(low, high)})"
    places = decimals(max(abs(low), abs(high)), (high - low) / 2)
    return f"{cell.text} [{fixed(low, places)}, {fixed(high, places)}]"


def points_table(
    points: Sequence[Point], heading: str, *, named: bool
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return header and rows of the table behind a figure: one row a level, one column a line."""
    lines = list(dict.fromkeys(line for _, _, line, _ in points))
    places = {
        name: at for at, name in enumerate(dict.fromkeys(one.name for _, one, _, _ in points))
    }
    # By level: what only a later line reaches stands between the others.
    levels = sorted(
        {(one.name, row.level, row.label) for row, one, _, _ in points},
        key=lambda level: (places[level[0]], level[1]),
    )
    found = {(one.name, row.label, line): whole_text(cell) for row, one, line, cell in points}
    front = ("series", heading) if named else (heading,)
    header = (*front, *(f"{line.name}, {points[0][3].unit}" for line in lines))
    body = tuple(
        (
            *((name, label) if named else (label,)),
            *(found.get((name, label, line), "–") for line in lines),
        )
        for name, _, label in levels
    )
    return header, body


def points_csv(points: Sequence[Point], heading: str) -> str:
    """Return the figure's numbers in full precision, one row a point."""
    header = ["series", heading, "line", "value", "low", "high", "unit", "note"]
    body = [
        [
            one.name,
            row.level,
            line.name,
            cell.number,
            *(cell.interval or (None, None)),
            cell.unit,
            cell.note,
        ]
        for row, one, line, cell in points
    ]
    return rows_to_csv(header, body)


def in_words(title: str, points: Sequence[Point], heading: str, *, named: bool) -> str:
    """Return the figure in words: where the lines of each series begin and end.

    A series' later lines are told only where they reach levels that its first line does not: what
    is drawn there would otherwise stand in no word.
    """
    lines: dict[str, dict[str, list[tuple[Row, Quantity]]]] = {}
    for row, one, line, cell in points:
        lines.setdefault(one.name, {}).setdefault(line.name, []).append((row, cell))
    told: list[str] = []
    for series, drawn in lines.items():
        reached: set[float] = set()
        clauses: list[str] = []
        for name, known in drawn.items():
            levels = {row.level for row, _ in known}
            ends = {min(levels), max(levels)}
            if not reached or min(ends) < min(reached) or max(ends) > max(reached):
                clauses.append(_ends(name, known, heading))
            reached |= levels
        told.append((f"{series}: " if named else "") + "; ".join(clauses))
    return f"{title}. {'; '.join(told)}."


def _ends(name: str, known: Sequence[tuple[Row, Quantity]], heading: str) -> str:
    """Return the first and the last value of a line."""
    (first, low), (last, high) = known[0], known[-1]
    text = f"{name} {whole_text(low)} {low.unit} at {heading} = {first.label}"
    if len(known) > 1:
        text += f", {whole_text(high)} {high.unit} at {heading} = {last.label}"
    return text

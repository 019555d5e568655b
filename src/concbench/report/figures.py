"""Figures as plain data for plotly.js, each with its table, its CSV and a text alternative.

Colours are indices into a palette that the page chooses by theme; dash and marker tell the lines
apart without colour.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from concbench.report import numbers
from concbench.report.csv import rows_to_csv
from concbench.report.rows import MAXIMUM_SHOWN
from concbench.report.view import Quantity, Row, SeriesView

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
NAME_LIMIT = 40


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure: a column of the table, and how it is named and drawn."""

    column: str
    name: str
    dash: int = 0


@dataclass(frozen=True, slots=True)
class Spec:
    """What a figure shows. `ideal` adds the line of perfect scaling from the first level."""

    key: str
    title: str
    lines: tuple[Line, ...]
    definition: str
    ideal: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure ready for the page: `data` and `layout` for plotly, rows for the table beneath."""

    key: str
    title: str
    definition: str
    alternative: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    csv: str


SPECS = (
    Spec(
        "throughput",
        "Throughput against concurrency",
        (Line("steady", "steady"), Line("batch", "batch (classic)", 1)),
        "steady",
        ideal=True,
    ),
    Spec(
        "per-user",
        "Speed that each request sees",
        (
            Line("per_request_mean", "mean"),
            Line("per_request_min", "slowest", 2),
            Line("per_request_max", "fastest", 1),
        ),
        "per_request",
    ),
    Spec("ttft", "Time to first token", (Line("ttft_p50", "p50"), Line("ttft_p95", "p95", 1)),
         "ttft"),
    Spec("e2e", "Time for the whole request", (Line("e2e_p50", "p50"), Line("e2e_p95", "p95", 1)),
         "e2e"),
)  # fmt: skip


def figures_of(series: Sequence[SeriesView]) -> tuple[Figure, ...]:
    """Return the figures for which at least one number is known."""
    made = (_figure(spec, series) for spec in SPECS)
    return tuple(figure for figure in made if figure is not None)


def _figure(spec: Spec, series: Sequence[SeriesView]) -> Figure | None:
    """Return one figure over all series, or None where nothing is known."""
    data: list[dict[str, Any]] = []
    rows: list[tuple[Row, SeriesView, Line, Quantity]] = []
    unit = _common_unit(spec, series)
    for index, one in enumerate(series):
        for order, line in enumerate(_lines(spec, series)):
            known = _known(one, line, unit)
            if not known:
                continue
            rows += [(row, one, line, cell) for row, cell in known]
            colour = index if len(series) > 1 else order
            data.append(_trace(known, _line_name(one, line, series), colour, line, index))
    if not data:
        return None
    if spec.ideal and len(series) == 1:
        data += _ideal(series[0])
    levels = sorted({row.level for row, _, _, _ in rows})
    heading = series[0].table.level_heading
    header, table = _table(rows, heading, named=len(series) > 1)
    return Figure(
        spec.key,
        f"{spec.title}, {unit}",
        spec.definition,
        _alternative(spec, series),
        data,
        _layout(levels, heading, unit),
        header,
        table,
        _csv(rows, heading),
    )


def _common_unit(spec: Spec, series: Sequence[SeriesView]) -> str:
    """Return the unit of the figure: seconds where some series is in seconds."""
    columns = [column for one in series for column in one.table.columns]
    units = {column.unit for column in columns if column.key == spec.lines[0].column}
    unit = columns[0].unit if columns else ""
    return "s" if "s" in units else next(iter(units), unit)


def _known(one: SeriesView, line: Line, unit: str) -> list[tuple[Row, Quantity]]:
    """Return the rows of a line that have a number, in the figure's unit."""
    cells = one.table.column(line.column) or []
    return [
        (row, _converted(cell, unit))
        for row, cell in zip(one.table.rows, cells, strict=bool(cells))
        if cell.number is not None
    ]


def _converted(cell: Quantity, unit: str) -> Quantity:
    """Return a cell in the figure's unit: tables choose theirs each for itself."""
    if cell.number is None or (cell.unit, unit) != ("ms", "s"):
        return cell
    number, interval, width = numbers.in_unit(cell.number, unit), None, None
    if cell.interval is not None:
        low, high = (numbers.in_unit(bound, unit) for bound in cell.interval)
        interval, width = (low, high), (high - low) / 2
    text = numbers.number(number, width)
    return replace(cell, number=number, unit=unit, text=text, interval=interval)


def _lines(spec: Spec, series: Sequence[SeriesView]) -> tuple[Line, ...]:
    """Return the lines to draw: with several series those of one request's speed get too many."""
    crowded = len(series) > 1 and spec.key == "per-user"
    return spec.lines[:1] if crowded else spec.lines


def _words(cell: Quantity) -> str:
    """Return a cell as text; a maximum that stands for a percentile says so."""
    return f"{cell.whole} (max)" if cell.note == MAXIMUM_SHOWN else cell.whole


def _line_name(one: SeriesView, line: Line, series: Sequence[SeriesView]) -> str:
    """Return the legend's text, without anything that plotly would read as markup."""
    name = line.name
    if len(series) > 1:
        short = one.name if len(one.name) <= NAME_LIMIT else one.name[: NAME_LIMIT - 1] + "…"
        name = f"{short} {line.name}"
    return html.escape(name, quote=False)


def _trace(
    known: Sequence[tuple[Row, Quantity]], name: str, colour: int, line: Line, index: int
) -> dict[str, Any]:
    """Return one line with the error bars that its interval gives."""
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [row.level for row, _ in known],
        "y": [cell.number for _, cell in known],
        "text": [f"{html.escape(_words(cell), quote=False)} {cell.unit}" for _, cell in known],
        "hovertemplate": "%{fullData.name}: %{text}<extra></extra>",
        "meta": {"colour": colour},
        "line": {"dash": DASHES[line.dash], "width": 2},
        "marker": {"symbol": SYMBOLS[(index + line.dash) % len(SYMBOLS)], "size": 8},
    }
    if any(cell.interval is not None for _, cell in known):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [_above(cell) for _, cell in known],
            "arrayminus": [_below(cell) for _, cell in known],
            "thickness": 1.5,
            "width": 4,
        }
    return trace


def _above(cell: Quantity) -> float:
    """Return how far the interval reaches above the point; 0 for none."""
    if cell.interval is None or cell.number is None:
        return 0.0
    return max(0.0, cell.interval[1] - cell.number)


def _below(cell: Quantity) -> float:
    """Return how far the interval reaches below the point; 0 for none."""
    if cell.interval is None or cell.number is None:
        return 0.0
    return max(0.0, cell.number - cell.interval[0])


def _ideal(one: SeriesView) -> list[dict[str, Any]]:
    """Return the line along which throughput would grow with N from the first steady figure."""
    cells = one.table.column("steady") or []
    known = [(row.level, cell.number) for row, cell in zip(one.table.rows, cells, strict=True)
             if cell.number is not None]  # fmt: skip
    if len(known) < 2 or one.table.level_heading != "N":
        return []
    (first, rate), (last, _) = known[0], known[-1]
    trace = {
        "type": "scatter",
        "mode": "lines",
        "name": f"perfect scaling from N = {first:g}",
        "x": [level for level, _ in known],
        "y": [rate * level / first for level, _ in known],
        "hoverinfo": "skip",
        "meta": {"colour": -1},
        "line": {"dash": "dot", "width": 1.5},
    }
    return [trace] if last > first else []


def _layout(levels: Sequence[float], heading: str, unit: str) -> dict[str, Any]:
    """Return the axes: levels by name, logarithmic where they span a factor of 8 or more."""
    title = "requests at once, N" if heading == "N" else "requests sent a second"
    wide = len(levels) > 1 and levels[0] > 0 and levels[-1] / levels[0] >= 8
    return {
        "xaxis": {
            "title": {"text": title},
            "type": "log" if wide else "linear",
            "tickmode": "array",
            "tickvals": list(levels),
            "ticktext": [f"{level:g}" for level in levels],
        },
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
    }


def _table(
    rows: Sequence[tuple[Row, SeriesView, Line, Quantity]], heading: str, *, named: bool
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return header and rows of the table behind a figure: one row a level, one column a line."""
    lines = list(dict.fromkeys(line for _, _, line, _ in rows))
    levels = list(dict.fromkeys((one.name, row.label) for row, one, _, _ in rows))
    found = {(one.name, row.label, line): _words(cell) for row, one, line, cell in rows}
    front = ("series", heading) if named else (heading,)
    header = (*front, *(f"{line.name}, {rows[0][3].unit}" for line in lines))
    body = tuple(
        (
            *((name, label) if named else (label,)),
            *(found.get((name, label, line), "–") for line in lines),
        )
        for name, label in levels
    )
    return header, body


def _csv(rows: Sequence[tuple[Row, SeriesView, Line, Quantity]], heading: str) -> str:
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
        for row, one, line, cell in rows
    ]
    return rows_to_csv(header, body)


def _alternative(spec: Spec, series: Sequence[SeriesView]) -> str:
    """Return the figure in words: first and last value of each series."""
    told: list[str] = []
    for one in series:
        cells = one.table.column(spec.lines[0].column) or []
        known = [(row, cell) for row, cell in zip(one.table.rows, cells, strict=True)
                 if cell.number is not None]  # fmt: skip
        if not known:
            continue
        (first, low), (last, high) = known[0], known[-1]
        head = f"{one.name}: " if len(series) > 1 else ""
        where = one.table.level_heading
        text = f"{head}{spec.lines[0].name} {low.whole} {low.unit} at {where} = {first.label}"
        if len(known) > 1:
            text += f", {high.whole} {high.unit} at {where} = {last.label}"
        told.append(text)
    return f"{spec.title}. {'; '.join(told)}."

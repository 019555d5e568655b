"""The figures by level: throughput, what a request sees, TTFT and E2E; and all figures in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from concbench.analyse.exhibits import Exhibit
from concbench.report import figures_grid, figures_server, figures_time, numbers
from concbench.report.figure import (
    DASHES,
    REFERENCE,
    SYMBOLS,
    Figure,
    Panel,
    hollow_note,
    plain,
    symbols,
)
from concbench.report.figure_axes import level_axis, log_axis, rising
from concbench.report.figures_ab import Crossings, crossing, ratio_figure
from concbench.report.figures_words import (
    Line,
    Point,
    in_words,
    points_csv,
    points_table,
    whole_text,
)
from concbench.report.view import Quantity, Row, SeriesView
from concbench.result import Result

MOST_TOGETHER = 4
"""More series than this are shown context by context."""

CROSSED = {"throughput": "steady_output_tok_per_s", "ttft": "ttft_ms", "e2e": "e2e_ms"}
"""The metric whose crossover a figure marks."""

DURATIONS = ("ttft", "e2e")
WIDE_FACTOR = 20
"""Durations that differ by more than this are drawn on a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a figure shows. `ideal` adds the line of perfect scaling from the first level.

    `by_rate` is the title where the levels are rates of arrivals.
    """

    key: str
    title: str
    lines: tuple[Line, ...]
    definition: str
    ideal: bool = False
    by_rate: str = ""

    def titled(self, series: Sequence[SeriesView]) -> str:
        """Return the title for what the levels of these series are."""
        by_rate = series[0].table.level_heading != "N"
        return self.by_rate if by_rate and self.by_rate else self.title


SPECS = (
    Spec(
        "throughput",
        "Throughput against concurrency",
        (Line("steady", "steady"), Line("batch", "batch (classic)", 1)),
        "steady",
        ideal=True,
        by_rate="Throughput against offered rate",
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


def figures_of(
    series: Sequence[SeriesView], result: Result, exhibits: Sequence[Exhibit] = ()
) -> tuple[Figure, ...]:
    """Return the figures for which at least one number is known, in the order of reading."""
    shown = {exhibit.cell: exhibit for exhibit in exhibits}
    made = [
        ratio_figure(result),
        *(_figure(spec, series, result.crossovers) for spec in SPECS[:2]),
        figures_grid.heat_map(series),
        *(_figure(spec, series, result.crossovers) for spec in SPECS[2:]),
        *figures_time.distributions(series, shown),
        figures_time.timeline(series, shown),
        *figures_grid.by_context(series, result),
        figures_server.pool(series, result, shown),
        figures_server.against_server(series),
        figures_server.own_error(series),
    ]
    return tuple(figure for figure in made if figure is not None)


def _figure(spec: Spec, series: Sequence[SeriesView], crossings: Crossings) -> Figure | None:
    """Return one figure, or None where nothing is known; a panel a context for many series."""
    unit = _common_unit(spec, series)
    groups: dict[str, list[SeriesView]] = {"": list(series)}
    if len(series) > MOST_TOGETHER:
        groups = {}
        for one in series:
            groups.setdefault(f"{one.context} · {one.context_tok:,} tokens", []).append(one)
    panels = [_panel(spec, group, unit, label, crossings) for label, group in groups.items()]
    known = tuple(panel for panel in panels if panel is not None)
    if not known:
        return None
    return Figure(
        spec.key,
        f"{spec.titled(series)}, {unit}",
        spec.definition,
        known if len(known) > 1 else (replace(known[0], label=""),),
    )


def _panel(
    spec: Spec, series: Sequence[SeriesView], unit: str, label: str, crossings: Crossings
) -> Panel | None:
    """Return a panel over some series, or None where nothing is known."""
    data: list[dict[str, Any]] = []
    rows: list[Point] = []
    for index, one in enumerate(series):
        for order, line in enumerate(_lines(spec, series)):
            known = _known(one, line, unit)
            if not known:
                continue
            rows += [(row, one, line, cell) for row, cell in known]
            colour = index if len(series) > 1 else order
            data.append(
                _trace(
                    known,
                    _line_name(one, line, series, by_lane=bool(label)),
                    colour,
                    line,
                    # A series keeps its marker, its lines differ in their dash.
                    SYMBOLS[(index if len(series) > 1 else line.dash) % len(SYMBOLS)],
                )
            )
    if not data:
        return None
    if spec.ideal and len(series) == 1:
        data += _ideal(series[0])
    levels = sorted({row.level for row, _, _, _ in rows})
    heading = series[0].table.level_heading
    header, table = points_table(rows, heading, named=len(series) > 1)
    layout = {
        "xaxis": level_axis(levels, heading),
        "yaxis": _value_axis(spec, unit, [cell for _, _, _, cell in rows]),
        **crossing(CROSSED.get(spec.key), crossings, levels),
    }
    return Panel(
        data,
        layout,
        header,
        table,
        points_csv(rows, heading),
        in_words(spec.titled(series), rows, heading, named=len(series) > 1),
        label,
        hollow_note(_touched(rows, heading, named=len(series) > 1)),
    )


def _value_axis(spec: Spec, unit: str, cells: Sequence[Quantity]) -> dict[str, Any]:
    """Return the axis of values: of durations that span decades a logarithmic one.

    Where one lane saturates all others would lie on the ground.
    """
    known = [cell.number for cell in cells if cell.number is not None]
    if spec.key not in DURATIONS or min(known) <= 0 or max(known) / min(known) <= WIDE_FACTOR:
        return rising(unit)
    ends = [end for cell in cells for end in cell.interval or () if end > 0]
    return log_axis(unit, min(known + ends), max(known + ends))


def _touched(points: Sequence[Point], heading: str, *, named: bool) -> Iterator[tuple[str, str]]:
    """Yield each doubt that touches a point, and whose point it is."""
    for row, one, _, _ in points:
        level = f"{heading} = {row.label}"
        for code in row.suspect:
            yield code, f"{one.name} · {level}" if named else level


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


def _line_name(one: SeriesView, line: Line, series: Sequence[SeriesView], *, by_lane: bool) -> str:
    """Return the legend's text, without anything that plotly would read as markup.

    In a panel of one context the lane, and its link, tell the series apart.
    """
    if len(series) == 1 and not by_lane:
        return line.name
    name = " · ".join(one.title[:-1]) if by_lane and len(one.title) > 1 else one.name
    return f"{plain(name)} {line.name}"


def _trace(
    known: Sequence[tuple[Row, Quantity]], name: str, colour: int, line: Line, shape: str
) -> dict[str, Any]:
    """Return one line with the error bars that its interval gives."""
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [row.level for row, _ in known],
        "y": [cell.number for _, cell in known],
        "text": [_hover(row, cell) for row, cell in known],
        "hovertemplate": "%{fullData.name}: %{text}<extra></extra>",
        "meta": {"colour": colour},
        "line": {"dash": DASHES[line.dash], "width": 2},
        "marker": {"symbol": symbols(shape, (bool(row.suspect) for row, _ in known)), "size": 8},
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


def _hover(row: Row, cell: Quantity) -> str:
    """Return what hovering shows: the number with its spread, and the doubts that touch it."""
    doubts = f" · {', '.join(row.suspect)}" if row.suspect else ""
    return plain(f"{whole_text(cell)} {cell.unit}{doubts}", 160)


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
        "meta": {"colour": REFERENCE},
        "line": {"dash": "dot", "width": 1.5},
    }
    return [trace] if last > first else []

"""Figures over contexts: the heat map of a sweep, and prefill and decode with their prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from concbench.analyse.contexts import Point, Prediction, predict
from concbench.domain import Estimate
from concbench.report.csv import Value
from concbench.report.figure import SYMBOLS, Figure, Panel, line, plain, table_and_csv
from concbench.report.figure_axes import level_axis, named_axis, rising
from concbench.report.headline import OUTCOMES
from concbench.report.numbers import MISSING, number, percent
from concbench.report.rows import level_of
from concbench.report.view import Quantity, Row, SeriesView
from concbench.result import CellResult, Result

Kind = Literal["decode", "prefill"]

HEAT = [[0, "#fff1b0"], [1, "#8abde6"]]
"""Low to high. Yellow to blue is what colour-blind eyes tell apart, and every step is light enough
for the dark grey in which the numbers stand on it."""


def _by_lane(series: Sequence[SeriesView]) -> dict[str, list[SeriesView]]:
    """Return the series of each lane (and link), contexts ascending."""
    lanes: dict[str, list[SeriesView]] = {}
    for one in sorted(series, key=lambda one: one.context_tok):
        link = one.cells[0].link if one.cells else None
        lanes.setdefault(one.lane + (f" · {plain(link)}" if link else ""), []).append(one)
    return lanes


def heat_map(series: Sequence[SeriesView]) -> Figure | None:
    """Return throughput over level and context, a panel a lane; None without two contexts."""
    lanes = _by_lane(series)
    panels = tuple(
        _grid(lane, found) for lane, found in lanes.items() if len(found) > 1 and _levels(found)
    )
    if not panels:
        return None
    return Figure("heat-map", f"{_grid_title(series)}, tok/s", "steady", panels)


def _grid_title(series: Sequence[SeriesView]) -> str:
    level = "concurrency" if series[0].table.level_heading == "N" else "offered rate"
    return f"Throughput by {level} and context"


def _levels(series: Sequence[SeriesView]) -> list[Row]:
    """Return one row for each level of the series, ascending; none for fewer than two."""
    rows = {row.level: row for one in series for row in one.table.rows}
    return [rows[level] for level in sorted(rows)] if len(rows) > 1 else []


def _grid(lane: str, series: Sequence[SeriesView]) -> Panel:
    """Return one lane's heat map."""
    levels = _levels(series)
    heading = series[0].table.level_heading
    texts: list[list[str]] = []
    values: list[list[float | None]] = []
    rows: list[list[Value]] = []
    for one in series:
        found = {
            row.level: (row, cell) for row, cell in zip(one.table.rows, one.cells, strict=True)
        }
        steady = dict(zip((row.level for row in one.table.rows),
                          one.table.column("steady") or [], strict=False))  # fmt: skip
        batch = dict(zip((row.level for row in one.table.rows),
                         one.table.column("batch") or [], strict=False))  # fmt: skip
        line_texts: list[str] = []
        line_values: list[float | None] = []
        for level in levels:
            value, text, what = _square(found.get(level.level), steady.get(level.level),
                                        batch.get(level.level))  # fmt: skip
            line_values.append(value)
            line_texts.append(text)
            rows.append([one.context_tok, level.label, value, what])
        texts.append(line_texts)
        values.append(line_values)
    header, table, csv = table_and_csv(["context, tokens", heading, "tok/s", "figure"], rows)
    trace = {
        "type": "heatmap",
        "x": [level.label for level in levels],
        "y": [f"{one.context_tok:,}" for one in series],
        "z": values,
        "text": texts,
        "texttemplate": "%{text}",
        "hovertemplate": f"{heading} = %{{x}}, %{{y}} tokens: %{{text}} tok/s<extra></extra>",
        "colorscale": HEAT,
        "xgap": 2,
        "ygap": 2,
        "meta": {"colour": 0},
        "colorbar": {"thickness": 10, "outlinewidth": 0},
    }
    layout = {
        "xaxis": {"title": level_axis((), heading)["title"], "type": "category",
                  "showgrid": False},
        "yaxis": {"title": {"text": "context, tokens"}, "type": "category", "showgrid": False},
        "hovermode": "closest",
        "showlegend": False,
    }  # fmt: skip
    words = _grid_words(f"{_grid_title(series)}, {lane}", rows)
    return Panel([trace], layout, header, table, csv, words, lane,
                 _signs(texts, series))  # fmt: skip


def _signs(texts: Sequence[Sequence[str]], series: Sequence[SeriesView]) -> str:
    """Return what the signs in the squares mean, of those that occur."""
    found = {sign for line_texts in texts for text in line_texts for sign in "*!✗" if sign in text}
    rows = [row for one in series for row in one.table.rows if not row.fatal]
    codes = dict.fromkeys(code for row in rows for code in row.suspect)
    told = [
        *(["* is the batch figure"] if "*" in found else []),
        *([f"! is in doubt ({', '.join(codes)})"] if "!" in found else []),
        *(["✗ is a fatal doubt"] if "✗" in found else []),
    ]
    return f"{'; '.join(told)}." if told else ""


def _square(
    found: tuple[Row, CellResult] | None, steady: Quantity | None, batch: Quantity | None
) -> tuple[float | None, str, str]:
    """Return the value of one square, its text, and which figure it is."""
    if found is None:
        return None, "", "not measured"
    row, cell = found
    # As on the terminal: a cross for a fatal doubt, else an exclamation mark for any other.
    cross = " ✗" if row.fatal else " !" if row.suspect else ""
    for quantity, star, what in ((steady, "", "steady"), (batch, "*", "batch")):
        if quantity is not None and quantity.number is not None:
            return quantity.number, f"{quantity.text}{star}{cross}", what
    said = OUTCOMES.get(cell.outcome, "no figure")
    return None, f"{MISSING}{cross}", said


def _grid_words(title: str, rows: Sequence[Sequence[Any]]) -> str:
    """Return the greatest and the least of a lane's figures in words."""
    known = [row for row in rows if row[2] is not None]
    if not known:
        return f"{title}: no figure is known."
    best, worst = max(known, key=lambda row: row[2]), min(known, key=lambda row: row[2])
    return (
        f"{title}: most, {number(best[2])} tok/s, at level {best[1]} and {best[0]:,} tokens; "
        f"least, {number(worst[2])} tok/s, at level {worst[1]} and {worst[0]:,} tokens."
    )


@dataclass(frozen=True, slots=True)
class _Speed:
    """Which rate is drawn by context; `most` is the largest level that it is given for."""

    key: str
    title: str
    definition: str
    kind: Kind
    rate: Callable[[CellResult], Estimate | None]
    most: float


_SPEEDS = (
    _Speed(
        "prefill-context",
        "Prefill speed of one request by context, tok/s",
        "prefill",
        "prefill",
        lambda cell: cell.client.prefill_tok_per_s,
        1,
    ),
    _Speed(
        "decode-context",
        "Decode speed by context, tok/s of all together",
        "steady",
        "decode",
        lambda cell: cell.client.steady_output_tok_per_s,
        float("inf"),
    ),
)


def by_context(series: Sequence[SeriesView], result: Result) -> list[Figure]:
    """Return prefill and decode speed by context with prediction, a panel a lane."""
    asked = result.workload.output_tokens if result.workload else 0
    figures = []
    for speed in _SPEEDS:
        panels = [
            _speed_panel(speed, lane, found, asked)
            for lane, found in _by_lane(series).items()
            if len(found) > 1 and found[0].table.level_heading == "N"
        ]
        known = tuple(panel for panel in panels if panel is not None)
        if known:
            figures.append(Figure(speed.key, speed.title, speed.definition, known))
    return figures


def _speed_panel(
    speed: _Speed, lane: str, series: Sequence[SeriesView], asked: int
) -> Panel | None:
    """Return one lane's rates by context: a line a level, and the predicted rates dotted."""
    found = [
        (row, cell, rate)
        for one in series
        for row, cell in zip(one.table.rows, one.cells, strict=True)
        if level_of(cell) <= speed.most and (rate := speed.rate(cell)) is not None
    ]
    if len({cell.context_tok for _, cell, _ in found}) < 2:
        return None
    usable = [(cell, rate) for row, cell, rate in found if not row.fatal]
    points = [Point(cell.concurrency, cell.context_tok, asked, rate.point) for cell, rate in usable]
    predicted = predict(points, speed.kind)
    told = _predicted(predicted, [cell for cell, _ in usable])
    rows = [
        [cell.concurrency, cell.context_tok, rate.point, rate.low, rate.high, told.get(cell.cell)]
        for _, cell, rate in found
    ]
    names = ("N", "context, tokens", "tok/s", "low", "high", "predicted tok/s")
    header, table, csv = table_and_csv(names, rows)
    contexts = sorted({cell.context_tok for _, cell, _ in found})
    layout = {
        "xaxis": named_axis(
            "context, tokens", contexts, [f"{tok:,}" for tok in contexts], log=True
        ),
        "yaxis": rising("tok/s"),
    }  # fmt: skip
    first, last = rows[0], rows[-1]
    words = (
        f"{speed.title}, {lane}: {number(first[2])} at N = {first[0]} and {first[1]:,} tokens, "
        f"{number(last[2])} at N = {last[0]} and {last[1]:,} tokens."
    )
    return Panel(
        _speed_lines(found, told), layout, header, table, csv, words, lane, _prediction(predicted)
    )


def _predicted(predicted: Prediction | None, cells: Sequence[CellResult]) -> dict[str, float]:
    """Return the predicted rate of each cell by its id."""
    if predicted is None:
        return {}
    return {cell.cell: rate for cell, rate in zip(cells, predicted.tok_per_s, strict=True)}


def _prediction(predicted: Prediction | None) -> str:
    """Return what is to be known of the prediction, or why there is none."""
    if predicted is None:
        return (
            "No prediction: it takes three contexts, the longest at most twice the one before it."
        )
    return (
        f"Dotted: predicted by a fit that never saw {predicted.held_out_tok:,} tokens; it is off "
        f"by at most {percent(100 * predicted.error)} there."
    )


def _speed_lines(
    found: Sequence[tuple[Row, CellResult, Estimate]], told: dict[str, float]
) -> list[dict[str, Any]]:
    """Return a line a level with its intervals, and its prediction."""
    traces = []
    for place, level in enumerate(sorted({cell.concurrency for _, cell, _ in found})):
        here = [(cell, rate) for _, cell, rate in found if cell.concurrency == level]
        contexts = [float(cell.context_tok) for cell, _ in here]
        trace = line(
            f"N = {level}",
            contexts,
            [rate.point for _, rate in here],
            place,
            dash=0,
            mode="lines+markers",
            text=[f"{number(rate.point)} tok/s" for _, rate in here],
        )
        trace["marker"]["symbol"] = SYMBOLS[place % len(SYMBOLS)]
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, (rate.high or rate.point) - rate.point) for _, rate in here],
            "arrayminus": [max(0.0, rate.point - (rate.low or rate.point)) for _, rate in here],
        }
        traces.append(trace)
        known = [(cell.context_tok, told[cell.cell]) for cell, _ in here if cell.cell in told]
        if known:
            name = f"N = {level} predicted"
            tok, rates = zip(*known, strict=True)
            texts = [f"{number(rate)} tok/s" for rate in rates]
            traces.append(line(name, tok, rates, place, dash=2, text=texts, showlegend=False))
    return traces

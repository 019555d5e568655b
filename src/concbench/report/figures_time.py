"""Figures over time and of whole distributions: how single requests and one round went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.analyse.exhibits import BINS_PER_DECADE, TOLD_PCT, Bar, Course, Distribution, Exhibit
from concbench.report.csv import Value
from concbench.report.figure import DASHES, Figure, Panel, line, plain, table_and_csv
from concbench.report.figure_axes import log_axis
from concbench.report.numbers import number
from concbench.report.view import Row, SeriesView
from concbench.result import CellResult

MOST_COURSES = 40
SHARES = (*(percent / 100 for percent in TOLD_PCT), 1.0)
QUEUE, PREFILL, DECODE, FAILED = 2, 1, 0, 3
"""Colours of a request's parts."""

COUNTS, RATES = 4, 6
"""Colours of the curves below, none of them a part's but for what waits: the two sides of one
quantity share a colour, and the server's line is dashed."""

DISTRIBUTIONS = (
    ("ttft-spread", "Every request's time to first token, ms", "ttft", "ttft"),
    ("e2e-spread", "Every request's whole time, ms", "e2e", "e2e"),
    ("gap-spread", "Every gap between token events, ms", "icl", "gaps"),
)
BINNED = (
    f"Gaps are counted in bins of {100 * (10 ** (1 / BINS_PER_DECADE) - 1):.0f} %; each stands at "
    "its bin's upper edge."
)
Shown = Mapping[str, Exhibit]


def distributions(series: Sequence[SeriesView], shown: Shown) -> list[Figure]:
    """Return the distributions for which there are values; a panel a series."""
    figures = []
    for key, title, definition, part in DISTRIBUTIONS:
        panels = [_spread(one, shown, part, title) for one in series]
        known = tuple(panel for panel in panels if panel is not None)
        if known:
            figures.append(Figure(key, title, definition, known))
    return figures


def _spread(one: SeriesView, shown: Shown, part: str, title: str) -> Panel | None:
    """Return one series' distributions, a line a level."""
    found: list[tuple[Row, Distribution]] = []
    for row in one.table.rows:
        known = shown.get(row.cell)
        values = None if known is None else getattr(known, part)
        if values is not None:
            found.append((row, values))
    if not found:
        return None
    heading = one.table.level_heading
    data = [_cumulative(row, values, heading, place) for place, (row, values) in enumerate(found)]
    rows: list[list[Value]] = [
        [row.label, values.n, *(_at(values, share) for share in SHARES)] for row, values in found
    ]
    names = [f"{100 * share:g} % within, ms" for share in SHARES]
    header, texts, csv = table_and_csv([heading, "values", *names], rows)
    low, high = found[0], found[-1]
    told = [
        f"half within {number(_at(values, 0.5))} ms and 95 % within {number(_at(values, 0.95))} "
        f"ms at {heading} = {row.label}"
        for row, values in ([low, high] if len(found) > 1 else [low])
    ]
    least = min(values.values[0] for _, values in found)
    greatest = max(values.values[-1] for _, values in found)
    layout = {
        "xaxis": log_axis("ms", max(least, 1e-3), max(greatest, 1e-3)),
        "yaxis": {"title": {"text": "share within"}, "range": [-0.02, 1.03], "tickformat": ".0%"},
        "hovermode": "closest",
    }
    words = f"{title}: {'; '.join(told)}."
    note = BINNED if part == "gaps" else ""
    return Panel(data, layout, header, texts, csv, words, label=one.name, note=note)


def _cumulative(row: Row, values: Distribution, heading: str, place: int) -> dict[str, Any]:
    """Return one level's distribution as steps."""
    texts = [
        f"{number(value)} ms or less: {100 * share:.3g} %"
        for value, share in zip(values.values, values.shares, strict=True)
    ]
    trace = line(
        f"{heading} = {row.label}",
        [values.values[0], *values.values],
        [0.0, *values.shares],
        place,
        dash=place // 7 + (place % 7) % len(DASHES),
        text=["", *texts],
    )
    return {**trace, "line": {**trace["line"], "shape": "hv"}}


def _at(values: Distribution, share: float) -> float:
    """Return the least value that at least this share of all does not exceed."""
    for value, reached in zip(values.values, values.shares, strict=True):
        if reached >= share:
            return value
    return values.values[-1]


def timeline(series: Sequence[SeriesView], shown: Shown) -> Figure | None:
    """Return the course of a round of each cell, the largest levels first where many."""
    chosen: list[Panel] = []
    for one, row, cell in _order(series):
        exhibit = shown.get(row.cell)
        if exhibit is None or exhibit.course is None or len(chosen) == MOST_COURSES:
            continue
        if exhibit.course.bars:
            name = f"{one.table.level_heading} = {row.label}"
            label = f"{one.name} · {name}" if len(series) > 1 else name
            chosen.append(_course(exhibit.course, label, name, _alone(one), cell))
    title = "One round over time"
    return Figure("timeline", title, "timeline", tuple(chosen), wide=True, height=560) \
        if chosen else None  # fmt: skip


def _order(series: Sequence[SeriesView]) -> list[tuple[SeriesView, Row, CellResult]]:
    """Return the cells, the largest level of every series first, then the second, …"""
    ranked = [
        (place, index, one, row, cell)
        for index, one in enumerate(series)
        for place, (row, cell) in enumerate(
            reversed(list(zip(one.table.rows, one.cells, strict=True)))
        )
    ]
    ranked.sort(key=lambda entry: entry[:2])
    return [entry[2:] for entry in ranked]


def _alone(one: SeriesView) -> float | None:
    """Return TTFT in seconds of one request alone in this series, None where not measured."""
    for cell in one.cells:
        middle = cell.client.ttft_ms.p50
        if cell.concurrency == 1 and cell.rate_rps is None and middle is not None:
            return middle / 1000
    return None


def _course(
    course: Course, label: str, name: str, alone_s: float | None, cell: CellResult
) -> Panel:
    """Return one round: bars above, counts and rates below, the steady window shaded."""
    parts = [_parts(bar, alone_s) for bar in course.bars]
    data = [
        trace
        for kind, colour, words in (
            ("queue", QUEUE, "waiting (estimate)"),
            ("prefill", PREFILL, "prefill (estimate)" if alone_s else "until the first token"),
            ("decode", DECODE, "decode"),
            ("failed", FAILED, "failed or cut off"),
        )
        if (trace := _bars(kind, colour, words, parts)) is not None
    ]
    data += _curves(course)
    header, texts, csv = _bar_table(course.bars, parts)
    notes = []
    if course.requests > len(course.bars):
        notes.append(f"{len(course.bars)} of {_counted(course.requests)} are drawn.")
    if course.no_window:
        notes.append(f"No steady window: {course.no_window}.")
    return Panel(
        data, _axes(course), header, texts, csv, _in_words(course, name, cell), label,
        " ".join(notes),
    )  # fmt: skip


def _parts(bar: Bar, alone_s: float | None) -> dict[str, tuple[float, float]]:
    """Return the parts of a request as (start, length) in seconds.

    The client cannot see when the server begins to read a prompt: what a lone request waits is
    taken for prefill, and what goes beyond it for waiting.
    """
    if bar.sent_s is None:
        return {}
    end = bar.end_s if bar.end_s is not None else bar.sent_s
    if bar.outcome != "ok":
        return {"failed": (bar.sent_s, max(0.0, end - bar.sent_s))}
    if bar.first_s is None:
        return {"decode": (bar.sent_s, max(0.0, end - bar.sent_s))}
    wait = max(0.0, bar.first_s - bar.sent_s)
    queue = 0.0 if alone_s is None else max(0.0, wait - alone_s)
    found = {
        "prefill": (bar.sent_s + queue, wait - queue),
        "decode": (bar.first_s, max(0.0, end - bar.first_s)),
    }
    return {"queue": (bar.sent_s, queue), **found} if queue > 0 else found


def _bars(
    kind: str, colour: int, words: str, parts: Sequence[Mapping[str, tuple[float, float]]]
) -> dict[str, Any] | None:
    """Return one kind of part of all requests as horizontal bars."""
    rows = [(row, part[kind]) for row, part in enumerate(parts, start=1) if kind in part]
    if not rows:
        return None
    return {
        "type": "bar",
        "orientation": "h",
        "name": words,
        "y": [row for row, _ in rows],
        "x": [round(length, 5) for _, (_, length) in rows],
        "base": [round(start, 5) for _, (start, _) in rows],
        "hovertemplate": f"{words}: %{{x:.3~f}} s<extra>request %{{y}}</extra>",
        "meta": {"colour": colour, "pattern": kind == "queue"},
        "width": 0.8,
    }


def _curves(course: Course) -> list[dict[str, Any]]:
    """Return the lower part: requests in flight by both counts, and both rates."""
    below = {"xaxis": "x", "yaxis": "y2"}
    right = {"xaxis": "x", "yaxis": "y3"}
    wanted = (
        ("in flight (client)", course.in_flight, COUNTS, 0, below, "hvh"),
        ("running (server)", course.running, COUNTS, 1, below, "hv"),
        ("waiting (server)", course.waiting, QUEUE, 2, below, "hv"),
        ("tok/s (client)", course.rate, RATES, 0, right, "linear"),
        ("tok/s (server)", course.server_rate, RATES, 1, right, "linear"),
    )
    traces = []
    for name, (times, values), colour, dash, axes, shape in wanted:
        if times and any(values):
            trace = line(name, times, values, colour, dash=dash, **axes)
            traces.append({**trace, "line": {**trace["line"], "shape": shape, "width": 1.8}})
    return traces


def _axes(course: Course) -> dict[str, Any]:
    """Return the axes of both parts, and the window's shade over both."""
    layout: dict[str, Any] = {
        "barmode": "overlay",
        "hovermode": "closest",
        "xaxis": {"title": {"text": "seconds"}, "range": [0, course.length_s], "anchor": "y2"},
        "yaxis": {
            "title": {"text": "requests"},
            "domain": [0.42, 1],
            "autorange": "reversed",
            "showgrid": False,
            "showticklabels": False,
        },
        "yaxis2": {"title": {"text": "at once"}, "domain": [0, 0.34], "rangemode": "tozero"},
        "yaxis3": {
            "title": {"text": "tok/s"},
            "overlaying": "y2",
            "side": "right",
            "tickmode": "auto",
            "nticks": 4,
            "rangemode": "tozero",
            "showgrid": False,
        },
    }
    if course.window_s is not None:
        start, end = course.window_s
        layout["shapes"] = [
            {"type": "rect", "xref": "x", "yref": "paper", "x0": start, "x1": end, "y0": 0,
             "y1": 1, "line": {"width": 0}, "role": "window"}
        ]  # fmt: skip
        layout["annotations"] = [
            {"text": "steady window", "xref": "x", "yref": "paper", "x": (start + end) / 2,
             "y": 0.38, "yanchor": "middle", "showarrow": False}
        ]  # fmt: skip
    return layout


def _bar_table(
    bars: Sequence[Bar], parts: Sequence[Mapping[str, tuple[float, float]]]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], str]:
    """Return the requests that are drawn as a table."""
    header = ("request", "sent, s", "first token, s", "end, s", "waiting (estimate), s", "outcome")
    rows = [
        [bar.index, bar.sent_s, bar.first_s, bar.end_s, part.get("queue", (0.0, 0.0))[1],
         bar.outcome]
        for bar, part in zip(bars, parts, strict=True)
    ]  # fmt: skip
    return table_and_csv(header, rows)


def _counted(requests: int) -> str:
    return "1 request" if requests == 1 else f"{requests:,} requests"


def _in_words(course: Course, name: str, cell: CellResult) -> str:
    """Return the round in a sentence or two."""
    peak = max(course.in_flight[1], default=0.0)
    told = (
        f"One round over time, {plain(name)}: {_counted(course.requests)} in "
        f"{number(course.length_s)} s, at most {peak:.0f} in flight"
    )
    if course.window_s is not None:
        start, end = course.window_s
        told += f"; the steady window is from {number(start)} to {number(end)} s"
    running = max(course.running[1], default=None)
    if running is not None:
        told += f"; the server ran at most {running:.0f} at once"
    rate = cell.client.steady_output_tok_per_s
    return told + (f"; steady {number(rate.point)} tok/s." if rate else ".")

"""Figures of the server's own view and of the client's own error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from concbench.analyse.exhibits import Exhibit
from concbench.domain import Summary
from concbench.report.figure import Figure, Panel, line, plain, table_and_csv
from concbench.report.figure_axes import level_axis, rising
from concbench.report.header import milliseconds
from concbench.report.numbers import count, percent
from concbench.report.rows import level_of
from concbench.report.view import SeriesView
from concbench.result import CellResult, Result

AGREES_WITHIN_PCT = 1.0
MOST_TOGETHER = 6


def pool(
    series: Sequence[SeriesView], result: Result, shown: Mapping[str, Exhibit]
) -> Figure | None:
    """Return KV cache, queue and what they cost, for series that filled the one or the other."""
    panels = tuple(_pool(one, result, shown) for one in series if _pressed(one, result))
    title = "KV cache and queue"
    return Figure("kv-queue", title, "kv_queue", panels) if panels else None


def kv_limit(one: SeriesView, result: Result) -> int | None:
    """Return how many requests the KV pool holds: ⌊pool ÷ (context + output)⌋, None unknown."""
    facts = result.targets.get(one.cells[0].lane) if one.cells else None
    pool_tok = facts.kv_capacity_tok if facts else None
    need = one.context_tok + (result.workload.output_tokens if result.workload else 0)
    return None if not pool_tok or need <= 0 else pool_tok // need


def _pressed(one: SeriesView, result: Result) -> bool:
    """Return whether the server queued, evicted, or was asked for more than its pool holds."""
    limit = kv_limit(one, result)
    return any(
        (cell.server.waiting_max or 0) > 0
        or (cell.server.preemptions or 0) > 0
        or (limit is not None and cell.rate_rps is None and cell.concurrency > limit)
        for cell in one.cells
    )


def _pool(one: SeriesView, result: Result, shown: Mapping[str, Exhibit]) -> Panel:
    """Return one series: peaks by level, and what going beyond the pool does to time and rate."""
    limit = kv_limit(one, result)
    levels = [level_of(cell) for cell in one.cells]
    heading = one.table.level_heading
    header = (
        heading, "over KV", "KV cache peak, %", "waiting, peak", "preemptions", "failed",
        "tok/s vs last inside", "elapsed ratio", "N ratio",
    )  # fmt: skip
    rows = [_pool_row(one, cell, limit, shown) for cell in one.cells]
    names, texts, csv = table_and_csv(header, rows)
    usage = [_percent(cell.server.kv_usage_max) for cell in one.cells]
    data = [
        line("waiting, peak", levels, [cell.server.waiting_max for cell in one.cells], 1,
             dash=1, mode="lines+markers"),
        line("preemptions", levels, [cell.server.preemptions for cell in one.cells], 2,
             dash=2, mode="lines+markers"),
    ]  # fmt: skip
    if any(value is not None for value in usage):
        data.insert(0, line("KV cache peak, %", levels, usage, 0, mode="lines+markers",
                            yaxis="y2"))  # fmt: skip
    data = [trace for trace in data if any(value is not None for value in trace["y"])]
    layout: dict[str, Any] = {
        "xaxis": level_axis(levels, heading),
        "yaxis": rising("requests"),
        "yaxis2": {"title": {"text": "KV cache, %"}, "overlaying": "y", "side": "right",
                   "tickmode": "auto", "range": [0, 105], "showgrid": False},
    }  # fmt: skip
    if limit is not None and levels[0] <= limit < levels[-1]:
        layout["shapes"] = [{"type": "line", "xref": "x", "yref": "paper", "x0": limit,
                             "x1": limit, "y0": 0, "y1": 1, "role": "mark"}]  # fmt: skip
    note = "" if limit is None else f"The KV pool holds {limit:,} such requests at once."
    return Panel(data, layout, names, texts, csv, _pool_words(one, limit), one.name, note)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _pool_row(
    one: SeriesView, cell: CellResult, limit: int | None, shown: Mapping[str, Exhibit]
) -> list[Any]:
    """Return one level: beyond the pool, elapsed ratio beside concurrency ratio."""
    over = limit is not None and cell.concurrency > limit
    inside = [c for c in one.cells if limit is not None and c.concurrency <= limit]
    last = inside[-1] if over and inside else None
    return [
        one.table.rows[one.cells.index(cell)].label,
        None if limit is None else over,
        _percent(cell.server.kv_usage_max),
        cell.server.waiting_max,
        cell.server.preemptions,
        cell.requests.failed,
        _rate_ratio(cell, last),
        _elapsed_ratio(cell, last, shown),
        None if last is None else cell.concurrency / last.concurrency,
    ]


def _rate_ratio(cell: CellResult, last: CellResult | None) -> float | None:
    """Return the batch rate against that of the last level inside the pool."""
    here = cell.client.output_tok_per_s
    there = last.client.output_tok_per_s if last else None
    return here.point / there.point if here and there and there.point else None


def _elapsed_ratio(
    cell: CellResult, last: CellResult | None, shown: Mapping[str, Exhibit]
) -> float | None:
    """Return a round's length against that of the last level inside the pool."""
    here = shown.get(cell.cell)
    there = shown.get(last.cell) if last else None
    if here is None or there is None or not here.elapsed_s or not there.elapsed_s:
        return None
    return here.elapsed_s / there.elapsed_s


def _pool_words(one: SeriesView, limit: int | None) -> str:
    waiting = max((cell.server.waiting_max or 0 for cell in one.cells), default=0)
    usage = max((cell.server.kv_usage_max or 0 for cell in one.cells), default=0)
    what = "request" if waiting == 1 else "requests"
    told = f"KV cache and queue, {one.name}: at most {count(waiting)} {what} waited"
    told += f", the KV cache was at most {percent(100 * usage)} full" if usage else ""
    return told + (f"; the pool holds {limit:,} at once." if limit is not None else ".")


def _groups(series: Sequence[SeriesView]) -> dict[str, list[SeriesView]]:
    """Return the series together, or by lane where they are too many for one plot."""
    if len(series) <= MOST_TOGETHER:
        return {"": list(series)}
    lanes: dict[str, list[SeriesView]] = {}
    for one in series:
        lanes.setdefault(one.lane, []).append(one)
    return lanes


def against_server(series: Sequence[SeriesView]) -> Figure | None:
    """Return how far the client's rate is from the server's own, by level."""
    made = (_agreement(group, label) for label, group in _groups(series).items())
    panels = tuple(panel for panel in made if panel is not None)
    return Figure("agreement", "Client against server", "agreement", panels) if panels else None


def _agreement(series: Sequence[SeriesView], label: str) -> Panel | None:
    """Return one plot of it, None where the server told nothing."""
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for index, one in enumerate(series):
        known = [cell for cell in one.cells if cell.agreement_pct is not None]
        if known:
            data.append(
                line(
                    plain(one.name),
                    [level_of(cell) for cell in known],
                    [cell.agreement_pct for cell in known],
                    index,
                    dash=index,
                    mode="lines+markers",
                    text=[percent(cell.agreement_pct, signed=True) for cell in known],
                )
            )
        rows += [
            [one.name, level_of(cell), _point(cell, "client"), _point(cell, "server"),
             cell.agreement_pct]
            for cell in one.cells
        ]  # fmt: skip
    if not data:
        return None
    heading = series[0].table.level_heading
    levels = sorted({level_of(cell) for one in series for cell in one.cells})
    names = ("series", heading, "client tok/s", "server tok/s", "difference, %")
    header, texts, csv = table_and_csv(names, rows)
    worst = max((abs(row[4]) for row in rows if row[4] is not None), default=0.0)
    layout = {
        "xaxis": level_axis(levels, heading),
        "yaxis": {"title": {"text": "client against server, %"},
                  "range": [-max(2.0, 1.2 * worst), max(2.0, 1.2 * worst)]},
        "shapes": [{"type": "rect", "xref": "paper", "yref": "y", "x0": 0, "x1": 1,
                    "y0": -AGREES_WITHIN_PCT, "y1": AGREES_WITHIN_PCT, "line": {"width": 0},
                    "role": "window"}],
    }  # fmt: skip
    words = (
        f"Client against server: the two rates are at most {percent(worst)} apart; up to "
        f"{AGREES_WITHIN_PCT:g} % (shaded) counts as agreement."
    )
    return Panel(data, layout, header, texts, csv, words, label)


def _point(cell: CellResult, side: str) -> float | None:
    found = (
        cell.client.steady_output_tok_per_s if side == "client" else cell.server.output_tok_per_s
    )
    return None if found is None else found.point


def own_error(series: Sequence[SeriesView]) -> Figure | None:
    """Return the client's own lateness by level: how late it read, and its event loop."""
    made = (_own_error(group, label) for label, group in _groups(series).items())
    panels = tuple(panel for panel in made if panel is not None)
    title = "The instrument's own lateness, ms"
    return Figure("instrument", title, "read_lateness", panels) if panels else None


def _own_error(series: Sequence[SeriesView], label: str) -> Panel | None:
    """Return one plot of it, None where nothing is known."""
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for index, one in enumerate(series):
        for order, (name, get) in enumerate(_OWN):
            known = [(cell, value) for cell in one.cells if (value := get(cell)) is not None]
            rows += [[one.name, level_of(cell), name, value] for cell, value in known]
            if not known or (len(series) > 1 and order):
                continue
            data.append(
                line(
                    f"{plain(one.name)} {name}" if len(series) > 1 else name,
                    [level_of(cell) for cell, _ in known],
                    [value for _, value in known],
                    index if len(series) > 1 else order,
                    dash=index + order,
                    mode="lines+markers",
                    text=[f"{milliseconds(value)} ms" for _, value in known],
                )
            )
    if not data:
        return None
    heading = series[0].table.level_heading
    levels = sorted({level_of(cell) for one in series for cell in one.cells})
    header, texts, csv = table_and_csv(("series", heading, "quantity", "ms"), rows)
    worst = max(row[3] for row in rows)
    words = f"The instrument's own error: nothing was later than {milliseconds(worst)} ms at p99."
    layout = {
        "xaxis": level_axis(levels, heading),
        "yaxis": rising("ms late"),
    }
    return Panel(data, layout, header, texts, csv, words, label)


def _tail(summary: Summary) -> float | None:
    value = summary.p99 if summary.p99 is not None else summary.max
    return value


_OWN: tuple[tuple[str, Callable[[CellResult], float | None]], ...] = (
    ("read late, p99", lambda cell: _tail(cell.instrument.read_lateness_ms)),
    ("late after stamp, p99", lambda cell: _tail(cell.instrument.late_after_stamp_ms)),
    ("loop lag, p99", lambda cell: _tail(cell.instrument.loop_lag_ms)),
)

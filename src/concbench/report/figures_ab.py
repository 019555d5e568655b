"""The figure of a comparison: each verdict's ratio with its interval, by level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from concbench.report.comparisontables import word
from concbench.report.figure import (
    Figure,
    Panel,
    hollow_note,
    line,
    plain,
    symbols,
    table_and_csv,
)
from concbench.report.figure_axes import is_wide, level_axis
from concbench.report.inert import inert
from concbench.report.numbers import ratio_estimate
from concbench.report.verdicts import METRICS, NO_VERDICT, metric_label
from concbench.result import Result, VerdictResult

Crossings = Sequence[Mapping[str, Any]]
Doubts = Mapping[str, Sequence[str]]
"""The codes of the doubts of each cell, more than notes."""


def ratio_figure(result: Result) -> Figure | None:
    """Return B ÷ A by level, a panel a metric and pair of lanes; None without a ratio."""
    together: dict[tuple[str, str, str], list[VerdictResult]] = {}
    for row in result.verdicts:
        if row.ratio is not None:
            together.setdefault((row.metric, row.a, row.b), []).append(row)
    if not together:
        return None
    doubts = _doubts(result)
    panels = tuple(_panel(rows, doubts) for rows in sorted(together.values(), key=_rank))
    return Figure("ratio", "How they compare: B ÷ A", "ratio", panels, height=320)


def _rank(rows: Sequence[VerdictResult]) -> tuple[bool, int]:
    """Return what orders the panels: those with a verdict first, of these the steady rate."""
    known = any(row.verdict not in NO_VERDICT for row in rows)
    order = list(METRICS)
    name = rows[0].metric
    return not known, order.index(name) if name in order else len(order)


def _doubts(result: Result) -> dict[str, list[str]]:
    """Return the codes of the warnings and the fatal doubts of each cell."""
    found: dict[str, list[str]] = {}
    for doubt in result.doubts:
        if doubt.cell is not None and doubt.severity != "note":
            found.setdefault(doubt.cell, []).append(inert(doubt.code, 60))
    return found


def _touched(row: VerdictResult, doubts: Doubts, place: str) -> list[tuple[str, str]]:
    """Return what a ratio is in doubt for, and where: no verdict, or a doubt of either side."""
    found = [(word(row), place)] if row.verdict in NO_VERDICT else []
    for cell, lane in ((row.cell_a, row.a), (row.cell_b, row.b)):
        found += [(code, f"{inert(lane, 40)} · {place}") for code in doubts.get(cell, ())]
    return found


def _panel(rows: list[VerdictResult], doubts: Doubts) -> Panel:
    """Return one metric: a line a context, the margin of indifference shaded."""
    metric, better = metric_label(rows[0].metric), rows[0].better
    a, b = inert(rows[0].a, 40), inert(rows[0].b, 40)
    title = f"{metric}: {b} against {a}"
    contexts = list(dict.fromkeys(row.context_tok for row in rows))
    data = [
        _line([row for row in rows if row.context_tok == context], doubts, place, len(contexts))
        for place, context in enumerate(contexts)
    ]
    names = ("context, tokens", "N", "ratio", "low", "high", "pairs", "verdict")
    table = [
        [row.context_tok, row.concurrency, row.ratio.point, row.ratio.low, row.ratio.high,
         row.n_pairs, word(row)]
        for row in rows if row.ratio is not None
    ]  # fmt: skip
    header, texts, csv = table_and_csv(names, table)
    delta = rows[0].delta
    layout: dict[str, Any] = {
        "xaxis": level_axis(sorted({float(row.concurrency) for row in rows}), "N"),
        "yaxis": {"title": {"text": f"{plain(b, 24)} ÷ {plain(a, 24)}"}, "type": "log"},
        "shapes": [
            {"type": "rect", "xref": "paper", "yref": "y", "x0": 0, "x1": 1,
             "y0": 1 / (1 + delta), "y1": 1 + delta, "line": {"width": 0}, "role": "window"},
            {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": 1, "y1": 1,
             "role": "mark"},
        ],
        "showlegend": len(contexts) > 1,
    }  # fmt: skip
    told = "; ".join(
        f"{ratio_estimate(row.ratio)} at N = {row.concurrency} ({word(row)})"
        for row in rows
        if row.ratio is not None
    )
    hollow = [
        found
        for row in rows
        for found in _touched(row, doubts, _where(row, named=len(contexts) > 1))
    ]
    note = (
        f"Shaded: within {100 * delta:g} %, which counts as equal. {better.capitalize()} is better."
        f" {hollow_note(hollow)}"
    ).rstrip()
    return Panel(data, layout, header, texts, csv, f"{title}: {told}.", title, note)


def _where(row: VerdictResult, *, named: bool) -> str:
    """Return where a ratio stands: its level, and its context where there are several."""
    level = f"N = {row.concurrency:,}"
    return f"{row.context_tok:,} tokens · {level}" if named else level


def _line(rows: list[VerdictResult], doubts: Doubts, place: int, contexts: int) -> dict[str, Any]:
    """Return the ratios of one context with their intervals, hollow where they are in doubt."""
    known = [(row, row.ratio) for row in sorted(rows, key=lambda row: row.concurrency) if row.ratio]
    trace = line(
        f"{rows[0].context_tok:,} tokens" if contexts > 1 else "ratio",
        [float(row.concurrency) for row, _ in known],
        [ratio.point for _, ratio in known],
        place,
        dash=place,
        mode="lines+markers",
        text=[plain(f"{ratio_estimate(ratio)}, {word(row)}", 120) for row, ratio in known],
    )
    hollow = (bool(_touched(row, doubts, "")) for row, _ in known)
    trace["marker"]["symbol"] = symbols(trace["marker"]["symbol"], hollow)
    if any(ratio.low is not None for _, ratio in known):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [(ratio.high or ratio.point) - ratio.point for _, ratio in known],
            "arrayminus": [ratio.point - (ratio.low or ratio.point) for _, ratio in known],
        }
    return trace


def crossing(metric: str | None, crossings: Crossings, levels: Sequence[float]) -> dict[str, Any]:
    """Return shapes and words that mark where the winner changes, as far as it is bracketed."""
    shapes, words = [], []
    place = math.log10 if is_wide(levels) else float
    for entry in crossings:
        bracket = entry.get("bracket")
        axis, named = entry.get("axis", "concurrency"), entry.get("metric")
        if axis != "concurrency" or named != metric or not bracket:
            continue
        low, high = (float(end) for end in bracket)
        if low < levels[0] or high > levels[-1]:
            continue
        point = entry.get("point")
        shapes.append(
            {
                "type": "rect",
                "xref": "x",
                "yref": "paper",
                "x0": low,
                "x1": high,
                "y0": 0,
                "y1": 1,
                "line": {"width": 0},
                "role": "crossover",
            }
        )
        if point:
            shapes.append(
                {
                    "type": "line",
                    "xref": "x",
                    "yref": "paper",
                    "x0": point,
                    "x1": point,
                    "y0": 0,
                    "y1": 1,
                    "line": {"dash": "dot"},
                    "role": "mark",
                }
            )
        where = f"N ≈ {point:.3g}" if point else f"N = {low:g} to {high:g}"
        words.append(
            {
                "text": f"crossover {where}",
                "xref": "x",
                "yref": "paper",
                "x": place(low),
                "xanchor": "left",
                "y": 0.01,
                "yanchor": "bottom",
                "showarrow": False,
            }
        )
    return {"shapes": shapes, "annotations": words} if shapes else {}

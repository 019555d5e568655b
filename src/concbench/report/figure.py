"""The parts that every figure is made of: panels with data for plotly, a table, CSV and words.

Colours are indices into a palette that the page chooses by theme (`meta.colour`); dash and marker
tell the lines apart without colour. A hollow marker is a number that a doubt touches.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from concbench.report.alike import places
from concbench.report.csv import Value, rows_to_csv
from concbench.report.numbers import MISSING, number

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "cross")
NAME_LIMIT = 40
REFERENCE = -1
"""The colour of lines that are no measurement."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One choice of a figure: `data` and `layout` for plotly, rows for the table beneath.

    `label` is what the reader chooses by, empty for the only one. `note` stands under the plot.
    """

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    csv: str
    alternative: str
    label: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure ready for the page, with at least one panel. `height` is in CSS pixels."""

    key: str
    title: str
    definition: str
    panels: tuple[Panel, ...]
    wide: bool = False
    height: int = 330

    @property
    def first(self) -> Panel:
        """The panel that is shown at first."""
        return self.panels[0]


def plain(text: str, limit: int = NAME_LIMIT) -> str:
    """Return text of bounded length that plotly does not read as markup."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return html.escape(short, quote=False)


def line(
    name: str,
    x: Sequence[float],
    y: Sequence[float | None],
    colour: int,
    *,
    dash: int = 0,
    text: Sequence[str] | None = None,
    mode: str = "lines",
    **more: object,
) -> dict[str, Any]:
    """Return one line. `name` and `text` must be plain; `text` is what hovering shows."""
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": list(x),
        "y": list(y),
        "meta": {"colour": colour},
        "line": {"dash": DASHES[dash % len(DASHES)], "width": 2},
    }
    if text is None:
        trace["hovertemplate"] = "%{fullData.name}: %{y}<extra></extra>"
    else:
        trace["text"] = list(text)
        trace["hovertemplate"] = "%{fullData.name}: %{text}<extra></extra>"
    if "markers" in mode:
        trace["marker"] = {"symbol": SYMBOLS[dash % len(SYMBOLS)], "size": 8}
    return {**trace, **more}


def symbols(name: str, hollow: Iterable[bool]) -> list[str]:
    """Return a marker's symbol for each point, hollow where a doubt touches it."""
    return [f"{name}-open" if doubted else name for doubted in hollow]


def hollow_note(touched: Iterable[tuple[str, str]]) -> str:
    """Return whose markers are hollow, from pairs of a doubt and the label of what it touches."""
    codes: dict[str, list[str]] = {}
    for code, where in touched:
        codes.setdefault(code, []).append(where)
    if not codes:
        return ""
    told = (f"{code} ({places(where)})" for code, where in codes.items())
    return f"Hollow markers are in doubt: {'; '.join(told)}."


def table_and_csv(
    header: Sequence[str], rows: Sequence[Sequence[Value]]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], str]:
    """Return header and texts of a table, and the same rows in full precision as CSV."""
    texts = tuple(tuple(cell_text(value) for value in row) for row in rows)
    return tuple(header), texts, rows_to_csv(header, rows)


def cell_text(value: Value) -> str:
    """Return a value of a table as it is read."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return number(value) if isinstance(value, float) else value

"""One self-contained page: no network, no external file, nothing that a hostile name could run.

Everything is escaped by the template engine; the figures' data lies in a JSON block that no parser
executes; and the page's own policy lets only the two scripts run whose hashes it names.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from concbench.analyse.exhibits import Exhibit
from concbench.errors import OutputUnusable
from concbench.report import comparisontables, numbers
from concbench.report.build import build_view
from concbench.report.definitions import DEFINITIONS, hover_text
from concbench.report.figure import Figure
from concbench.report.figures import figures_of
from concbench.report.header import PANEL_HEADINGS
from concbench.report.view import ReportView, Table
from concbench.result import Result

FIGURE_SPACE = "\u2007"
POINT_SPACE = "\u2008"
_TEMPLATES = resources.files("concbench.report") / "templates"
_ENDS_SCRIPT = re.compile(r"<(?=/script|!--)", re.IGNORECASE)


def write_html(result: Result, path: Path, exhibits: Sequence[Exhibit] = ()) -> None:
    """Write the page. It appears whole or not at all.

    `exhibits` are what there is to draw of single rounds; without them those figures are left out.
    Raises OutputUnusable where the file cannot be written.
    """
    text = to_html(result, exhibits)
    # A device or a pipe is written to: putting a file in its place would take it away.
    special = path.exists() and not path.is_file()
    staged = path if special else path.with_name(f".{path.name}.tmp")
    try:
        staged.write_text(text, encoding="utf-8", newline="\n")
        if not special:
            staged.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            if not special:
                staged.unlink(missing_ok=True)
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OutputUnusable(f"cannot write {path}: {reason}; name another file") from error


def to_html(result: Result, exhibits: Sequence[Exhibit] = ()) -> str:
    """Return the page as text."""
    view = build_view(result)
    figures = figures_of(view.series, result, exhibits)
    plotly = plotly_script() if figures else ""
    own = read_template("plots.js") + read_template("report.js")
    scripts = [script for script in (plotly, own) if script]
    return (
        environment()
        .get_template("report.html.jinja")
        .render(
            view=view,
            sentence=unbroken(view.sentence),
            figures=figures,
            figures_json={figure.key: drawn(figure) for figure in figures},
            comparisons=comparisontables.tables(result),
            messages=_messages(view),
            tables=[_display(one.table) for one in view.series],
            definitions=DEFINITIONS,
            panel_headings=PANEL_HEADINGS,
            facts=_lanes(view),
            css=read_template("report.css"),
            plotly=plotly,
            own_script=own,
            policy=policy(scripts),
        )
    )


def unbroken(sentence: str) -> str:
    """Return the sentence with no line's end inside a number, its unit's sign and its spread."""
    text = sentence.replace("N = ", "N\u00a0=\u00a0").replace(" ± ", "\u00a0±\u00a0")
    return re.sub(r" (?=[×%])", "\u00a0", text)


def drawn(figure: Figure) -> dict[str, Any]:
    """Return a figure as its script reads it; tables go along where there is a choice."""
    several = len(figure.panels) > 1
    return {
        "height": figure.height,
        "wide": figure.wide,
        "title": figure.title,
        "panels": [
            {
                "data": panel.data,
                "layout": panel.layout,
                "csv": panel.csv,
                "label": panel.label,
                **({"table": [panel.header, *panel.rows]} if several else {}),
                "alternative": panel.alternative,
                "note": panel.note,
            }
            for panel in figure.panels
        ],
    }


def _messages(view: ReportView) -> dict[str, dict[str, str]]:
    """Return each doubt's anchor, severity and messages, for where its code stands at a number."""
    told: dict[str, dict[str, str]] = {}
    for doubt in view.doubts:
        words = "; ".join(message for message, _ in doubt.messages)
        anchor = f"doubt-{doubt.severity}-{quote(doubt.code, safe='/')}"
        told.setdefault(
            doubt.code, {"anchor": anchor, "severity": doubt.severity, "words": words[:400]}
        )
    return told


def environment() -> jinja2.Environment:
    """Return the template engine: everything escaped, unknown names are errors."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("concbench.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["hover"] = hover_text
    return environment


def policy(scripts: list[str]) -> str:
    """Return the content security policy: inline styles and images, and these scripts."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def read_template(name: str) -> str:
    """Return a file that comes with the package."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def plotly_script() -> str:
    """Return the plotting library that comes with the package (plotly.js, cartesian bundle)."""
    script = resources.files("concbench.report") / "vendor" / "plotly-cartesian.min.js"
    return _ENDS_SCRIPT.sub(r"\\x3C", script.read_text(encoding="utf-8").strip())


def _display(table: Table) -> dict[str, Any]:
    """Return the table's texts by row, padded so that decimal points stand in one column."""
    columns: list[list[dict[str, str]]] = []
    for index in range(len(table.columns)):
        cells = [row.cells[index] for row in table.rows]
        padded = numbers.aligned(
            [cell.text for cell in cells], point=POINT_SPACE, digit=FIGURE_SPACE
        )
        columns.append([
            {
                "text": cell.text,
                "pad": text[len(cell.text) :],
                "spread": cell.spread,
                "mark": table.mark(cell),
                "note": cell.note or "",
            }
            for cell, text in zip(cells, padded, strict=True)
        ])  # fmt: skip
    rows = [
        {"row": row, "cells": [column[index] for column in columns]}
        for index, row in enumerate(table.rows)
    ]
    return {
        "groups": _groups(table),
        "columns": table.columns,
        "rows": rows,
        "doubted": any(row.doubts for row in table.rows),
    }


def _groups(table: Table) -> list[dict[str, Any]]:
    """Return the first header line: each group with the number of columns that it spans."""
    groups: list[dict[str, Any]] = []
    for column in table.columns:
        if groups and groups[-1]["name"] == column.group:
            groups[-1]["span"] += 1
        else:
            groups.append({"name": column.group, "span": 1, "definition": column.definition})
    return groups


def _lanes(view: ReportView) -> list[dict[str, Any]]:
    """Return the facts of each lane once, though it may have several series."""
    lanes = {series.lane: series.facts for series in view.series if series.facts}
    return [
        {"lane": lane, "facts": [asdict(fact) for fact in facts]} for lane, facts in lanes.items()
    ]

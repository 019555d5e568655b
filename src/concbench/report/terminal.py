"""The report on a terminal: complete without colour, at any width.

A table that is too wide is cut between its groups of columns and stacked, each part with the
level in front: nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from concbench.report import numbers
from concbench.report.build import build_view
from concbench.report.comparisontables import crossover_tables
from concbench.report.comparisontables import table_lines as comparison_lines
from concbench.report.comparisontables import tables as comparison_tables
from concbench.report.view import (
    Banner,
    Column,
    DoubtView,
    PlainTable,
    Quantity,
    ReportView,
    SeriesView,
    Table,
)
from concbench.result import Result

INDENT = 2
GAP = "  "
GROUP_GAP = "   "
SEPARATOR = " · "
BANNERS = {
    "correction": "CORRECTION",
    "amended": "AMENDED",
    "damaged": "DAMAGED",
    "interrupted": "INTERRUPTED",
    "unfinished": "UNFINISHED",
}
SIGNS = {"fatal": "✗ FATAL", "warning": "!", "note": "·"}
STYLES = {"fatal": "bold red", "warning": "yellow", "note": "dim"}


@dataclass(frozen=True, slots=True)
class Block:
    """A group of columns laid out: its two header lines and its rows, all of one width."""

    headers: tuple[str, str]
    rows: tuple[str, ...]
    width: int


MOST_SERIES = 8
"""Beside the tables of a matrix, more series are not printed unless every one is asked for."""


def render(
    result: Result, console: Console, *, page: str | None = None, every_series: bool = False
) -> None:
    """Print the report. `page` is where the HTML report was written, if it was.

    With the tables of a matrix more than 8 series are only counted, unless `every_series`.
    """
    view = build_view(result, page)
    _banners(view, console)
    for table in view.matrix:
        plain_table(table, console)
    if view.matrix and len(view.series) > MOST_SERIES and not every_series:
        told = f"{len(view.series)} series in detail: `concbench report --all`, or --html, --md"
        console.print(Text(told, style="dim"))
    else:
        for series in view.series:
            _series(series, console)
    _comparison(result, console)
    for sentence in view.verdicts:
        console.print(Text(sentence, style="bold"))
    if not view.series and not view.verdicts:
        console.print(Text(view.sentence, style="bold"))
    for line in view.beside:
        console.print(Text(line, style="dim"), soft_wrap=True)
    for doubt in view.doubts:
        doubt_lines(doubt, console)
    paths = [("study", view.study), ("page", view.page)]
    where = Text((GROUP_GAP * 2).join(f"{name}  {path}" for name, path in paths if path))
    if where.plain:
        console.print(where, soft_wrap=True)


def _comparison(result: Result, console: Console) -> None:
    for found in [*comparison_tables(result), *crossover_tables(result)]:
        console.print(Text(found.title, style="bold"))
        for row in comparison_lines(found):
            console.print(Text(row), no_wrap=True, crop=False, overflow="ignore", soft_wrap=True)
        console.print()


def _banners(view: ReportView, console: Console) -> None:
    """Print what stands above everything else."""
    for banner in view.banners:
        name = BANNERS[banner.kind]
        console.print(Text(f"{name}  {banner.text}", style="bold red"))
        for old in banner.was:
            console.print(past_line(banner, old))
    if view.banners:
        console.print()


def past_line(banner: Banner, old: str) -> Text:
    """Return a sentence of before: struck through where it was wrong, plain where it was not."""
    if banner.kind == "amended":
        return Text(f"  then  {old}", style="dim")
    return Text(f"  was  {old}", style="strike dim")


def _series(series: SeriesView, console: Console) -> None:
    """Print one series: header, table, footnotes, finding."""
    if series.title:
        console.print(Text(SEPARATOR.join(series.title), style="bold underline"))
    if series.engine:
        console.print(Text(SEPARATOR.join(series.engine)))
    if series.instrument:
        console.print(Text("instrument  " + SEPARATOR.join(series.instrument), style="dim"))
    if series.known:
        console.print(Text("lane  " + SEPARATOR.join(series.known), style="dim"))
    console.print()
    for line in table_lines(series.table, console.width):
        console.print(line, no_wrap=True, crop=False, overflow="ignore", soft_wrap=True)
    for mark, text in series.table.footnotes:
        note = f"{mark} {text}".strip()
        console.print(Padding(Text(note, style="dim"), (0, 0, 0, INDENT), expand=False))
    console.print()
    style = "bold red" if any(row.fatal for row in series.table.rows) else "bold"
    console.print(Text(series.finding, style=style))
    if series.title:
        console.print()


def plain_table(table: PlainTable, console: Console) -> None:
    """Print a table of texts; lines may be longer than the terminal is wide."""
    texts = [table.headings, *table.rows]
    widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    lines = [
        _indented(
            GAP.join(
                text + " " * (width - cell_len(text)) if index < table.words else _fit(text, width)
                for index, (text, width) in enumerate(zip(row, widths, strict=True))
            )
        )
        for row in texts
    ]
    if table.title:
        console.print(Text(table.title, style="bold underline"))
    console.print(Text(lines[0], style="dim"), soft_wrap=True)
    if table.rows:
        console.print(Text("\n".join(lines[1:])), soft_wrap=True)
    for note in table.notes:
        console.print(Padding(Text(note, style="dim"), (0, 0, 0, INDENT), expand=False))
    if table.title:
        console.print()


def doubt_lines(doubt: DoubtView, console: Console) -> None:
    """Print one doubt; the advice follows where the number is touched."""
    for message, where in doubt.messages:
        line = Text(f"{SIGNS[doubt.severity]} {doubt.code}", style=STYLES[doubt.severity])
        line.append(f"  {message}", style="not bold not dim default")
        line.append(f"  ({where})" if where else "", style="dim")
        console.print(line)
    if doubt.severity != "note":
        told = Text(f"{doubt.effect} {doubt.action}", style="dim")
        console.print(Padding(told, (0, 0, 0, INDENT * 2), expand=False))


def table_lines(table: Table, width: int) -> list[Text]:
    """Return the table's lines, in as many stacked parts as the width needs."""
    levels = _level_block(table)
    blocks = [_block(table, group) for group in _groups(table.columns)]
    lines: list[Text] = []
    for part in _parts(levels.width, blocks, width):
        if lines:
            lines.append(Text(""))
        whole = [levels, *part]
        for index in (0, 1):
            header = GROUP_GAP.join(_fit(block.headers[index], block.width) for block in whole)
            if header.strip():
                lines.append(Text(_indented(header), style="dim"))
        for index, row in enumerate(table.rows):
            text = GROUP_GAP.join(block.rows[index] for block in whole)
            lines.append(Text(_indented(text), style="red" if row.fatal else ""))
    return lines


def _indented(text: str) -> str:
    """Return a line of the table with its margin and without trailing blanks."""
    return (" " * INDENT + text).rstrip()


def _groups(columns: Sequence[Column]) -> list[list[int]]:
    """Return the indices of neighbouring columns that share a group header."""
    groups: list[list[int]] = []
    for index, column in enumerate(columns):
        if groups and columns[groups[-1][0]].group == column.group:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _parts(level_width: int, blocks: Sequence[Block], width: int) -> list[list[Block]]:
    """Return the blocks in rows of as many as fit, at least one each."""
    parts: list[list[Block]] = []
    used = 0
    for block in blocks:
        needed = len(GROUP_GAP) + block.width
        if not parts or used + needed > width:
            parts.append([])
            used = INDENT + level_width
        parts[-1].append(block)
        used += needed
    return parts


def _level_block(table: Table) -> Block:
    """Return the first column: the level, with a cross where a fatal doubt stands."""
    labels = [f"{'✗ ' if row.fatal else ''}{row.label}" for row in table.rows]
    width = max(map(cell_len, [table.level_heading, *labels]))
    rows = tuple(label.rjust(width) for label in labels)
    return Block((table.level_heading.rjust(width), ""), rows, width)


def _block(table: Table, indices: Sequence[int]) -> Block:
    """Return a group of columns, laid out."""
    columns = [_column(table, index) for index in indices]
    group, labels = table.columns[indices[0]].group, [table.columns[i].label for i in indices]
    if len(indices) > 1:
        widths = [
            max(cell_len(label), cell_len(texts[0]))
            for label, texts in zip(labels, columns, strict=True)
        ]
        low = GAP.join(label.rjust(size) for label, size in zip(labels, widths, strict=True))
        texts = [
            GAP.join(text.rjust(size) for text, size in zip(row, widths, strict=True))
            for row in zip(*columns, strict=True)
        ]
    else:
        low, texts = labels[0], columns[0]
    width = max(map(cell_len, [group, low, *texts]))
    rows = tuple(_fit(text, width) for text in texts)
    return Block((group, low if len(indices) == 1 else low.rjust(width)), rows, width)


def _column(table: Table, index: int) -> list[str]:
    """Return one column's texts of one width: decimal points in line, marks and spread after."""
    cells: list[Quantity] = [row.cells[index] for row in table.rows]
    marks = [table.mark(cell) for cell in cells]
    longest = max(map(len, marks), default=0)
    padded = numbers.aligned([cell.text for cell in cells])
    texts = [
        cell.text + mark + text[len(cell.text) :] + " " * (longest - len(mark))
        for cell, mark, text in zip(cells, marks, padded, strict=True)
    ]
    wide = max(map(len, texts), default=0)
    tails = [f" {cell.spread}" if cell.spread else "" for cell in cells]
    tail = max(map(len, tails), default=0)
    return [text.rjust(wide) + rest.ljust(tail) for text, rest in zip(texts, tails, strict=True)]


def _fit(text: str, width: int) -> str:
    """Return a text filled up on the left to the width of its block."""
    return " " * max(0, width - cell_len(text)) + text

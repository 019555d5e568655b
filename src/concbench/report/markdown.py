"""The report as GitHub-flavoured Markdown: the terminal's view, fit for a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from concbench.report.build import build_view
from concbench.report.comparisontables import crossover_tables, tables
from concbench.report.view import Banner, DoubtView, PlainTable, ReportView, SeriesView, Table
from concbench.result import Result

SEPARATOR = " · "
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&@$])")
_BARE_LINK = re.compile(r"(?i)\b(https?|ftp|www|mailto)([:.])")


def to_markdown(result: Result) -> str:
    """Return the report as Markdown text with a final newline."""
    view = build_view(result)
    blocks: list[str] = [*_top(view)]
    for series in view.series:
        blocks += _series(series)
    for table in view.matrix:
        blocks += plain_markdown(table)
    if view.verdicts:
        blocks += ["### Comparison", _bullets(escaped(sentence) for sentence in view.verdicts)]
        blocks += comparison_blocks(result, heading="####")
    if view.beside:
        blocks += ["### Beside the table", _bullets(escaped(line) for line in view.beside)]
    if view.doubts:
        blocks += ["### Doubts", _bullets(_doubt(doubt) for doubt in view.doubts)]
    if view.reproduce:
        blocks += ["### To measure the same again", _code(view.reproduce)]
    blocks.append(_foot(view))
    return "\n\n".join(block for block in blocks if block) + "\n"


def comparison_blocks(result: Result, heading: str = "###") -> list[str]:
    """Return the tables of a comparison and its crossovers, each with a heading."""
    blocks: list[str] = []
    for table in [*tables(result), *crossover_tables(result)]:
        rule = "|" + "|".join(" ---: " for _ in table.header[:-1]) + "| --- |"
        rows = [_line(table.header), rule, *(_line(row) for row in table.rows)]
        blocks.append("\n".join([f"{heading} {escaped(table.title)}", "", *rows]))
        blocks += [escaped(note) for note in table.notes]
    return blocks


def escaped(text: str) -> str:
    """Return text in which Markdown and HTML see nothing but text, and no address links itself."""
    return _BARE_LINK.sub("\\1\u200b\\2", _SPECIAL.sub(r"\\\1", text))


def _top(view: ReportView) -> list[str]:
    """Return corrections and an interruption, then the answer in one sentence."""
    said: list[str] = []
    for banner in view.banners:
        said.append(f"> **{banner.kind.upper()}** {escaped(banner.text)}")
        said += [past_markdown(banner, old) for old in banner.was]
    return ["\n>\n".join(said), f"**{escaped(view.sentence)}**"]


def past_markdown(banner: Banner, old: str) -> str:
    """Return a sentence of before: struck through where it was wrong, plain where it was not."""
    if banner.kind == "amended":
        return f"> then: {escaped(old)}"
    return f"> was: ~~{escaped(old)}~~"


def _series(series: SeriesView) -> list[str]:
    """Return one series: title, header lines, table, footnotes, finding."""
    notes = [f"{escaped(mark)} {escaped(text)}".strip() for mark, text in series.table.footnotes]
    return [
        f"### {escaped(SEPARATOR.join(series.title))}" if series.title else "",
        escaped(SEPARATOR.join(series.engine)),
        f"*instrument* {escaped(SEPARATOR.join(series.instrument))}" if series.instrument else "",
        f"*lane* {escaped(SEPARATOR.join(series.known))}" if series.known else "",
        _table(series.table),
        "  \n".join(notes),
        escaped(series.finding) if series.title else "",
    ]


def _table(table: Table) -> str:
    """Return the table; a fatal row's level is marked with a cross."""
    header = [table.level_heading, *(column.heading for column in table.columns)]
    body = [
        [
            f"{'✗ ' if row.fatal else ''}{row.label}",
            *(f"{cell.text}{table.mark(cell)} {cell.spread}".rstrip() for cell in row.cells),
        ]
        for row in table.rows
    ]
    lines = [_line(header), "|" + "|".join(" ---: " for _ in header) + "|"]
    return "\n".join([*lines, *(_line(row) for row in body)])


def plain_markdown(table: PlainTable) -> list[str]:
    """Return a table of texts: title, table, notes."""
    sides = ["---" if index < table.words else "---:" for index in range(len(table.headings))]
    lines = [_line(table.headings), "| " + " | ".join(sides) + " |", *map(_line, table.rows)]
    notes = "  \n".join(escaped(note) for note in table.notes)
    return [f"### {escaped(table.title)}" if table.title else "", "\n".join(lines), notes]


def _line(cells: Sequence[str]) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def _doubt(doubt: DoubtView) -> str:
    """Return one doubt with its messages and the advice behind it."""
    name = f"**{doubt.severity}** `{doubt.code.replace('`', '')}`"
    said = "; ".join(
        escaped(message) + (f" ({escaped(where)})" if where else "")
        for message, where in doubt.messages
    )
    return f"{name} {said}. {escaped(doubt.effect)} {escaped(doubt.action)}"


def _bullets(lines: Iterable[str]) -> str:
    """Return a list."""
    return "\n".join(f"- {line}" for line in lines)


def _code(lines: Sequence[str]) -> str:
    """Return a code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}console", *lines, fence])


def _foot(view: ReportView) -> str:
    """Return where the study lies, when it began, and with what it was measured."""
    parts = [f"study {view.study}"] if view.study else []
    parts += [f"began {view.began_utc}", f"concbench {view.tool_version}"]
    return escaped(SEPARATOR.join(parts))

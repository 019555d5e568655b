"""A comparison on the terminal and as Markdown: a table for each metric, then what it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from concbench.domain import Estimate, Summary
from concbench.report.build import build_view
from concbench.report.inert import inert
from concbench.report.markdown import escaped, past_markdown
from concbench.report.numbers import MISSING, estimate_text, number, ratio_estimate
from concbench.report.terminal import BANNERS, doubt_lines, past_line
from concbench.report.verdicts import metric_label
from concbench.result import CellResult, Result, VerdictResult

NAME_LIMIT = 40
WORDS = {
    "equivalent": "equal",
    "inconclusive": "undecided",
    "drifted": "control drifted",
    "not_comparable": "not comparable",
    "invalid": "no verdict",
}


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """One metric of two sides at one context: texts by row, levels first."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(result: Result) -> list[ComparisonTable]:
    """Return a table for each metric and pair of sides, and context where levels vary as well."""
    together: dict[tuple[str, str, str], list[VerdictResult]] = {}
    for row in result.verdicts:
        together.setdefault((row.metric, row.a, row.b), []).append(row)
    cells = {cell.cell: cell for cell in result.cells}
    found: list[ComparisonTable] = []
    for rows in together.values():
        contexts = dict.fromkeys(row.context_tok for row in rows)
        levels = dict.fromkeys(row.concurrency for row in rows)
        if len(contexts) > 1 and len(levels) == 1:
            found.append(_table(rows, cells, f" · N = {next(iter(levels))}", by_context=True))
            continue
        for context in contexts:
            place = f" · {context:,} tokens of context" if len(contexts) > 1 else ""
            part = [row for row in rows if row.context_tok == context]
            found.append(_table(part, cells, place, by_context=False))
    return found


def _table(
    rows: Sequence[VerdictResult],
    cells: dict[str, CellResult],
    place: str,
    *,
    by_context: bool,
) -> ComparisonTable:
    metric = rows[0].metric
    a, b = inert(rows[0].a, NAME_LIMIT), inert(rows[0].b, NAME_LIMIT)

    def level(row: VerdictResult) -> int:
        return row.context_tok if by_context else row.concurrency

    return ComparisonTable(
        f"{metric_label(metric)}: {b} against {a}{place}",
        ("context" if by_context else "N", a, b, f"{b} ÷ {a}", "pairs", "verdict"),
        tuple(
            (
                f"{level(row):,}",
                _value(cells.get(row.cell_a), metric),
                _value(cells.get(row.cell_b), metric),
                MISSING if row.ratio is None else ratio_estimate(row.ratio),
                str(row.n_pairs) if row.n_pairs else MISSING,
                word(row),
            )
            for row in sorted(rows, key=level)
        ),
    )


def word(row: VerdictResult) -> str:
    """Return a verdict in a word or two: `nvfp4 faster`, `equal`, `undecided`."""
    if row.verdict in ("a_faster", "b_faster"):
        name = inert(row.a if row.verdict == "a_faster" else row.b, NAME_LIMIT)
        return f"{name} faster" + ("" if row.beyond_delta else " (slightly)")
    if row.verdict == "inconclusive" and not row.n_pairs and row.ratio and row.ratio.low is None:
        return "single reading"
    return WORDS.get(row.verdict, inert(row.verdict, NAME_LIMIT))


def _value(cell: CellResult | None, metric: str) -> str:
    """Return a cell's own figure of a metric; the worst quarter is known of rounds alone."""
    base, _, suffix = metric.partition(".")
    if cell is None or suffix == "worst_quarter":
        return MISSING
    if base == "server_output_tok_per_s":
        return estimate_text(cell.server.output_tok_per_s)
    found = getattr(cell.client, base, None)
    if isinstance(found, Summary):
        return number(found.p50 if found.p50 is not None else found.mean)
    return estimate_text(found) if isinstance(found, Estimate) else MISSING


def render_comparison(result: Result, console: Console) -> None:
    """Print corrections, tables, the sentences, and the doubts that bear on the verdicts."""
    view = build_view(result)
    for banner in view.banners:
        name = BANNERS[banner.kind]
        console.print(Text(f"{name}  {banner.text}", style="bold red"))
        for old in banner.was:
            console.print(past_line(banner, old))
    if view.banners:
        console.print()
    for table in tables(result):
        console.print(Text(table.title, style="bold"))
        for line in _lines(table):
            console.print(Text(line), no_wrap=True, crop=False, overflow="ignore", soft_wrap=True)
        console.print()
    # Where nothing may be compared, one sentence says it for all metrics.
    refused = bool(result.verdicts) and all(
        row.verdict == "not_comparable" for row in result.verdicts
    )
    for number_, sentence in enumerate(view.verdicts[: 1 if refused else None]):
        console.print(Text(sentence, style="" if number_ else "bold"))
    for doubt in view.doubts:
        doubt_lines(doubt, console)


def _lines(table: ComparisonTable) -> list[str]:
    """Return header and rows with columns of one width; numbers to the right, words to the left."""
    whole = [table.header, *table.rows]
    widths = [max(cell_len(row[k]) for row in whole) for k in range(len(table.header))]
    last = len(widths) - 1

    def filled(row: Sequence[str], k: int) -> str:
        blank = " " * (widths[k] - cell_len(row[k]))
        return row[k] if k == last else blank + row[k]

    return ["  " + "   ".join(filled(row, k) for k in range(len(row))) for row in whole]


def comparison_markdown(result: Result) -> str:
    """Return the comparison as Markdown, fit for a pull request."""
    view = build_view(result)
    blocks: list[str] = []
    for banner in view.banners:
        name = BANNERS[banner.kind]
        lines = [f"> **{name}** {escaped(banner.text)}"]
        lines += [past_markdown(banner, old) for old in banner.was]
        blocks.append("\n>\n".join(lines))
    blocks += [f"**{escaped(sentence)}**" if not k else escaped(sentence)
               for k, sentence in enumerate(view.verdicts)]  # fmt: skip
    for table in tables(result):
        head = "| " + " | ".join(escaped(text) for text in table.header) + " |"
        rule = "|" + "|".join(" ---: " for _ in table.header[:-1]) + "| --- |"
        rows = ["| " + " | ".join(escaped(text) for text in row) + " |" for row in table.rows]
        blocks.append("\n".join([f"### {escaped(table.title)}", "", head, rule, *rows]))
    if view.doubts:
        blocks.append("\n".join(
            f"- **{doubt.severity}** `{doubt.code}` "
            + "; ".join(escaped(message) for message, _ in doubt.messages)
            for doubt in view.doubts
        ))  # fmt: skip
    return "\n\n".join(blocks) + "\n"

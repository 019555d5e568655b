"""What `concbench spec` shows: the answer, a table for each content, and what was accepted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from concbench.analyse.speculation import Speculation, SpeculationContent, SpeculationRow
from concbench.report.comparisontables import ComparisonTable, table_lines
from concbench.report.inert import inert
from concbench.report.markdown import escaped
from concbench.report.numbers import MISSING, estimate_text, ratio_estimate
from concbench.report.verdicts import WHY_LIMIT, metric_label

NO_ACCEPTANCE = "the server tells no acceptance, so what was compared is known by its content alone"
HEADER = ("N", "off", "on", "on ÷ off", "accepted", "a draft", "a step", "verdict")


def speculation_of(payload: Mapping[str, Any] | None) -> Speculation | None:
    """Return what a result's `payload.spec` holds, or None where it holds nothing."""
    return None if payload is None else msgspec.convert(payload, Speculation)


def speculation_lines(payload: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the answer first, then a table for each content, then what limits the comparison."""
    told = speculation_of(payload)
    if told is None:
        yield "nothing was measured on both sides"
        return
    yield told.sentence
    for content in told.contents:
        yield ""
        table = speculation_table(told, content)
        yield table.title
        yield from table_lines(table)
    yield ""
    yield from remarks(told)


def speculation_markdown(payload: Mapping[str, Any] | None) -> str:
    """Return the same as Markdown, fit for a pull request."""
    told = speculation_of(payload)
    if told is None:
        return "nothing was measured on both sides\n"
    blocks = [f"**{escaped(told.sentence)}**"]
    for content in told.contents:
        table = speculation_table(told, content)
        rows = [table.header, ("---",) * len(table.header), *table.rows]
        blocks.append(escaped(table.title))
        blocks.append("\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows))
    blocks += [escaped(line) for line in remarks(told)]
    return "\n\n".join(blocks) + "\n"


def _cell(text: str) -> str:
    return text if text == "---" else escaped(text)


def speculation_table(told: Speculation, content: SpeculationContent) -> ComparisonTable:
    """Return one content's levels as texts."""
    rows = [row for row in told.rows if row.content == content.content]
    metric = metric_label(rows[0].metric) if rows else "rate"
    return ComparisonTable(
        f"{inert(content.content, 40)}: {metric}, {inert(told.on, 40)} against "
        f"{inert(told.off, 40)}",
        HEADER,
        tuple(_texts(row) for row in rows),
    )


def _texts(row: SpeculationRow) -> tuple[str, ...]:
    return (
        f"{row.concurrency:,}",
        estimate_text(row.off),
        estimate_text(row.on),
        MISSING if row.ratio is None else ratio_estimate(row.ratio),
        MISSING if row.accepted_rate is None else f"{100 * row.accepted_rate:.0f} %",
        MISSING if row.accepted_len is None else f"{row.accepted_len:.2f}",
        MISSING if row.tokens_per_step is None else f"{row.tokens_per_step:.2f}",
        row.verdict + (f" ({inert(row.why, WHY_LIMIT)})" if row.why else ""),
    )


def remarks(told: Speculation) -> Sequence[str]:
    """Return where a gain becomes a loss, and at which acceptance all this was measured."""
    found: list[str] = []
    for one in told.contents:
        if one.stops_in is not None:
            low, high = one.stops_in
            found.append(
                f"{one.content}: pays at N = {low} and costs at {high}; it stops paying between"
            )
    if told.acceptance == "unknown":
        return [*found, NO_ACCEPTANCE]
    spans = [
        f"{one.content} {_span(one.accepted_len)}"
        for one in told.contents
        if one.accepted_len is not None
    ]
    found.append(
        f"tokens a draft yields, by the server's counters: {', '.join(spans)}; a gain holds at "
        "this acceptance alone"
    )
    varied = [one.content for one in told.contents if one.acceptance_varies]
    if varied:
        found.append(
            f"acceptance differs over N by more than 5 % for {', '.join(varied)}: levels there "
            "differ by more than their number of users"
        )
    return found


def _span(found: tuple[float, float]) -> str:
    low, high = found
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"

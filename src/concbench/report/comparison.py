"""A comparison on the terminal and as Markdown: a table for each metric, then what it comes to."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from concbench.report.build import build_view
from concbench.report.comparisontables import crossover_tables, table_lines, tables
from concbench.report.markdown import comparison_blocks, escaped, past_markdown
from concbench.report.terminal import BANNERS, doubt_lines, past_line
from concbench.result import Result


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
    for table in [*tables(result), *crossover_tables(result)]:
        console.print(Text(table.title, style="bold"))
        for line in table_lines(table):
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
    blocks += comparison_blocks(result)
    if view.doubts:
        blocks.append("\n".join(
            f"- **{doubt.severity}** `{doubt.code}` "
            + "; ".join(escaped(message) for message, _ in doubt.messages)
            for doubt in view.doubts
        ))  # fmt: skip
    return "\n\n".join(blocks) + "\n"

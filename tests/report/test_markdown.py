import re

from hypothesis import given
from hypothesis import strategies as st

from concbench.domain import Doubt
from concbench.report.build import build_view
from concbench.report.comparisontables import crossover_tables
from concbench.report.comparisontables import tables as comparison_tables
from concbench.report.markdown import escaped, to_markdown
from tests.report.conftest import HOSTILE, burst, comparison


def unescaped(text):
    return re.sub(r"\\(.)", r"\1", text)


def tables(text):
    """Read every table back: lists of rows of cells."""
    found, current = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("| "):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            current.append([unescaped(cell.strip()) for cell in cells])
        elif current:
            found.append([row for row in current if set("".join(row)) - set("-: ")])
            current = []
    return found


def test_the_table_reads_back():
    result = comparison()
    view = build_view(result)
    found = tables(to_markdown(result))
    compared = [*comparison_tables(result), *crossover_tables(result)]
    assert len(found) == len(view.series) + len(compared)
    for table, made in zip(found[len(view.series) :], compared, strict=True):
        assert table == [list(made.header), *map(list, made.rows)]
    for table, series in zip(found, view.series, strict=False):
        assert len(table) == 1 + len(series.table.rows)
        for row, line in zip(series.table.rows, table[1:], strict=True):
            assert line[0] == row.label
            for cell, text in zip(row.cells, line[1:], strict=True):
                assert text == f"{cell.text}{series.table.mark(cell)} {cell.spread}".rstrip()


def test_corrections_and_interruption_come_first():
    result = burst()
    result.interrupted = True
    result.corrections = [{"round": "r1", "why": "flags lost"}]
    text = to_markdown(result)
    assert text.startswith("> **CORRECTION** round r1 is retracted: flags lost")
    assert "> **INTERRUPTED**" in text.splitlines()[2]


def test_hostile_text_is_inert():
    result = burst(lane=HOSTILE)
    result.study = HOSTILE
    result.doubts = [Doubt(code="a`b", severity="fatal", message=HOSTILE, cell=HOSTILE)]
    text = to_markdown(result)
    outside = re.sub(r"(?s)```.*?```", "", text)
    assert not re.search(r"(?<!\\)<", outside)
    assert "\x1b" not in text
    assert len(text) < 12_000


def test_verdicts_and_commands_are_there():
    text = to_markdown(comparison())
    assert "nvfp4 is faster than gguf from N = 4" in text
    assert "concbench burst 'http://***@box:8000' --levels 1,2,4,8" in text
    assert "secret" not in text


@given(st.text())
def test_escaping_is_undone_by_reading(text):
    assert unescaped(escaped(text)).replace("\u200b", "") == text.replace("\u200b", "")

"""The points of a figure as a table and in words."""

from concbench.report.build import build_view
from concbench.report.figures import figures_of
from concbench.result import Steady
from tests.report.conftest import burst


def without_steady(result, *levels):
    for cell in result.cells:
        if cell.concurrency in levels:
            cell.client.steady_output_tok_per_s = None
            cell.steady = Steady(found=False, reason="more than the slots")
    return result


def figure(result, key="throughput"):
    return next(one for one in figures_of(build_view(result).series, result) if one.key == key)


def test_words_are_of_the_line_that_is_drawn():
    panel = figure(without_steady(burst(), 1, 2, 4, 8)).first
    assert panel.alternative == (
        "Throughput against concurrency. batch (classic) 54.2 tok/s at N = 1, 414 tok/s at N = 8."
    )


def test_words_go_on_where_only_a_later_line_does():
    panel = figure(without_steady(burst(), 8)).first
    assert "steady 57.10 ± 0.4 % tok/s at N = 1, 209.8 ± 0.4 % tok/s at N = 4" in panel.alternative
    assert "batch (classic) 54.2 tok/s at N = 1, 414 tok/s at N = 8" in panel.alternative
    whole = figure(burst()).first
    assert "batch" not in whole.alternative


def test_the_table_is_in_the_order_of_levels():
    panel = figure(without_steady(burst(), 2)).first
    assert [row[0] for row in panel.rows] == ["1", "2", "4", "8"]

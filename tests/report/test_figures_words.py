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
        "Throughput against concurrency. batch (classic) 54.2 [52.6, 55.9] tok/s at "
        "N = 1, 414 [402, 427] tok/s at N = 8."
    )


def test_words_go_on_where_only_a_later_line_does():
    panel = figure(without_steady(burst(), 8)).first
    assert "steady 57.10 ± 0.4 % tok/s at N = 1, 209.8 ± 0.4 % tok/s at N = 4" in panel.alternative
    assert (
        "batch (classic) 54.2 [52.6, 55.9] tok/s at N = 1, 414 [402, 427] tok/s at"
        in panel.alternative
    )
    whole = figure(burst()).first
    assert "batch" not in whole.alternative


def test_the_table_is_in_the_order_of_levels():
    panel = figure(without_steady(burst(), 2)).first
    assert [row[0] for row in panel.rows] == ["1", "2", "4", "8"]


def test_the_table_has_the_intervals_that_are_drawn():
    result = burst()
    speed = result.cells[3].client.per_request_tok_per_s
    speed.ci["mean"] = (speed.mean * 0.98, speed.mean * 1.02)
    steady, batch = figure(result).first.rows[3][1:]
    assert (steady, batch) == ("436.2 ± 0.4 %", "414 [402, 427]")
    assert figure(result, "per-user").first.rows[3][1].endswith("± 2.0 %")
    bars = figure(result, "per-user").first.data[0]["error_y"]["array"]
    assert bars[:3] == [0.0, 0.0, 0.0]
    assert bars[3] > 0
    p50 = figure(result, "ttft").first.rows[3][1]
    assert "[" in p50
    ranged = figure(burst(rounds=2)).first.rows[3]
    assert ranged[2] == "414 (402–427)"

"""Figures of single requests: what they tell is what the tables tell."""

import pytest

from concbench.report.build import build_view
from concbench.report.figures import figures_of
from tests.report.synthetic import Engine
from tests.report.test_figures import judged


@pytest.fixture(scope="module")
def found():
    result, exhibits = judged([Engine("a")], (256,), (1, 48), rounds=4)
    view = build_view(result)
    return view, {figure.key: figure for figure in figures_of(view.series, result, exhibits)}


def test_the_numbers_of_a_distribution_are_those_of_the_table(found):
    view, figures = found
    table = view.series[0].table
    panel = figures["e2e-spread"].first
    at = {name: place for place, name in enumerate(panel.header)}
    shown = panel.csv.splitlines()[2].split(",")
    for share, key in (("50 % within, ms", "e2e_p50"), ("95 % within, ms", "e2e_p95")):
        cell = table.column(key)[1]
        value = cell.number * (1000 if cell.unit == "s" else 1)
        assert float(shown[at[share]]) == pytest.approx(value, abs=1e-3)


def test_gaps_say_how_coarse_they_are(found):
    assert "bins of 6 %" in found[1]["gap-spread"].first.note
    assert found[1]["ttft-spread"].first.note == ""


def test_one_request_is_one(found):
    words = [panel.alternative for panel in found[1]["timeline"].panels]
    assert any("N = 1: 1 request in" in text for text in words)
    assert any("N = 48: 48 requests in" in text for text in words)

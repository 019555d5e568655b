from __future__ import annotations

import pytest

from concbench.report.headline import headline
from tests.report.conftest import cell, estimate


@pytest.mark.parametrize(("told", "point"), [("client", 210.0), ("server", 150.0)])
def test_the_cell_says_whose_figure_it_is(told, point):
    one = cell(4)
    one.server.output_tok_per_s = estimate(150.0)
    one.client.steady_output_tok_per_s = estimate(210.0)
    one.steady.headline = told
    found = headline(one, [])
    assert found.estimate is not None
    assert found.estimate.point == point
    assert (found.note is None) is (told == "client")

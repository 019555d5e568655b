"""A matrix in one sentence."""

import pytest

from concbench.analyse.matrix_against import Caveats
from concbench.analyse.matrix_tables import matrix
from concbench.domain import to_builtins
from concbench.report.build import build_view
from concbench.report.matrix_sentence import matrix_sentence
from tests.analyse.test_matrix_against import lanes
from tests.analyse.test_matrix_tables import cell, t_estimate
from tests.report.conftest import HOSTILE
from tests.report.test_matrix import swept


def told(cells, **caveats):
    found = matrix(cells, {}, caveats=Caveats(**caveats))
    return matrix_sentence({"matrix": to_builtins(found)})


def test_two_lanes_are_set_against_each_other_and_the_highest_is_named():
    assert told(lanes()) == (
        "lanes b against a: aggregate +50.0 %, beyond the noise in 3 of 3 cells; "
        "the highest aggregate is 60.00 ± 0.4 % tok/s (b, context short (50), N = 4)"
    )


def test_what_forbids_to_read_it_is_in_the_sentence():
    cells = lanes()
    text = told(
        cells,
        fatal={cells[5].cell: ["client_bound"]},
        drift_pct={("a", None): 40.0},
        unlike=lambda a, b: ["quantization"],
    )
    assert text == (
        "lanes b against a: aggregate +50.0 %, beyond the noise in 0 of 2 cells, drifted in 2 "
        "(unlike: quantization); the highest aggregate is 40.00 ± 0.4 % tok/s (a, context short "
        "(50), N = 4); of 6 cells 1 left out for a fatal doubt"
    )


def test_of_three_lanes_only_the_highest_is_named_with_those_that_may_be_as_high():
    cells = [cell(lane, 50, 2, rate) for lane, rate in {"a": 10.0, "b": 20.0, "c": 20.01}.items()]
    assert told(cells) == (
        "the highest aggregate is 20.01 ± 0.4 % tok/s (c, context short (50), N = 2), not told "
        "apart from b"
    )


def test_cells_that_did_not_end_well_are_counted():
    nothing = cell("a", 100_000, 1, 1.0, failed=4, outcome="context_rejected")
    text = told([cell("a", 50, 1, 10.0), nothing])
    assert text.endswith("; of 2 cells 1 context rejected")
    assert told([nothing]).startswith("no cell has an aggregate that may be used; of 1 cells")


@pytest.mark.parametrize("payload", [None, {}, {"matrix": {}}])
def test_no_matrix_no_sentence(payload):
    assert matrix_sentence(payload) == ""


def test_hostile_names_are_inert_and_the_page_begins_with_it():
    cells = [cell("a", 50, 1, 10.0), cell(HOSTILE, 50, 1, 20.0, decode=t_estimate(20.0))]
    assert not set(told(cells)) & set("\n\r\x1b\u202e")
    assert build_view(swept()).sentence.startswith("links bond against 5g: aggregate +20.0 %")

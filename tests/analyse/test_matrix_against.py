"""What may be read from two cells side by side, and what forbids it."""

import pytest

from concbench.analyse.matrix_against import Caveats, reading
from concbench.analyse.matrix_model import Change
from concbench.analyse.matrix_tables import matrix
from tests.analyse.test_matrix_tables import cell, facts, t_estimate


def changed(pct, exceeds=True):
    return Change(relative_pct=pct, exceeds_noise=exceeds, spreads_overlap=None, basis="x")


@pytest.mark.parametrize(
    ("pct", "exceeds", "drift_pct", "read"),
    [
        (10.0, True, None, "beyond"),
        (10.0, True, 4.0, "beyond"),
        (10.0, True, 6.0, "drifted"),
        (-10.0, True, 6.0, "drifted"),
        (10.0, True, -6.0, "drifted"),
        (1.0, False, 6.0, "within"),
        (10.0, None, 6.0, "unknown"),
    ],
)
def test_a_change_is_told_only_where_the_control_moved_by_less_than_half(
    pct, exceeds, drift_pct, read
):
    assert reading(changed(pct, exceeds), (), drift_pct) == read
    assert reading(changed(pct, exceeds), ["stalled (a)"], drift_pct) == "invalid"


def lanes(rate_b=15.0):
    return [cell("a", 50, n, 10.0 * n, decode=t_estimate(10.0)) for n in (1, 2, 4)] + [
        cell("b", 50, n, rate_b * n, decode=t_estimate(rate_b)) for n in (1, 2, 4)
    ]


def test_nothing_is_made_of_a_cell_with_a_fatal_doubt():
    cells = lanes()
    found = matrix(cells, {}, caveats=Caveats(fatal={cells[5].cell: ["client_bound"]}))
    last = found.concurrency[5]
    assert (last.fatal, last.aggregate_tok_per_s.point) == (["client_bound"], 60.0)
    assert [(row.peak_concurrency, row.peak_tok_per_s) for row in found.gain] == [
        (4, 40.0),
        (2, 30.0),
    ]
    readings = {row.concurrency: row for row in found.against if row.metric.startswith("aggregate")}
    assert [readings[n].reading for n in (1, 2, 4)] == ["beyond", "beyond", "invalid"]
    assert readings[4].fatal == ["client_bound (b)"]


@pytest.mark.parametrize("doubted", [0, 3])
def test_one_stream_is_not_set_against_one_with_a_fatal_doubt(doubted):
    cells = lanes()
    clean = matrix(cells, {}).single_stream
    assert clean[1].decode_change is not None
    found = matrix(cells, {}, caveats=Caveats(fatal={cells[doubted].cell: ["stalled"]}))
    assert [row.fatal for row in found.single_stream] == [
        ["stalled"] if place == doubted // 3 else [] for place in (0, 1)
    ]
    row = found.single_stream[1]
    assert (row.prefill_change, row.decode_change, row.ttft_change) == (None, None, None)
    assert [row.reading for row in found.against if row.concurrency == 1] == ["invalid"] * 3
    # Without a sound N = 1 there is nothing to scale from.
    assert len(found.gain) == 1
    scaled = [row.scaling for row in found.concurrency if row.lane == "ab"[doubted // 3]]
    assert scaled == [None] * 3


def test_no_ratio_is_taken_against_a_doubted_cell_inside_the_pool():
    cells = [cell("a", 1000, n, 10.0) for n in (1, 2, 4, 6)]
    known = {"a": facts(pool=4 * 1128)}
    assert matrix(cells, known).concurrency[3].relative_to == 4
    found = matrix(cells, known, caveats=Caveats(fatal={cells[2].cell: ["stalled"]}))
    assert found.concurrency[3].relative_to == 2


def test_the_control_that_moved_more_of_both_lanes_decides():
    moved = {("a", None): -1.0, ("b", None): 30.0}
    found = matrix(lanes(), {}, caveats=Caveats(drift_pct=moved))
    rates = [row for row in found.against if row.metric == "aggregate_tok_per_s"]
    assert {(row.reading, row.drift_pct) for row in rates} == {("drifted", 30.0)}
    calm = matrix(lanes(), {}, caveats=Caveats(drift_pct={("a", None): -1.0}))
    assert {row.drift_pct for row in calm.against} == {-1.0}
    assert "drifted" not in {row.reading for row in calm.against}


def test_a_repeated_flag_value_is_the_drift_and_not_excused_by_it():
    names = ["v[g=1]", "v[g=2]", "v[g=1]~control"]
    rates = [10.0, 13.0, 12.0]
    cells = [cell(name, 50, 1, rate) for name, rate in zip(names, rates, strict=True)]
    caveats = Caveats(
        drift_pct=dict.fromkeys(((name, None) for name in names), 50.0),
        unlike=lambda a, b: ["slots"] if "2" in a + b else [],
    )
    found = matrix(cells, {}, lanes=names, caveats=caveats)
    read = {row.axis: row.reading for row in found.against if row.metric == "aggregate_tok_per_s"}
    assert read == {"flag": "drifted", "control": "beyond"}
    assert [(one.axis, one.a, one.b, one.names) for one in found.unlike] == [
        ("flag", "v[g=1]", "v[g=2]", ["slots"])
    ]

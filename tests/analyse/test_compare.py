import math

import pytest

from concbench.analyse.compare import doubts_of_verdicts, measured_of, own_error_pct
from concbench.analyse.runvalues import STEADY
from concbench.domain import Summary
from tests.analyse.test_verdict import one, spread
from tests.report.conftest import cell


def test_the_instruments_own_error():
    made = cell(4)
    late = made.instrument.late_after_stamp_ms.p99
    # 240 steps: 0.42 % at the edges; two latenesses over 4.2 s.
    assert own_error_pct(made, STEADY) == pytest.approx(100 / 240 + 200 * late / 4200)
    assert own_error_pct(made, "ttft_ms.p50") == pytest.approx(
        100 * late / made.client.ttft_ms.mean
    )
    made.steady.steps = None
    assert 0 < own_error_pct(made, STEADY) < 0.1
    made.instrument.late_after_stamp_ms = Summary(n=0)
    assert own_error_pct(made, STEADY) == 0


def test_what_fairness_depends_on():
    made = cell(4)
    made.tokens.prompt, made.tokens.cached = 1000, 250
    made.server.acceptance = {"mean_len": 2.5, "rate": 0.5, "per_position": []}
    found = measured_of(made, ())
    assert (found.hit_rate, found.acceptance_len) == (0.25, 2.5)
    assert found.output_tok_median is None


def test_a_drift_is_fatal_for_a_rate_alone():
    row = one(spread(2, 0.01), controls=[100, 100, 110, 110])
    (found,) = doubts_of_verdicts([row])
    assert (found.code, found.severity, found.cell) == ("drifted", "fatal", row.cell_b)
    row.metric = "ttft_ms.p50"
    assert doubts_of_verdicts([row]) == []


def test_doubts_are_told_once():
    rows = [one(spread(1.5, 0.01), starts_a=1) for _ in range(3)]
    assert [found.code for found in doubts_of_verdicts(rows)] == ["provisional"]
    pairs = [(100, 100 * math.exp(x)) for x in (0, 0.001, 0.4, 0.401, 0.399)]
    codes = [found.code for found in doubts_of_verdicts([one(pairs)])]
    assert codes == ["bimodal"]


def test_two_states_are_filed_under_the_side_that_has_them():
    steady = [100.0, 100.5, 101.0, 100.2, 100.1, 100.4]
    states = [63.0, 94.0, 63.2, 94.1, 63.1, 94.2]
    for pairs, of_a in ((zip(states, steady, strict=True), True),
                        (zip(steady, states, strict=True), False)):  # fmt: skip
        row = one(list(pairs))
        (found,) = [each for each in doubts_of_verdicts([row]) if each.code == "bimodal"]
        assert found.cell == (row.cell_a if of_a else row.cell_b)
        name = row.a if of_a else row.b
        assert f"{name} runs fall in two groups, 3 near 63.1 and 3 near 94.1. A" in found.message
    both = one(list(zip(states, reversed(states), strict=True)))
    assert [each.cell for each in doubts_of_verdicts([both])] == [both.cell_a, both.cell_b]
    outlier = one([(129.0, 20.6), *[(20.7, 20.6)] * 5])
    assert doubts_of_verdicts([outlier]) == []

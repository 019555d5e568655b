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

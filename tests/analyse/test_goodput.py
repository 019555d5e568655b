from __future__ import annotations

import pytest

from concbench.analyse.cell import cell_result
from concbench.analyse.goodput import failed_slos
from concbench.analyse.streams import streams_of
from concbench.plan.levels import parse_slo
from tests.analyse.simulate import MS, Reply, S, as_round, steady_stream


def missed(reply: Reply, text: str) -> list[str]:
    return failed_slos(streams_of(as_round([reply]))[0], parse_slo(text), streaming=True)


def test_each_request_is_held_to_the_limit():
    reply = steady_stream(300 * MS, 20 * MS, 100)
    assert missed(reply, "ttft_p95=300ms,tpot_p95=20ms,e2e_p99=2.28s,user_tok_per_s=50") == []
    assert missed(reply, "ttft_p95=299ms,tpot_p95=20ms") == ["ttft_p95"]
    assert missed(reply, "user_tok_per_s=51") == ["user_tok_per_s"]
    assert missed(reply, "failed=1%") == []


def test_a_gap_is_judged_by_the_quantile_asked_for():
    times = [k * 20 * MS for k in range(100)]
    late = Reply(times=[*times, times[-1] + S])
    assert missed(late, "icl_p95=20ms") == []
    assert missed(late, "icl_p99=20ms") == []
    assert missed(Reply(times=[0, 20 * MS, S]), "icl_p50=20ms,icl_p95=20ms") == ["icl_p95"]


def test_what_was_not_measured_passes_no_gate():
    """D05: a TPOT that is undefined must not pass an upper bound."""
    assert missed(Reply(times=[5 * MS]), "tpot_p95=1s,ttft_p95=1s") == ["tpot_p95"]
    failed = steady_stream(0, MS, 20, outcome="failed", extra={"error": "timeout"})
    assert missed(failed, "ttft_p95=1s,failed=1%") == ["ttft_p95", "failed"]
    assert missed(steady_stream(0, 20 * MS, 8), "tpot_p95=20ms") == []


def test_goodput_of_a_burst_and_of_a_loop():
    quick = [steady_stream(100 * MS, 20 * MS, 96) for _ in range(3)]
    slow = steady_stream(900 * MS, 20 * MS, 56)
    result, _ = cell_result([as_round([*quick, slow])] * 3, slos=parse_slo("ttft_p95=500ms"))
    found = result.goodput
    assert found is not None
    assert found["requests_per_s"].point == pytest.approx(3 / 2)
    assert (found["attainment_pct"], found["requests"]) == (75, 12)
    assert found["missed"] == {"ttft_p95": 3}
    loop = [
        steady_stream(
            k * S + w * 10 * MS + 100 * MS, 9 * MS, 101, sent=k * S + w * 10 * MS, worker=w
        )
        for k in range(30)
        for w in (1, 2)
    ]
    made = as_round(loop, arrival="closed", concurrency=2)
    result, _ = cell_result([made], slos=parse_slo("ttft_p95=500ms"))
    assert result.goodput["requests_per_s"].point == pytest.approx(2, rel=0.03)
    assert cell_result([made])[0].goodput is None
    nothing = cell_result([as_round([], concurrency=1)], slos=parse_slo("ttft_p95=1s"))[0]
    assert nothing.goodput is None

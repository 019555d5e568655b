"""What `rate` adds to a result, on rounds that are made up."""

from __future__ import annotations

from typing import Any

import pytest

from concbench.analyse.study import StudyFacts, judge
from concbench.domain import Cell, Events, RequestRecord, Round, RoundInstrument, Workload
from concbench.measure.payload import rate_payload
from concbench.plan.levels import parse_slo
from concbench.result import Result

MS = 1_000_000
N = 200


def a_round(ttft_ms: list[float], *, failed: int = 0) -> Round:
    """A request each 50 ms; token events at TTFT and then every 10 ms, 20 of them."""
    events = Events()
    records = []
    for index, wait_ms in enumerate(ttft_ms):
        sent = index * 50 * MS
        ok = index >= failed
        times = [sent + int((wait_ms + 10 * k) * MS) for k in range(20)] if ok else []
        for read, at in enumerate(times):
            events.request.append(index)
            events.read.append(read)
            events.kernel_ns.append(at)
            events.user_ns.append(at)
            events.kind.append(0)
            events.tokens.append(1.0)
        records.append(
            RequestRecord(
                index=index,
                worker=index % 8,
                due_ns=sent,
                sent_ns=sent,
                outcome="ok" if ok else "failed",
                error=None if ok else "http_500",
                end_ns=times[-1] if ok else sent + MS,
                output_tok=len(times),
                events=len(times),
                asked_output_tok=20,
            )
        )
    return Round(
        round_id="r",
        cell=Cell(cell="c", lane="l", concurrency=0, context_tok=50, rate_rps=20.0),
        index=0,
        phase="measured",
        workload=Workload(prompt_tokens=50, output_tokens=20, seed=0, arrival="constant"),
        began_utc="2026-01-01T00:00:00Z",
        start_ns=0,
        end_ns=len(ttft_ms) * 50 * MS + 1000 * MS,
        requests=records,
        events=events,
        instrument=RoundInstrument(stamp="kernel"),
    )


def judged(rounds: list[Round], slo: str = "") -> Result:
    facts = StudyFacts(
        tool_version="0",
        command="rate",
        study=None,
        began_utc="2026-01-01T00:00:00Z",
        machine={},
        targets={},
        slos=parse_slo(slo) if slo else (),
    )
    return judge(rounds, facts)


def goodput(rounds: list[Round], slo: str) -> dict[str, Any]:
    return dict(rate_payload(judged(rounds, slo), rounds, slo)["rate"][0])


def test_goodput_counts_requests_that_met_every_objective() -> None:
    slow_every_fourth = [500.0 if k % 4 == 0 else 20.0 for k in range(N)]
    found = goodput([a_round(slow_every_fourth)] * 3, "ttft_p95=100ms")
    assert found["goodput_rps"]["point"] == pytest.approx(15.0, rel=0.03)
    assert found["good_pct"] == pytest.approx(75.0, abs=1.5)


def test_every_objective_counts_and_a_failed_request_is_never_good() -> None:
    rounds = [a_round([20.0] * N, failed=N)]
    assert goodput(rounds, "ttft=1s")["good_pct"] == 0
    fine = [a_round([20.0] * N)]
    assert goodput(fine, "user_tok_per_s=99")["good_pct"] == 100
    assert goodput(fine, "user_tok_per_s=101")["good_pct"] == 0
    assert goodput(fine, "ttft=1s,e2e=100ms")["good_pct"] == 0
    assert goodput(fine, "icl=11ms,failed=1%")["good_pct"] == 100


def test_a_round_of_one_arrival_has_no_rate_and_no_goodput() -> None:
    one, whole = a_round([20.0]), a_round([20.0] * N)
    assert judged([one], "ttft=1s").cells[0].goodput is None
    both, alone = (judged(rounds, "ttft=1s").cells[0].goodput for rounds in ([one, whole], [whole]))
    assert both is not None
    assert alone is not None
    assert both["requests"] == alone["requests"]
    assert both["requests_per_s"] == alone["requests_per_s"]


def test_the_sent_rate_stands_beside_the_asked_one() -> None:
    rounds = [a_round([20.0] * N), a_round([30.0] * N)]
    result = judged(rounds)
    payload = rate_payload(result, rounds, "ttft_p95=25ms,failed=1%,user_tok_per_s=50")
    entry = payload["rate"][0]
    assert entry["asked_rps"] == 20.0
    assert entry["due_rps"] == pytest.approx(20.0)
    assert entry["sent_rps"] == pytest.approx(20.0)
    assert entry["connections_max"] == 8
    met = {slo["slo"]: slo["met"] for slo in entry["slo"]}
    assert met == {"ttft_p95": False, "failed": True, "user_tok_per_s": True}
    assert "slo" not in rate_payload(result, rounds, None)["rate"][0]

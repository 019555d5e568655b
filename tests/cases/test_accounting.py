"""Cases A: what is counted into throughput, and over which time."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from concbench.analyse.cell import cell_result
from concbench.analyse.evidence import start_wave
from concbench.analyse.streams import streams_of
from concbench.analyse.windows import tokens_between
from concbench.plan.schedule import constant
from tests.analyse.simulate import MS, Reply, S, as_round, steady_stream
from tests.cases.play import DONE, Bench, Line, delta, error_page, playing, stream


def test_a01_work_in_flight_at_the_deadline() -> None:
    # 4 streams of 10 tok/s and 80-token jobs, cut at 10 s with 20 tokens in flight each.
    replies = []
    for worker in range(1, 5):
        replies.append(Reply([k * 100 * MS for k in range(1, 81)], worker=worker))
        later = [8 * S + k * 100 * MS for k in range(1, 21)]
        replies.append(Reply(later, sent=8 * S, end=10 * S, worker=worker, outcome="incomplete"))
    round_ = as_round(replies, arrival="closed", concurrency=4)
    assert tokens_between(streams_of(round_), 0, 10 * S)[0] / 10 == 40
    result, doubts = cell_result([round_])
    assert (result.requests.ok, result.requests.incomplete) == (4, 4)
    assert result.requests.errors == {}
    assert result.ledger.received == 400
    assert "requests_failed" not in {doubt.code for doubt in doubts}


def test_a02_ramp_and_drain_are_not_the_steady_rate() -> None:
    # Ten streams of 10 tok/s, one more each second for 10 s, gone again one by one.
    replies = [
        Reply([k * S + 500 * MS + j * 100 * MS for j in range(300)], worker=k + 1)
        for k in range(10)
    ]
    result, _ = cell_result([as_round(replies)])
    steady, whole = result.client.steady_output_tok_per_s, result.client.output_tok_per_s
    assert steady is not None
    assert whole is not None
    assert steady.point == pytest.approx(100, rel=0.01)
    assert whole.point == pytest.approx(75, rel=0.03)
    assert result.steady.start_s == pytest.approx(9.5)
    assert result.steady.end_s == pytest.approx(30.4)
    short, doubts = cell_result([as_round([steady_stream(0, 100 * MS, 20)])])
    assert not short.steady.found
    assert short.steady.reason
    assert "no_steady_state" in {doubt.code for doubt in doubts}


def test_a03_a_cold_start_is_no_part_of_the_figures(bench: Bench) -> None:
    def script(number: int) -> list[Line]:
        first = 0.6 if number < 2 else 0.03
        return stream([first + 0.005 * k for k in range(20)])

    words = ["--levels", "2", "--output-tokens", "20"]
    with playing(script) as play:
        warm = bench("burst", play.url, *words, "--rounds", "1")
    assert [each.phase for each in warm.rounds(None)] == ["warmup", "measured"]
    assert warm.client["ttft_ms"]["n"] == 2
    assert warm.client["ttft_ms"]["max"] < 500
    # Without that wave the cold round is met in the figures, thrown out, and kept on record.
    with playing(script) as play:
        cold = bench("burst", play.url, *words, "--rounds", "3", "--warmup", "0")
    phases = [each.phase for each in cold.rounds(None)]
    assert phases.count("discarded") == 2
    assert phases.count("measured") == 3
    assert cold.client["ttft_ms"]["max"] < 500
    rounds = [
        as_round([steady_stream(wait * MS, 20 * MS, 80)], index=k)
        for k, wait in enumerate((42_000, 200, 210, 190))
    ]
    _, doubts = cell_result(rounds)
    found = next(doubt for doubt in doubts if doubt.code == "cold_first_request")
    assert found.evidence["first_ttft_ms"] == 42_000


def test_a04_the_starting_burst_is_apart() -> None:
    def loop(count: int) -> list[Reply]:
        first = [steady_stream(2 * S, 10 * MS, 20, sent=0, worker=w) for w in range(1, 11)]
        later = [
            steady_stream(k * S + 200 * MS, 10 * MS, 20, sent=k * S, worker=w)
            for k in range(3, 2 + count // 10)
            for w in range(1, 11)
        ]
        return first + later

    small = as_round(loop(10), arrival="closed", concurrency=10)
    large = as_round(loop(100), arrival="closed", concurrency=10)
    assert len(large.requests) == 100
    assert cell_result([small])[0].client.ttft_ms.mean == pytest.approx(2000)
    assert cell_result([large])[0].client.ttft_ms.mean == pytest.approx(200)
    assert cell_result([large])[0].client.ttft_ms.n == 90
    for round_ in (small, large):
        assert start_wave(round_).ttft_ms.mean() == pytest.approx(2000)


def test_a06_no_throughput_from_nothing(bench: Bench) -> None:
    with playing(lambda number: [(0.0, delta("", role="assistant")), (0.0, DONE)]) as play:
        run = bench.burst(play.url, n=100, rounds=3, out=1000)
    assert run.code == 4
    assert run.cell["requests"]["failed"] == run.cell["requests"]["sent"] == 300
    assert run.cell["requests"]["errors"] == {"empty_response": 300}
    assert run.cell["tokens"]["output"] == 0
    assert run.cell["ledger"]["received"] == 0
    assert run.client["output_tok_per_s"] is None
    assert run.client["ttft_ms"]["n"] == 0
    assert run.doubts["empty_responses"]["severity"] == "fatal"


def test_a07_a_503_is_seen_and_not_sent_again(bench: Bench) -> None:
    def overloaded(sock: object, number: int) -> bool:
        if number % 4 == 3:
            error_page(sock, 503, "too many requests in the queue")  # type: ignore[arg-type]
        return number % 4 == 3

    times = [0.1 + 0.005 * k for k in range(10)]
    with playing(lambda number: stream(times), answer=overloaded) as play:
        run = bench.burst(play.url, n=16, out=10)
    assert len(play.bodies) == run.cell["requests"]["sent"] == 16
    assert run.cell["requests"]["ok"] == 12
    assert run.cell["requests"]["errors"] == {"http_503": 4}
    refused = [record for record in run.requests() if record.outcome == "failed"]
    assert all(r.http_status == 503 and r.end_ns and r.sent_ns for r in refused)
    assert run.client["e2e_ms"]["n"] == 12
    assert run.client["e2e_ms"]["min"] >= 100


def test_a08_failures_are_in_no_latency(bench: Bench) -> None:
    def broken(sock: object, number: int) -> bool:
        if number == 1:
            error_page(sock, 500, "boom")  # type: ignore[arg-type]
        return number == 1

    times = [0.05 + 0.0025 * k for k in range(21)]
    with playing(lambda number: stream(times), answer=broken) as play:
        run = bench.burst(play.url, n=3, out=21)
    assert run.client["e2e_ms"]["n"] == 2
    assert run.client["e2e_ms"]["p50"] >= 99
    assert run.client["e2e_ms"]["min"] >= 99
    counts = run.cell["requests"]
    assert (counts["sent"], counts["ok"], counts["failed"]) == (3, 2, 1)
    assert run.cell["tokens"]["output"] == 42


def test_a10_nothing_succeeded(bench: Bench) -> None:
    said = "CUDA out of memory. Tried to allocate 2.00 GiB"

    def broken(sock: object, _number: int) -> bool:
        error_page(sock, 500, said)  # type: ignore[arg-type]
        return True

    with playing(lambda number: [], answer=broken) as play:
        run = bench.burst(play.url, n=4, rounds=2, out=20)
    assert run.code == 4
    counts = run.cell["requests"]
    assert (counts["sent"], counts["ok"], counts["failed"]) == (8, 0, 8)
    assert run.client["output_tok_per_s"] is None
    assert run.client["steady_output_tok_per_s"] is None
    for name in ("ttft_ms", "e2e_ms", "tpot_ms", "per_request_tok_per_s"):
        assert run.client[name]["n"] == 0
        assert run.client[name]["p50"] is None
    assert said in run.doubts["requests_failed"]["evidence"]["detail"]
    for name in ("result.json", "report.html", "study.json"):
        assert (run.folder / name).stat().st_size > 0
    stored = json.loads((run.folder / "result.json").read_bytes())
    assert stored["cells"][0]["requests"]["failed"] == 8


def test_a12_an_open_loop_does_not_drift(bench: Bench) -> None:
    due = constant(200, n=36_001)
    assert due[-1] == 180 * S
    # Asked 200/s, sent 183.52/s.
    late = [
        steady_stream(
            int(k / 183.52 * S) + MS,
            MS,
            20,
            sent=int(k / 183.52 * S),
            due=int(k / 200 * S),
            worker=k + 1,
        )
        for k in range(400)
    ]
    _, doubts = cell_result([as_round(late, arrival="constant", rate_rps=200)])
    kept = next(doubt for doubt in doubts if doubt.code == "rate_not_kept")
    assert kept.evidence["kept_pct"] == pytest.approx(91.76, rel=0.01)

    with playing(lambda number: stream([0.001, 0.002])) as play:
        words = ["--rps", "40", "--duration", "1", "--rounds", "1", "--warmup", "0"]
        run = bench("rate", play.url, *words, "--output-tokens", "2")
    records = sorted(run.requests(), key=lambda record: record.due_ns)
    gaps = [b.due_ns - a.due_ns for a, b in pairwise(records)]
    assert all(abs(gap - 25 * MS) <= 1 for gap in gaps)
    assert len(gaps) == 39

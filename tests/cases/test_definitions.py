"""Cases D: what TTFT, ITL, TPOT and rates are counted from and divided by."""

from __future__ import annotations

import pytest

from concbench.analyse.cell import cell_result
from concbench.analyse.gate import gate, passes
from concbench.cli.main import main
from tests.analyse.simulate import MS, as_round, steady_stream
from tests.analyse.test_gate import one
from tests.cases.play import DONE, Bench, Line, delta, playing, stream, usage, within
from tests.servers import reference_server


def test_d01_one_output_token(bench: Bench) -> None:
    with playing(lambda number: stream([0.05])) as play:
        run = bench.burst(play.url, n=2, out=1)
    client = run.client
    assert run.cell["requests"]["ok"] == 2
    assert client["tpot_ms"]["n"] == client["itl_ms"]["n"] == 0
    assert client["tpot_ms"]["mean"] is None
    assert client["ttft_ms"]["n"] == client["e2e_ms"]["n"] == 2
    assert client["decode_tok_per_s"] is None


def test_d02_several_tokens_in_the_first_chunk(bench: Bench) -> None:
    def script(number: int) -> list[Line]:
        first = usage(5, choices=[{"index": 0, "delta": {"content": " five."}}])
        if number == 1:
            whole = usage(20, choices=[{"index": 0, "delta": {"content": " all at once"}}])
            return [(0.3, whole), (0.3, delta("", "length")), (0.3, DONE)]
        rest = [(0.05 + 0.02 * k, delta(f" w{k}.")) for k in range(1, 16)]
        total = 20 if number == 0 else 27
        end = rest[-1][0]
        return [(0.05, first), *rest, (end, delta("", "length")), (end, usage(total)), (end, DONE)]

    with playing(script) as play:
        run = bench.burst(play.url, n=3, out=20)
    by_number = {record.index: record for record in run.requests()}
    assert {r.first_event_tok for r in by_number.values()} == {5.0, 20.0}
    # Two have a TPOT: a total that does not fit the chunks is used and named, not dropped.
    client = run.client
    assert client["tpot_ms"]["n"] == 2
    assert within(client["tpot_ms"]["max"] * 15, play.gap_ms(0, b" five.", b" w15."))
    assert within(client["tpot_ms"]["min"] * 22, play.gap_ms(2, b" five.", b" w15."))
    assert "chunks_not_tokens" in run.doubts


def test_d03_ttft_is_no_gap(bench: Bench) -> None:
    with playing(lambda number: stream([0.4 + 0.02 * k for k in range(10)])) as play:
        run = bench.burst(play.url, out=10)
    client = run.client
    assert client["itl_ms"]["n"] == 9
    assert within(client["itl_ms"]["mean"] * 9, play.gap_ms(0, b" w0", b" w9"))


def test_d04_no_first_token_is_no_time(bench: Bench) -> None:
    def script(number: int) -> list[Line]:
        return [(0.02, delta("", role="assistant"))] if number == 1 else stream([0.05, 0.06])

    with playing(script, cut=lambda number: number == 1) as play:
        run = bench.burst(play.url, n=3, out=2)
    assert run.cell["requests"]["errors"] == {"truncated": 1}
    assert run.client["ttft_ms"]["n"] == 2
    for record in run.requests():
        if record.outcome == "ok":
            assert record.sent_ns is not None
            assert record.first_token_ns is not None
            assert record.last_token_ns is not None
            assert record.sent_ns <= record.first_token_ns <= record.last_token_ns
        else:
            assert record.first_token_ns is None
    assert 0 <= run.client["ttft_ms"]["min"] <= run.client["e2e_ms"]["max"] < 60_000


def test_d05_unmeasured_is_null_and_never_zero(bench: Bench) -> None:
    whole = usage(20, choices=[{"index": 0, "delta": {"content": "all"}}])
    lines = [(0.05, whole), (0.05, delta("", "length")), (0.05, DONE)]
    with playing(lambda number: lines) as play:
        run = bench.burst(play.url, n=2, out=20)
    tpot = run.client["tpot_ms"]
    assert tpot["n"] == 0
    assert all(tpot[key] is None for key in ("mean", "min", "max", "p50", "p95"))
    assert run.cell["requests"]["ok"] == 2


def test_d07_the_clients_own_queue(bench: Bench) -> None:
    # 500 ms of service, one at a time, 10 requests/s, 8 requests.
    replies = [
        steady_stream(
            k * 500 * MS + 20 * MS, 20 * MS, 25, sent=k * 500 * MS, due=k * 100 * MS, worker=k + 1
        )
        for k in range(8)
    ]
    result, doubts = cell_result([as_round(replies, arrival="constant", rate_rps=10)])
    client = result.client
    assert client.e2e_ms.mean == pytest.approx(500)
    assert client.e2e_from_due_ms.mean == pytest.approx(500 + 3.5 * 400)
    assert client.e2e_from_due_ms.max == pytest.approx(3300)
    assert client.send_delay_ms.max == pytest.approx(2800)
    assert "late_sends" in {doubt.code for doubt in doubts}
    assert main(["report", "--definitions"]) == 0
    said = " ".join(bench.capsys.readouterr().out.split())
    assert "first token event − sent" in said
    assert "from due" in said or "from its due time" in said or "from_due" in said


def test_d08_no_ttft_without_streaming(bench: Bench) -> None:
    with reference_server("--ttft-ms", "100", "--itl-ms", "2") as url:
        run = bench.burst(url, "--no-stream", n=2, out=20)
    client = run.client
    assert run.cell["requests"]["ok"] == 2
    for name in ("ttft_ms", "ttfo_ms", "icl_ms", "itl_ms", "tpot_ms"):
        assert client[name]["n"] == 0
        assert client[name]["mean"] is None
    assert client["e2e_ms"]["n"] == 2
    assert client["e2e_ms"]["min"] >= 100


def test_d10_decode_and_end_to_end_rates(bench: Bench) -> None:
    def script(number: int) -> list[Line]:
        think = [(0.3 + 0.01 * k, delta(None, reasoning=f"t{k}.")) for k in range(20)]
        say = [(0.5 + 0.01 * k, delta(f"w{k}.")) for k in range(20)]
        return [*think, *say, (0.7, delta("", "length")), (0.7, usage(40)), (0.7, DONE)]

    with playing(script) as play:
        run = bench.burst(play.url, out=40)
    decode = run.client["decode_tok_per_s"]["point"]
    whole = run.client["per_request_tok_per_s"]["mean"]
    # The window begins with the reasoning whose tokens it counts.
    low, high = play.gap_ms(0, b"t0.", b"w19.")
    assert within(39 / decode * 1e3, (low, high))
    assert 40 / whole * 1e3 >= play.wait_ms(0, b"w19.") - 1
    assert decode > 1.4 * whole


def test_d11_no_p99_from_71_samples(bench: Bench) -> None:
    with playing(lambda number: stream([0.02, 0.03])) as play:
        run = bench.burst(play.url, n=71, out=2)
    ttft = run.client["ttft_ms"]
    assert ttft["n"] == 71
    assert ttft["p99"] is None
    assert ttft["p50"] is not None
    assert ttft["p95"] is not None
    assert ttft["p95"] <= ttft["max"]
    assert ttft["ci"]["p50"] is not None
    assert ttft["ci"].get("p99") is None


def test_d05_a_gate_on_what_was_not_measured_fails() -> None:
    (gated,) = gate([one([])], 0.05)
    assert gated.decision == "fail"
    assert not passes([gated], inconclusive_passes=True)

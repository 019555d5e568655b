"""Public bug reports of tools like this one, by id: the numbers that the right answer has."""

from __future__ import annotations

import pytest

from concbench.analyse.cell import cell_result
from concbench.analyse.rates import batch_tok_per_s
from concbench.analyse.streams import e2e_ns, itl_ns, samples, streams_of, tpot_ns
from concbench.analyse.windows import decode_at, tokens_between
from tests.analyse.simulate import MS, Reply, S, as_round, steady_stream


def only(reply: Reply):
    return streams_of(as_round([reply]))[0]


def test_s13_usage_chunk_does_not_stretch_tpot():
    stream = only(steady_stream(1000 * MS, 100 * MS, 10, end=2400 * MS))
    assert tpot_ns(stream) == 100 * MS
    assert e2e_ns(stream) == 1900 * MS


def test_s15_tool_calls_count():
    times = [435_800_000, 619_400_000, 801_800_000]
    stream = only(Reply(times=times, tokens=[1, 16, 14], kinds=[0, 2, 2]))
    assert tpot_ns(stream) == pytest.approx(12.2 * MS)


def test_t01_no_rate_is_below_its_mean_for_counting_chunks():
    reply = Reply(times=[k * 10 * MS for k in range(101)], tokens=[1] + [4.1] * 100)
    result, _ = cell_result([as_round([reply])])
    assert result.client.steady_output_tok_per_s is not None
    assert result.client.steady_output_tok_per_s.point == pytest.approx(410)
    assert result.tokens.per_chunk == pytest.approx(4.07, abs=0.01)


def test_t02_token_gap_and_chunk_gap():
    # 292.29 tok/s in verify steps of 8.72 ms.
    each = 0.00872 * 292.29
    reply = Reply(times=[int(k * 8.72 * MS) for k in range(400)], tokens=[1] + [each] * 399)
    felt = samples(streams_of(as_round([reply])), streaming=True, buffered=False)
    assert felt.icl_ms.mean() == pytest.approx(8.72, rel=1e-3)
    assert felt.itl_ms.mean() == pytest.approx(3.42, rel=1e-2)
    assert felt.tpot_ms[0] == pytest.approx(3.42, rel=1e-2)


def test_t03_tokens_and_not_chunks_divide():
    # 60 chunks, 150 tokens, one in the first, over 3 s.
    tokens = [1.0] + [149 / 59] * 59
    reply = Reply(times=[int(k * 3 * S / 59) for k in range(60)], tokens=tokens)
    result, doubts = cell_result([as_round([reply])])
    assert tpot_ns(only(reply)) == pytest.approx(20.1 * MS, rel=2e-3)
    assert result.tokens.per_chunk == 2.5
    assert "chunks_not_tokens" in {d.code for d in doubts}


def test_t07_usage_rules_and_never_the_length_asked():
    reply = steady_stream(0, 20 * MS, 37, extra={"asked_output_tok": 512})
    result, doubts = cell_result([as_round([reply])])
    assert tpot_ns(only(reply)) == 20 * MS
    assert result.tokens.output == 37
    assert "output_short" in {d.code for d in doubts}


def test_d02_first_chunk_of_five():
    reply = Reply(times=[200 * MS, *range(300 * MS, 1701 * MS, 100 * MS)], tokens=[5] + [1] * 15)
    assert tpot_ns(only(reply)) == 100 * MS


def test_d03_ttft_is_no_gap():
    stream = only(steady_stream(800 * MS, 50 * MS, 10))
    assert itl_ns(stream).tolist() == [50 * MS] * 9


def test_d07_client_queue_is_seen_from_due():
    # 500 ms of service, 10 requests/s, one at a time, 8 requests.
    replies = []
    for k in range(8):
        sent = k * 506 * MS
        replies.append(
            steady_stream(sent + 26 * MS, 20 * MS, 25, sent=sent, due=k * 100 * MS, worker=k + 1)
        )
    result, doubts = cell_result([as_round(replies, arrival="constant", rate_rps=10)])
    client = result.client
    assert client.e2e_ms.mean == pytest.approx(506)
    assert client.e2e_from_due_ms.mean == pytest.approx(1927, rel=0.01)
    assert client.send_delay_ms.max == pytest.approx(7 * 406)
    assert {"late_sends", "rate_not_kept"} <= {d.code for d in doubts}


def test_d10_decode_and_end_to_end_rates_are_both_there():
    reply = Reply(times=[S + int(k * 1809.32 * MS / 221) for k in range(222)])
    result, _ = cell_result([as_round([reply])])
    assert result.client.decode_tok_per_s is not None
    assert result.client.decode_tok_per_s.point == pytest.approx(221 / 1.80932, rel=1e-4)
    assert result.client.per_request_tok_per_s.mean == pytest.approx(222 / 2.80932, rel=1e-4)


def test_a01_work_in_flight_counts():
    # 4 streams of 10 tok/s and 80-token jobs, cut at 10 s with 20 tokens in flight each.
    replies = []
    for worker in range(1, 5):
        replies.append(Reply([k * 100 * MS for k in range(1, 81)], worker=worker))
        later = [8 * S + k * 100 * MS for k in range(1, 21)]
        replies.append(Reply(later, sent=8 * S, end=10 * S, worker=worker, outcome="incomplete"))
    round_ = as_round(replies, arrival="closed", concurrency=4)
    streams = streams_of(round_)
    assert tokens_between(streams, 0, 10 * S)[0] / 10 == 40
    decode = decode_at(streams, 4)
    assert decode is not None
    assert decode.tok_per_s == pytest.approx(40)
    result, _ = cell_result([round_])
    assert (result.requests.ok, result.requests.incomplete, result.requests.errors) == (4, 4, {})


def test_a02_ramp_and_drain():
    # Ten streams of 10 tok/s, one more each second for 10 s, gone again one by one.
    replies = [
        Reply([k * S + 500 * MS + j * 100 * MS for j in range(300)], worker=k + 1)
        for k in range(10)
    ]
    round_ = as_round(replies)
    result, _ = cell_result([round_])
    assert result.client.steady_output_tok_per_s is not None
    assert result.client.steady_output_tok_per_s.point == pytest.approx(100, rel=0.01)
    assert batch_tok_per_s(round_) == pytest.approx(75, rel=0.03)
    assert result.steady.start_s == pytest.approx(9.5)


def test_a06_nothing_generated_is_no_throughput():
    rejected = Reply(sent=0, end=MS, outcome="failed", extra={"error": "empty_response"})
    result, doubts = cell_result([as_round([rejected] * 300, concurrency=300)])
    assert result.requests.failed == 300
    assert result.client.output_tok_per_s is None
    codes = {d.code: d.severity for d in doubts}
    assert codes["requests_failed"] == codes["empty_responses"] == "fatal"


def test_a08_failures_are_in_no_latency():
    ok = steady_stream(50 * MS, 2 * MS, 26)
    failed = Reply(outcome="failed", end=0, extra={"error": "http_500"})
    result, _ = cell_result([as_round([ok, ok, failed])])
    assert result.client.e2e_ms.p50 == 100
    assert result.client.e2e_ms.n == 2
    assert result.requests.ok / result.requests.sent == pytest.approx(0.667, abs=1e-3)


def test_p01_warm_cache_is_named():
    extra = {"prompt_tok": 1000, "cached_tok": 640}
    reply = steady_stream(50 * MS, 10 * MS, 100, extra=extra)
    _, doubts = cell_result([as_round([reply])], template_tok=30)
    found = next(d for d in doubts if d.code == "prompt_cache_hit")
    assert found.evidence["cached_tok"] == 610


def test_q01_hidden_slow_state():
    rounds = [
        as_round([steady_stream(0, gap * MS, 200)], index=k)
        for k, gap in enumerate((63, 63, 63, 94, 94, 94))
    ]
    _, doubts = cell_result(rounds)
    assert "bimodal" in {d.code for d in doubts}


def test_q05_one_run_is_no_interval():
    result, doubts = cell_result([as_round([steady_stream(0, 20 * MS, 200)])])
    assert "single_round" in {d.code for d in doubts}
    assert result.client.output_tok_per_s is not None
    assert result.client.output_tok_per_s.low is None

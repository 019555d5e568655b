from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.analyse.cell import cell_result, empty_cell
from concbench.analyse.evidence import start_wave
from concbench.result import Result, to_json
from tests.analyse.simulate import MS, Engine, Reply, S, as_round, burst, closed_loop, steady_stream

ENGINE = Engine(step_ns=lambda batch: 20 * MS, prefill_ns=40 * MS)


def noisy(n: int, rounds: int = 4, output_tok: int = 260, **fields):
    return [
        burst(
            Engine(lambda _: 20 * MS, 40 * MS, noise=0.02, seed=k), n, output_tok, index=k, **fields
        )
        for k in range(rounds)
    ]


def test_headline_is_the_steady_rate_with_its_interval():
    result, doubts = cell_result(noisy(8))
    steady = result.client.steady_output_tok_per_s
    assert steady is not None
    assert steady.low is not None
    assert steady.high is not None
    assert steady.low < 400 < steady.high
    assert "edge error" in steady.method
    assert (steady.high - steady.low) / 2 / steady.point > 1 / (result.steady.steps or 1)
    assert result.client.output_tok_per_s is not None
    assert result.client.output_tok_per_s.point < 0.97 * steady.point
    assert (result.steady.estimand, result.steady.found, result.rounds) == ("decode", True, 4)
    assert result.steady.running is not None
    assert result.steady.running.max == 8
    assert result.steady.start_s == pytest.approx(8 * 0.04, rel=0.1)
    assert [d.code for d in doubts] == []


def test_the_mean_speed_of_a_request_has_an_interval_over_rounds():
    result, _ = cell_result(noisy(8))
    speed = result.client.per_request_tok_per_s
    low, high = speed.ci["mean"]
    assert low < speed.mean < high
    assert set(speed.ci) - set(result.client.ttft_ms.ci) == {"mean"}
    few, _ = cell_result(noisy(8, rounds=2))
    assert few.client.per_request_tok_per_s.ci["mean"] is None


def test_counts_add_up():
    replies = [
        steady_stream(100 * MS, 20 * MS, 100),
        steady_stream(100 * MS, 20 * MS, 7, outcome="failed", extra={"error": "timeout"}),
        Reply(outcome="failed", extra={"error": None, "http_status": 500}),
        steady_stream(100 * MS, 20 * MS, 9, outcome="incomplete"),
    ]
    result, _ = cell_result([as_round(replies)])
    requests = result.requests
    assert (requests.sent, requests.ok, requests.failed, requests.incomplete) == (4, 1, 2, 1)
    assert requests.errors == {"timeout": 1, "unknown": 1}
    assert requests.finish == {"length": 1}
    assert (result.tokens.output, result.tokens.per_chunk, result.tokens.source) == (
        100,
        1,
        "usage",
    )
    assert result.ledger.received == 116


def test_other_phases_do_not_count():
    rounds = noisy(2)
    warm = msgspec.structs.replace(rounds[0], phase="warmup")
    discarded = msgspec.structs.replace(rounds[1], phase="discarded")
    result, _ = cell_result([warm, discarded, *rounds])
    assert result.rounds == 4
    assert result.requests.sent == 8
    nothing, _ = cell_result([warm])
    assert (nothing.rounds, nothing.steady.reason) == (0, "no round was measured")


def test_a_cell_interrupted_before_its_first_round_was_not_measured():
    engine = Engine(step_ns=lambda batch: 20 * MS, prefill_ns=20 * MS)
    warm_up = msgspec.structs.replace(burst(engine, 4, 32), phase="warmup")
    result, doubts = cell_result([warm_up], None, None, 0.01, ended_by="interrupt")
    assert (result.outcome, result.rounds) == ("interrupted", 0)
    assert "wide_interval" not in {each.code for each in doubts}
    # A study that is still being measured has such cells too.
    assert cell_result([warm_up], None, None, 0.01)[0].outcome == "measured"


def test_overlap_of_a_parallel_and_of_a_serial_engine():
    alone, _ = cell_result(noisy(1))
    assert alone.overlap is None
    assert alone.client.decode_tok_per_s is not None
    assert alone.client.decode_tok_per_s.point == pytest.approx(50, rel=0.01)
    together, _ = cell_result(noisy(8), None, alone)
    assert together.overlap is not None
    assert 0.9 < together.overlap < 1
    assert together.client.decode_tok_per_s is None
    serial = Engine(lambda _: 20 * MS, 40 * MS, slots=1)
    one_by_one, _ = cell_result([burst(serial, 8, 260)] * 3, None, alone)
    assert one_by_one.overlap == pytest.approx(0, abs=0.02)
    assert one_by_one.steady.decoding_mean == pytest.approx(1, rel=0.01)
    other_work, _ = cell_result(noisy(8, output_tok=300), None, alone)
    assert other_work.overlap is None


def test_one_closed_loop_has_its_interval_from_batches():
    engine = Engine(lambda batch: 20 * MS, 40 * MS, noise=0.02, seed=3)
    result, doubts = cell_result([closed_loop(engine, 4, 100, 60 * S)])
    steady = result.client.steady_output_tok_per_s
    assert steady is not None
    assert steady.low is not None
    assert "batches" in steady.method
    assert result.steady.estimand == "sustained"
    assert "single_round" in {d.code for d in doubts}


def test_start_wave_is_apart():
    """A04: ten at 2.0 s, then ninety at 0.2 s."""
    replies = [steady_stream(2000 * MS, MS, 20, worker=w) for w in range(1, 11)]
    for wave in range(9):
        sent = (3 + wave) * S
        replies += [
            steady_stream(sent + 200 * MS, MS, 20, worker=w, sent=sent) for w in range(1, 11)
        ]
    round_ = as_round(replies, arrival="closed", concurrency=10)
    result, _ = cell_result([round_])
    assert result.client.ttft_ms.n == 90
    assert result.client.ttft_ms.mean == pytest.approx(200)
    assert start_wave(round_).ttft_ms.mean() == pytest.approx(2000)
    only, _ = cell_result([as_round(replies[:10], arrival="closed", concurrency=10)])
    assert only.client.ttft_ms.mean == pytest.approx(2000)


def test_interrupted_round_is_marked_and_out_of_the_batch_figure():
    rounds = noisy(4)
    cut = msgspec.structs.replace(burst(ENGINE, 4, 30), interrupted=True, outcome="interrupted")
    result, doubts = cell_result([*rounds, cut])
    assert result.outcome == "interrupted"
    assert result.client.output_tok_per_s is not None
    assert result.client.output_tok_per_s.n == 4
    assert "interrupted" in {d.code for d in doubts}


@pytest.mark.parametrize(
    "replies",
    [
        [],
        [Reply(outcome="failed", sent=None)],
        [Reply(outcome="failed", extra={"error": "http_500"})] * 4,
        [Reply()],
        [Reply(times=[5])],
        [Reply(times=[5] * 40)],
        [Reply(times=[5] * 40, sent=9 * S)],
        [Reply(times=[9, 5, 7], end=1)],
        [steady_stream(0, MS, 100, outcome="incomplete")],
    ],
)
@pytest.mark.parametrize("arrival", ["burst", "closed", "poisson"])
@pytest.mark.parametrize("stream", [True, False])
def test_nothing_useful_gives_nulls_and_no_exception(replies, arrival, stream):
    rounds = [as_round(replies, arrival=arrival, stream=stream, concurrency=len(replies) or 1)]
    result, doubts = cell_result(rounds * 4, target_half_width=0.01, ended_by="rounds_max")
    # A stream that we cut was decoding until then: its window stands.
    assert result.steady.found is (result.steady.reason is None)
    assert not result.steady.found or result.requests.incomplete
    document = Result(
        tool_version="0", command="burst", study=None, began_utc="", cells=[result], doubts=doubts
    )
    assert b"NaN" not in to_json(document)


def test_no_round_is_a_programming_error():
    with pytest.raises(ValueError, match="at least one round"):
        cell_result([])


def test_empty_cell():
    cell = as_round([Reply()]).cell
    result = empty_cell(cell, "oom", "CUDA out of memory")
    assert (result.outcome, result.rounds, result.client.ttft_ms.n) == ("oom", 0, 0)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 10**14))
def test_order_of_requests_and_origin_of_time_change_nothing(seed, shift):
    engine = Engine(lambda batch: 20 * MS, 40 * MS, noise=0.05, seed=seed)
    replies = engine.run([(0, 80, worker) for worker in range(1, 5)])
    before, _ = cell_result([as_round(replies)])
    random.Random(seed).shuffle(replies)
    for reply in replies:
        reply.times = [time + shift for time in reply.times]
        reply.sent, reply.end = (reply.sent or 0) + shift, (reply.end or 0) + shift
    after, _ = cell_result([as_round(replies, start_ns=shift)])
    for name in ("ttft_ms", "icl_ms", "tpot_ms", "e2e_ms"):
        one, other = getattr(before.client, name), getattr(after.client, name)
        assert (one.n, one.min, one.p50, one.p90, one.max) == (
            other.n,
            other.min,
            other.p50,
            other.p90,
            other.max,
        )
    assert before.client.steady_output_tok_per_s == after.client.steady_output_tok_per_s
    assert before.steady == after.steady

from __future__ import annotations

from statistics import mean

import msgspec
import pytest

from concbench.analyse.rates import batch_tok_per_s, headline_tok_per_s
from concbench.analyse.streams import streams_of
from concbench.analyse.windows import (
    NoWindow,
    Window,
    burst_window,
    closed_window,
    decode_at,
    is_ragged,
    tokens_between,
)
from concbench.domain import Round, TargetFacts
from tests.analyse.simulate import MS, Engine, Reply, S, as_round, burst, closed_loop, steady_stream

STEP = Engine(step_ns=lambda batch: 20 * MS + batch * MS // 4, prefill_ns=60 * MS)
FACTS = TargetFacts(lane="lane", engine="vllm", base_url="http://127.0.0.1:1")


def true_rate(n: int) -> float:
    return n / (0.020 + n * 0.00025)


def burst_of(round_: Round, facts=None):
    return burst_window(round_, streams_of(round_), facts)


@pytest.mark.parametrize("n", [1, 4, 16, 32])
def test_burst_window_recovers_the_planted_rate(n):
    round_ = burst(STEP, n, 260)
    window = burst_of(round_)
    assert isinstance(window, Window)
    assert window.tok_per_s == pytest.approx(true_rate(n), rel=window.edge_error)
    assert window.running == (n, n, n)
    assert window.decoding_mean == n
    assert window.steps >= 200
    classic = batch_tok_per_s(round_)
    assert classic is not None
    if n >= 16:
        assert classic < 0.9 * true_rate(n)


def test_burst_window_is_steady_over_noisy_rounds():
    engines = [Engine(STEP.step_ns, 40 * MS, noise=0.05, seed=k) for k in range(8)]
    rates = [burst_of(burst(engine, 16, 300)).tok_per_s for engine in engines]
    assert mean(rates) == pytest.approx(true_rate(16), rel=0.01)


def test_too_few_steps_say_so():
    found = burst_of(burst(STEP, 4, 40))
    assert isinstance(found, NoWindow)
    assert "more output tokens" in found.reason


def test_above_the_slots_there_is_no_window():
    round_ = burst(Engine(STEP.step_ns, 40 * MS, slots=8), 12, 200)
    facts = msgspec.structs.replace(FACTS, slots=8)
    named, unnamed = burst_of(round_, facts), burst_of(round_)
    assert isinstance(named, NoWindow)
    assert "8 slots" in named.reason
    assert named.decoding_mean is not None
    assert 4 < named.decoding_mean <= 8
    assert isinstance(unnamed, NoWindow)
    assert "at most 8 of 12" in unnamed.reason
    assert headline_tok_per_s(round_, facts) == batch_tok_per_s(round_)


def test_above_the_kv_pool_there_is_no_window():
    round_ = burst(STEP, 8, 260)
    pool = 8 * (50 + 260)
    assert isinstance(
        burst_of(round_, msgspec.structs.replace(FACTS, kv_capacity_tok=pool)), Window
    )
    found = burst_of(round_, msgspec.structs.replace(FACTS, kv_capacity_tok=pool - 1))
    assert isinstance(found, NoWindow)
    assert "KV cache" in found.reason


@pytest.mark.parametrize(
    ("replies", "fields", "reason"),
    [
        ([], {"concurrency": 2}, "holds 0 of 2"),
        ([Reply(outcome="failed"), steady_stream(0, MS, 200)], {}, "1 of 2 requests failed"),
        ([Reply(), steady_stream(0, MS, 200)], {}, "produced no token"),
        ([steady_stream(0, MS, 200)], {"stream": False}, "not streamed"),
        ([Reply(times=[5] * 200), Reply(times=[5] * 200)], {}, "generating at once"),
    ],
)
def test_bursts_without_a_window(replies, fields, reason):
    found = burst_of(as_round(replies, **fields))
    assert isinstance(found, NoWindow)
    assert reason in found.reason


def test_a_step_of_several_tokens_counts_once():
    reply = Reply(times=[k * 20 * MS for k in range(101)], tokens=[1] + [4] * 100)
    window = burst_of(as_round([reply]))
    assert isinstance(window, Window)
    assert (window.tokens, window.steps) == (400, 100)
    assert window.tok_per_s == 200


def test_closed_loop_recovers_the_sustained_rate():
    engine = Engine(STEP.step_ns, prefill_ns=60 * MS, seed=5)
    n, length = 8, 100
    round_ = closed_loop(engine, n, length, 60 * S)
    window = closed_window(round_, streams_of(round_))
    assert isinstance(window, Window)
    # Per request: its own prefill blocks the batch once, and G - 1 steps are shared by N.
    cycle = n * 0.060 + (length - 1) * (0.020 + n * 0.00025)
    assert window.tok_per_s == pytest.approx(n * length / cycle, rel=0.01)
    assert window.running == (n, n, n)
    assert window.spread is not None
    assert window.spread.batches >= 8
    assert window.spread.half_width() < 0.005
    decode = decode_at(streams_of(round_), n)
    assert decode is not None
    assert decode.tok_per_s == pytest.approx(true_rate(n), rel=0.03)
    assert 0 < decode.length_s < 60


def test_closed_loop_needs_every_worker():
    round_ = closed_loop(STEP, 4, 100, 20 * S)
    gone = msgspec.structs.replace(round_, requests=[r for r in round_.requests if r.worker != 2])
    found = closed_window(gone, streams_of(gone))
    assert isinstance(found, NoWindow)
    assert "1 of 4 workers" in found.reason


def test_closed_loop_that_was_too_short():
    round_ = closed_loop(STEP, 4, 100, 1)
    found = closed_window(round_, streams_of(round_))
    assert isinstance(found, NoWindow)


@pytest.mark.parametrize(("length_s", "nth", "times"), [(20, 2, "twice"), (5, 1, "once")])
def test_a_loop_is_steady_from_the_second_finish_of_every_worker_on(length_s, nth, times):
    round_ = closed_loop(STEP, 4, 100, length_s * S)
    window = closed_window(round_, streams_of(round_))
    assert isinstance(window, Window)
    ends = {w: sorted(r.end_ns for r in round_.requests if r.worker == w) for w in range(1, 5)}
    assert window.start_ns == max(of_worker[nth - 1] for of_worker in ends.values())
    assert window.end_ns == max(record.sent_ns for record in round_.requests)
    assert f"finished {times}" in window.method


def test_tokens_count_in_the_half_open_window():
    streams = streams_of(as_round([Reply(times=[0, 10, 10, 20], tokens=[1, 2, 3, 4])]))
    assert tokens_between(streams, 0, 10) == (5, 1)
    assert tokens_between(streams, 0, 20) == (9, 2)
    assert tokens_between(streams, 20, 30) == (0, 0)


def test_ragged_lengths():
    even = [steady_stream(0, MS, 100) for _ in range(4)]
    assert not is_ragged([as_round(even)])
    assert is_ragged([as_round([*even, steady_stream(0, MS, 50)])])
    assert not is_ragged([])

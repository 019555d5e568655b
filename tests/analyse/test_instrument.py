from __future__ import annotations

import numpy as np
import pytest

from concbench.analyse.bundling import bundling
from concbench.analyse.cell import cell_result
from concbench.analyse.instrument import p99
from concbench.analyse.streams import streams_of
from tests.analyse.simulate import MS, Reply, as_round, steady_stream

GAP = 10 * MS


def coalesced(every: int, lateness: int, count: int = 200, *, kernel: bool = True) -> Reply:
    """Tokens 10 ms apart of which each `every`-th read brings two, stamped as the second."""
    times, reads, read = [], [], -1
    for k in range(count):
        joins = k % every == every - 2
        times.append((k + 1 if joins else k) * GAP + 50 * MS)
        if k % every != every - 1 or k == 0:
            read += 1
        reads.append(read)
    return Reply(times=times, reads=reads, lateness=lateness, kernel=kernel)


def judged(*replies: Reply, **instrument):
    result, doubts = cell_result(
        [as_round(list(replies), instrument=instrument or None, index=k) for k in range(4)]
    )
    return result, {doubt.code: doubt for doubt in doubts}


def test_quiet_client_has_no_doubt():
    lateness = [MS // 10] * 200
    result, doubts = judged(
        steady_stream(50 * MS, GAP, 200, lateness=MS // 10), read_lateness_ns=lateness
    )
    assert not {"late_reads", "late_sends", "client_bound", "user_stamps"} & doubts.keys()
    assert result.instrument.stamp == "kernel"
    assert result.instrument.stamped_pct == 100
    assert result.instrument.read_lateness_ms.max == pytest.approx(0.1)
    assert result.instrument.late_after_stamp_ms.n == 800
    assert result.instrument.late_after_stamp_ms.max == 0


def test_stamps_rescue_late_reads_of_single_events():
    lateness = [4 * MS] * 200
    result, doubts = judged(
        steady_stream(50 * MS, GAP, 200, lateness=4 * MS), read_lateness_ns=lateness
    )
    assert "late_reads" in doubts
    assert "client_bound" not in doubts
    assert result.client.icl_ms.max == 10
    assert result.instrument.late_after_stamp_ms.max == 0


def test_coalesced_late_reads_are_the_clients_fault():
    result, doubts = judged(coalesced(10, 8 * MS))
    assert "client_bound" in doubts
    assert doubts["client_bound"].severity == "fatal"
    assert result.instrument.late_after_stamp_ms.max == pytest.approx(10, rel=0.3)
    assert "buffered_stream" not in doubts


def test_coalesced_prompt_reads_were_bundled_upstream():
    _, doubts = judged(coalesced(10, MS // 10))
    assert not {"client_bound", "late_reads", "buffered_stream"} & doubts.keys()
    found = bundling(streams_of(as_round([coalesced(10, MS // 10)])))
    assert (found.bundled, found.late) == (20, 0)


def test_unstamped_events_are_as_late_as_the_loop():
    reply = steady_stream(50 * MS, GAP, 200, kernel=False)
    quiet, doubts = judged(reply, stamp="user", stamped_reads=0, loop_lag_ns=[MS // 10] * 50)
    assert "user_stamps" in doubts
    assert "client_bound" not in doubts
    assert quiet.instrument.stamped_pct == 0
    assert quiet.instrument.late_after_stamp_ms.p50 == pytest.approx(0.1)
    busy = [MS // 10] * 90 + [20 * MS] * 10
    _, doubts = judged(reply, stamp="user", stamped_reads=0, loop_lag_ns=busy)
    assert doubts["client_bound"].evidence["remaining_p99_ms"] == pytest.approx(20)


def test_late_sends():
    def late_by(delay: int):
        return [steady_stream(100 * MS, GAP, 200, sent=delay, due=0) for _ in range(4)]

    assert "late_sends" not in judged(*late_by(MS))[1]
    found = judged(*late_by(3 * MS))[1]
    assert "late_sends" in found
    assert "client_bound" not in found
    assert "client_bound" in judged(*late_by(20 * MS))[1]


def test_rate_near_the_ceiling():
    rounds = [as_round([steady_stream(50 * MS, GAP, 200)], index=k) for k in range(4)]
    for ceiling, bound in ((110.0, True), (130.0, False)):
        result, doubts = cell_result(rounds, ceiling_tok_per_s=ceiling)
        assert result.instrument.ceiling_tok_per_s == ceiling
        assert ("client_bound" in {d.code for d in doubts}) is bound


def test_out_of_descriptors_is_the_clients_fault():
    """C02."""
    failed = Reply(outcome="failed", sent=None, extra={"error": "client_limit"})
    assert "client_bound" in judged(steady_stream(0, GAP, 200), failed)[1]


def test_clock_step():
    _, doubts = judged(steady_stream(0, GAP, 200), offset_step_ns=2 * MS)
    assert doubts["clock_stepped"].severity == "fatal"
    _, doubts = judged(steady_stream(0, GAP, 200), offset_step_ns=MS // 2)
    assert "clock_stepped" not in doubts


def test_buffering_proxy_withholds_the_gaps():
    """X01: lumps of 65 events, half a second apart."""
    times = [(k // 65 + 1) * 500 * MS for k in range(260)]
    result, doubts = judged(Reply(times=times, reads=[k // 65 for k in range(260)]))
    assert "buffered_stream" in doubts
    client = result.client
    assert client.icl_ms.n == client.itl_ms.n == client.tpot_ms.n == 0
    assert client.ttft_ms.n == 4


def test_speculation_in_several_events_is_no_buffer():
    times = [(k // 4 + 1) * 20 * MS for k in range(200)]
    round_ = as_round([Reply(times=times, reads=[k // 4 for k in range(200)])])
    found = bundling(streams_of(round_))
    assert found.events_per_instant == 4
    assert not found.buffered(speculation=True)
    assert found.buffered(speculation=False)


def test_p99_always_exists():
    assert p99(np.empty(0)) is None
    assert p99(np.array([1.0, 5.0])) == 5
    assert p99(np.arange(1.0, 1001.0)) == 990

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from concbench.analyse.batches import wave_spread
from concbench.analyse.stopping import Continue, LoopSoFar, Stop, StopRule, decide, spread_until

S = 1_000_000_000


def loop(noise: float = 0.01, seconds: int = 300, workers: int = 4, **fields) -> LoopSoFar:
    """Four workers whose requests take 2 s: an issue each half second, 100 tok/s, steady at 3 s."""
    rng = np.random.default_rng(5)
    times_ns = np.arange(0, seconds * S, S // 20)
    tokens = (5 * (1 + noise * rng.standard_normal(times_ns.size))).cumsum()
    known = {
        "workers": workers,
        "began_ns": 0,
        "steady_ns": 3 * S,
        "request_s": 2.0,
        "times_ns": times_ns,
        "tokens": tokens,
        "issues_ns": np.arange(0, seconds * S, S // 2),
        **fields,
    }
    return LoopSoFar(**known)


def test_before_the_loop_is_steady_it_goes_on():
    answer = decide(loop(steady_ns=None), StopRule(0.01, 600), 5 * S)
    assert answer == Continue(7.0, None)
    assert decide(loop(steady_ns=None), StopRule(0.01, 4), 5 * S) == Stop("max_s", None)


@pytest.mark.parametrize(
    ("request_s", "min_s", "first_s"),
    [(2.0, 30, 33.0), (10.0, 30, 83.0), (2.0, 60, 63.0), (2.0, 1, 19.0)],
)
def test_the_first_look_waits_for_the_least_time_and_eight_requests(request_s, min_s, first_s):
    answer = decide(loop(request_s=request_s), StopRule(0.01, 600, min_s), 15 * S)
    assert answer == Continue(first_s, None)


def test_two_looks_must_agree():
    rule = StopRule(0.01, 600)
    first = decide(loop(), rule, 33 * S)
    assert isinstance(first, Continue)
    assert first.half_width is not None
    assert first.half_width < 0.01
    assert first.next_look_s == pytest.approx(3 + 37.5)
    second = decide(loop(), rule, int(40.6 * S))
    assert isinstance(second, Stop)
    assert second.ended_by == "interval"
    assert second.half_width is not None
    assert second.half_width < 0.01


def test_asking_between_looks_changes_nothing():
    rule = StopRule(1e-6, 600)
    answers = {decide(loop(), rule, at * S) for at in range(41, 49)}
    assert len(answers) == 1


def test_the_limit_of_time_is_kept():
    rule = StopRule(1e-6, 45)
    assert decide(loop(), rule, 41 * S) == Continue(45, decide(loop(), rule, 41 * S).half_width)
    answer = decide(loop(), rule, 45 * S)
    assert isinstance(answer, Stop)
    assert answer.ended_by == "max_s"
    assert answer.half_width is not None
    endless = StopRule(None, 45)
    assert isinstance(decide(loop(), endless, 44 * S), Continue)
    assert isinstance(decide(loop(), endless, 45 * S), Stop)


def test_looks_are_few():
    rule, at, looks = StopRule(1e-6, 600), 0.0, 0
    while isinstance(answer := decide(loop(seconds=600), rule, int(at * S)), Continue):
        at, looks = answer.next_look_s + 1e-6, looks + 1
    assert looks < 18


def test_half_width_does_not_depend_on_the_unit_of_counting():
    one = spread_until(loop(), 60 * S)
    reads = spread_until(replace(loop(), tokens=loop().tokens / 3.7), 60 * S)
    assert one is not None
    assert reads is not None
    assert reads.half_width() == pytest.approx(one.half_width())


def test_too_few_waves_have_no_spread():
    assert spread_until(loop(), (3 + 2 * 8 - 1) * S) is None
    assert spread_until(loop(steady_ns=None), 60 * S) is None
    empty = np.empty(0, dtype=np.int64)
    assert wave_spread(empty, empty.astype(float), empty, 1) is None
    issues = np.arange(20) * S
    assert wave_spread(issues + 100 * S, issues.astype(float), issues, 1) is None
    assert wave_spread(issues, np.zeros(20), issues, 1) is None


def test_a_perfectly_regular_loop_has_no_error():
    found = spread_until(loop(noise=0.0), 60 * S)
    assert found is not None
    assert found.half_width() == pytest.approx(0, abs=1e-9)
    assert found.batches >= 8


def test_noise_that_outlasts_a_batch_widens_the_interval():
    times = np.arange(0, 200 * S, S // 10)
    slow = 1 + 0.05 * np.sin(times / S / 16)
    quick = 1 + 0.05 * np.sin(times / S * 2.9)
    issues = np.arange(0, 200 * S, S)
    widths = []
    for pace in (slow, quick):
        found = wave_spread(times, pace.cumsum(), issues, 4)
        assert found is not None
        widths.append(found.half_width())
    assert widths[0] > 3 * widths[1]


def test_a_batch_that_holds_a_pause_and_the_most_tokens_does_not_explain_it_away():
    times = np.arange(0, 40 * S, S // 10)
    times[times > 20 * S] += 5 * S
    tokens = np.full(times.size, 10.0)
    tokens[(times > 19 * S) & (times < 26 * S)] += 1.0
    issues = times[::10]
    found = wave_spread(times, tokens.cumsum(), issues, 2)
    assert found is not None
    assert found.half_width() > 0.15


def test_a_pause_in_what_fills_no_batch_widens_the_interval():
    times = np.arange(0, 40 * S, S // 10)
    times[times > S // 2] += 5 * S
    tokens = np.full(times.size, 10.0).cumsum()
    issues = times[::10]
    found = wave_spread(times, tokens, issues[1:], 2)
    late = wave_spread(times, tokens, issues, 2)
    assert (issues.size - 1) % 4 == 3
    assert found is not None
    assert late is not None
    assert found.half_width() == pytest.approx(0, abs=1e-6)
    assert late.half_width() > 0.2

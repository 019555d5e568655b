from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from concbench.analyse.cell import cell_result
from concbench.analyse.openloop import judge, open_window
from concbench.analyse.streams import streams_of
from concbench.analyse.windows import NoWindow, Window
from concbench.domain import Round
from tests.analyse.simulate import MS, Engine, S, as_round


def poisson(rate: float, length_s: int, slots: int = 4, seed: int = 1) -> Round:
    """A server of `slots` streams of 50 tokens at 20 ms: about 3.8 requests/s with 4 slots."""
    rng = random.Random(seed)
    at, arrivals = 0.0, []
    while (at := at + rng.expovariate(rate)) < length_s:
        arrivals.append((int(at * S), 50, len(arrivals) + 1))
    engine = Engine(step_ns=lambda batch: 20 * MS, prefill_ns=1 * MS, slots=slots)
    return as_round(engine.run(arrivals), arrival="poisson", concurrency=0, rate_rps=rate)


def state_of(round_: Round):
    state = judge(round_, streams_of(round_))
    assert state is not None
    return state


def test_below_saturation_is_stable_and_carries_the_offered_load():
    round_ = poisson(1.5, 120)
    state = state_of(round_)
    assert state.verdict == "stable"
    assert state.kept > 0.95
    window = open_window(round_, streams_of(round_), state)
    assert isinstance(window, Window)
    done = sum(r.due_ns > state.cut_ns for r in round_.requests)
    offered = 50 * done / ((window.end_ns - window.start_ns) / S)
    assert window.tok_per_s == pytest.approx(offered, rel=0.05)


def test_above_saturation_is_a_growing_queue_with_its_slope():
    round_ = poisson(8, 60)
    state = state_of(round_)
    assert state.verdict == "unstable"
    assert state.slope_per_s == pytest.approx(8 - 3.9, rel=0.2)
    window = open_window(round_, streams_of(round_), state)
    assert isinstance(window, NoWindow)
    assert "queue grew" in window.reason
    result, doubts = cell_result([round_])
    assert not result.steady.found
    assert "no_steady_state" in {doubt.code for doubt in doubts}


def failing(round_: Round, error: str) -> Round:
    """The same round with every fourth answer failed."""
    records = [
        replace(record, outcome="failed", error=error) if number % 4 == 3 else record
        for number, record in enumerate(round_.requests)
    ]
    return replace(round_, requests=tuple(records))


def test_failed_answers_have_left_the_system():
    state = state_of(failing(poisson(1.5, 120), "http_500"))
    assert state.verdict == "stable"
    assert state.kept > 0.95
    over = state_of(failing(poisson(8, 60), "http_500"))
    assert over.verdict == "unstable"


def test_the_reason_has_the_figures_of_the_cell():
    result, _ = cell_result([poisson(8, 60), poisson(8, 60, seed=2)])
    assert result.saturation is not None
    slope = result.saturation["queue_slope_per_s"]
    assert f"the queue grew by {slope:.3g} requests/s" in (result.steady.reason or "")


def test_what_the_client_gave_up_waiting_for_has_not_left():
    state = state_of(failing(poisson(1.5, 120), "timeout"))
    assert (state.verdict, state.kept < 0.8) == ("unstable", True)
    window = open_window(round_ := failing(poisson(1.5, 120), "timeout"), streams_of(round_), state)
    assert isinstance(window, NoWindow)
    assert window.reason.startswith("only ")


def test_a_short_run_is_undetermined():
    window = open_window(round_ := poisson(1, 4), streams_of(round_), state_of(round_))
    assert isinstance(window, NoWindow)


def test_cut_is_at_least_twice_the_p95():
    round_ = poisson(1.5, 120)
    assert state_of(round_).cut_ns - min(r.due_ns for r in round_.requests) >= 2 * 980 * MS


def test_nothing_arrived():
    assert judge(as_round([], arrival="poisson"), []) is None
    result, _ = cell_result([as_round([], arrival="poisson", concurrency=0)])
    assert result.steady.reason == "fewer than two arrivals"


def test_saturation_tells_what_was_asked_sent_and_kept():
    held, _ = cell_result([poisson(1.5, 120, seed=seed) for seed in (1, 2, 3)])
    found = held.saturation
    assert found is not None
    assert (found["state"], found["asked_rps"]) == ("stable", 1.5)
    assert found["sent_rps"] == pytest.approx(found["scheduled_rps"])
    assert found["sent_rps"] == pytest.approx(1.5, rel=0.15)
    assert abs(found["queue_slope_per_s"]) < 0.05
    assert found["completions_per_arrival"] > 0.95
    over, _ = cell_result([poisson(8, 60), poisson(8, 60, seed=2), poisson(1, 4)])
    assert over.saturation is not None
    assert over.saturation["state"] == "saturated"
    split, _ = cell_result([poisson(8, 60), poisson(1.5, 120)])
    assert split.saturation is not None
    assert split.saturation["state"] == "saturated"
    burst, _ = cell_result([as_round([], concurrency=1)])
    assert burst.saturation is None

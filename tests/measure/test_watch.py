"""The stop rule of a closed loop, on counts that are made up: no load, no clock."""

from __future__ import annotations

from random import Random

import pytest

from concbench.load.generator import Progress
from concbench.load.script import Done
from concbench.measure.watch import Limits, Snapshot, Watch
from concbench.observe.observer import LiveView

TICK_NS = 50_000_000
S = 1_000_000_000


def view(generated: float | None) -> LiveView:
    return LiveView(0, 4.0, 0.0, generated, 100.0, 1, 0, 0)


def ticks(watch: Watch, seconds: float, bytes_per_tick: object, *, ends: int = 4) -> float | None:
    """Feed ticks until the watch ends the loop; return when, in seconds, or None."""
    received = 0
    for number in range(1, int(seconds * 20) + 1):
        received += bytes_per_tick(number) if callable(bytes_per_tick) else bytes_per_tick  # type: ignore[operator]
        if number % 20 == 0:
            for worker in range(ends):
                done = Done(0, number * TICK_NS, "complete", 40)
                watch.request_ended(worker, done, took_ns=S, whole=True)
                watch.issued(number * TICK_NS)
        progress = Progress(number * TICK_NS, 4, 0, 0, received)
        if watch.tick(progress, 0):
            return number / 20
    return None


def watch_of(until: float = 0.01, **options: object) -> Watch:
    limits = Limits(until, options.pop("min_s", 10.0), options.pop("max_s", 60.0))  # type: ignore[arg-type]
    return Watch(4, limits, 10.0, **options)  # type: ignore[arg-type]


def test_a_steady_rate_ends_it_after_the_least_time_past_the_ramp() -> None:
    watch = watch_of()
    assert 11.0 <= (ticks(watch, 60, 10_000) or 0) <= 18.0
    assert watch.ended_by == "interval"
    assert watch.half_width is not None
    assert watch.half_width <= 0.01


def test_it_never_ends_under_eight_request_times() -> None:
    watch = watch_of(min_s=1.0)
    assert 9.0 <= (ticks(watch, 60, 10_000) or 0) <= 15.0


def test_a_rate_that_wanders_goes_on_to_the_end() -> None:
    random = Random(5)
    watch = watch_of(max_s=30.0)

    def wandering(number: int) -> int:
        if number % 60 == 1:
            wandering.level = random.choice((5_000, 15_000))  # type: ignore[attr-defined]
        return int(wandering.level)  # type: ignore[attr-defined]

    assert ticks(watch, 60, wandering) == pytest.approx(30.0, abs=0.1)
    assert watch.ended_by == "max_s"
    assert watch.half_width is not None
    assert watch.half_width > 0.01


def test_without_every_worker_past_its_first_request_there_is_no_window() -> None:
    watch = watch_of(max_s=30.0)
    ticks(watch, 40, 10_000, ends=3)
    assert watch.ended_by == "max_s"
    assert watch.half_width is None


def test_silence_on_both_sides_is_a_stall_and_a_counter_that_moves_is_none() -> None:
    watch = watch_of(live=lambda: view(100.0))
    ended = ticks(watch, 60, lambda number: 1_000 if number < 100 else 0, ends=0)
    assert ended == pytest.approx(15.0, abs=0.2)
    assert watch.ended_by == "timeout"
    assert watch.hung is not None
    assert "no byte" in watch.hung
    moving = iter(range(10_000))
    alive = watch_of(live=lambda: view(float(next(moving))))
    assert ticks(alive, 60, lambda number: 1_000 if number < 100 else 0, ends=0) == 60.0
    assert alive.ended_by == "max_s"


def test_nothing_but_failures_for_ten_seconds_ends_it() -> None:
    watch = watch_of()
    for number in range(1, 1200):
        at_ns = number * TICK_NS
        watch.request_ended(number % 4, Done(number, at_ns, "reset", 0), took_ns=-1, whole=True)
        if watch.tick(Progress(at_ns, 4, 0, 0, number), 0):
            break
    assert watch.ended_by == "timeout"
    assert watch.hung is None
    assert number / 20 == pytest.approx(10.0, abs=0.2)


def test_a_display_is_told_twice_a_second_with_both_rates() -> None:
    seen: list[Snapshot] = []
    watch = watch_of(live=lambda: view(None), on_look=seen.append)
    ticks(watch, 5, 10_000)
    assert len(seen) == 10
    last = seen[-1]
    assert last.client_tok_per_s == pytest.approx(20_000)
    assert last.server_tok_per_s == 100.0
    assert last.running == 4.0
    assert last.left_s == pytest.approx(55.0)

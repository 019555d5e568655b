"""What a display is told of a burst while it runs, on counts that are made up."""

from __future__ import annotations

import pytest

from concbench.domain import Cell
from concbench.load.generator import Progress
from concbench.measure.glance import Glance
from concbench.measure.signs import Signs
from concbench.measure.watch import Snapshot
from concbench.observe.observer import LiveView

TICK_NS = 50_000_000
CELL = Cell(cell="a.short.c4", lane="a", concurrency=4, context_tok=50)


def at(elapsed_ns: int, received: int, in_flight: int = 4) -> Progress:
    return Progress(elapsed_ns, in_flight, 4 - in_flight, 0, received)


def view(running: float | None = 4.0, waiting: float | None = 0.0) -> LiveView:
    return LiveView(0, running, waiting, 100.0, 198.0, 1, 0, 0)


def glance(seen: list[Snapshot], bytes_per_tok: float = 100.0, **server: float | None) -> Glance:
    return Glance(
        CELL, "measured", (4, 4 * 200), bytes_per_tok, lambda: view(**server), seen.append
    )


def test_it_looks_twice_a_second_and_tells_counts_rates_and_time_left() -> None:
    seen: list[Snapshot] = []
    watching = glance(seen)
    for tick in range(1, 41):  # 2 s, 1,000 bytes a tick: 200 tok/s
        watching.tick(at(tick * TICK_NS, tick * 1_000))
    assert [round(now.elapsed_s, 3) for now in seen] == [0.5, 1.0, 1.5, 2.0]
    last = seen[-1]
    assert last.client_tok_per_s == pytest.approx(200)
    assert last.server_tok_per_s == 198.0
    assert last.left_s == pytest.approx(2.0)  # 400 of 800 tokens have come
    assert (last.in_flight, last.running, last.asked) == (4, 4.0, 4)
    assert (last.cell, last.phase, last.signs) == ("a.short.c4", "measured", ())


def test_the_rate_is_of_the_last_two_seconds() -> None:
    seen: list[Snapshot] = []
    watching, received = glance(seen), 0
    for tick in range(1, 121):
        received += 1_000 if tick <= 60 else 250
        watching.tick(at(tick * TICK_NS, received))
    assert seen[-1].client_tok_per_s == pytest.approx(50)


def test_before_the_first_byte_and_without_a_pace_there_is_no_rate_and_no_guess() -> None:
    silent: list[Snapshot] = []
    glance(silent).tick(at(600_000_000, 0))
    unknown: list[Snapshot] = []
    glance(unknown, bytes_per_tok=0.0).tick(at(600_000_000, 9_000))
    assert [(now.client_tok_per_s, now.left_s) for now in silent + unknown] == [(None, None)] * 2


def signs(*looks: tuple[Progress, LiveView | None], most: int | None = 4) -> list[tuple[str, ...]]:
    watching = Signs(most)
    return [watching.look(*one) for one in looks]


def test_a_queue_inside_the_server_is_a_sign_once_two_looks_agree() -> None:
    first, second = signs(
        (at(TICK_NS, 100), view(2.0, 2.0)),
        (at(2 * TICK_NS, 200), view(2.0, 2.0)),
    )
    assert first == ()
    assert second == ("oversubscribed: 2 wait inside the server",)


def test_more_running_than_we_ever_sent_is_foreign_traffic() -> None:
    looks = [(at(k * TICK_NS, 100 * k), view(6.0)) for k in (1, 2)]
    assert signs(*looks)[1] == ("foreign_traffic: the server runs 6, 4 are ours",)
    assert signs(*looks, most=None)[1] == ()


def test_no_byte_for_two_seconds_is_a_sign_only_after_answers_began() -> None:
    s = 1_000_000_000
    begun = signs((at(s, 100), None), (at(2 * s, 100), None), (at(4 * s, 100), None))
    assert begun == [(), (), ("stalled: no byte for 3 s",)]
    prefill = signs((at(s, 0), None), (at(9 * s, 0), None))
    assert prefill == [(), ()]
    ended = signs((at(s, 100), None), (at(9 * s, 100, in_flight=0), None))
    assert ended == [(), ()]


def test_a_pause_of_the_client_is_told_once() -> None:
    watching = Signs(4)
    for elapsed_ms in (50, 100, 280, 330):
        watching.tick(elapsed_ms * 1_000_000)
    now = at(330_000_000, 100)
    assert watching.look(now, None) == ("client_bound: this client paused for 130 ms",)
    assert watching.look(now, None) == ()


def test_a_slower_step_of_other_machines_is_no_pause() -> None:
    watching = Signs(4)
    for elapsed_ms in (250, 500, 760, 1010):
        watching.tick(elapsed_ms * 1_000_000)
    assert watching.look(at(1_010_000_000, 100), None) == ()
    watching.tick(1_560_000_000)
    assert "paused for 300 ms" in watching.look(at(1_560_000_000, 200), None)[0]

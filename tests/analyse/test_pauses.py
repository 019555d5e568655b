"""A pause of the whole server, told from gaps that are nobody's fault."""

from __future__ import annotations

from concbench.analyse.cell import cell_result
from concbench.analyse.pauses import Pause, longest_pause
from concbench.analyse.streams import streams_of
from tests.analyse.simulate import MS, Reply, S, as_round, steady_stream


def paused(at: int, length: int) -> Reply:
    """200 tokens 20 ms apart, and nothing for so long after that time."""
    times = [k * 20 * MS for k in range(200)]
    return Reply(times=[time if time <= at else time + length for time in times])


def found(*replies: Reply) -> Pause | None:
    return longest_pause(streams_of(as_round(replies)))


def test_a_pause_that_all_streams_share():
    pause = found(paused(2 * S, 5 * S), paused(2 * S, 5 * S))
    assert pause == Pause(2 * S, 7 * S + 20 * MS)
    assert pause.length_s == 5.02


def test_no_pause_while_another_stream_gets_tokens():
    assert found(paused(2 * S, 2 * S), steady_stream(0, 20 * MS, 400)) is None


def test_idle_time_between_answers_is_no_pause():
    assert (
        found(steady_stream(0, 20 * MS, 50), steady_stream(6 * S, 20 * MS, 50, sent=6 * S)) is None
    )


def test_short_and_usual_gaps_are_no_pause():
    assert found(paused(2 * S, 900 * MS)) is None
    assert found(steady_stream(0, 2 * S, 20)) is None
    assert found(Reply()) is None


def test_the_doubt_about_a_wide_interval_names_it():
    rounds = [as_round([paused(2 * S, k % 2 * 5 * S)] * 4, index=k) for k in range(4)]
    _, doubts = cell_result(rounds, target_half_width=0.01)
    (doubt,) = (each for each in doubts if each.code == "wide_interval")
    assert doubt.evidence["pause_s"] == 5.02
    assert "for 5.0 s, 2.0 s into its round" in doubt.message

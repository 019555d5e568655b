"""A signal while something is written waits; a second does not."""

from __future__ import annotations

import os
import signal

import pytest

from concbench.measure.interrupts import Insisted, held


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_waits_until_the_block_has_ended(number: int) -> None:
    before = signal.getsignal(number)
    done = False
    with held() as state:
        os.kill(os.getpid(), number)
        done = True
    assert done
    assert state.came
    assert signal.getsignal(number) is before


def test_the_second_gets_through_at_once() -> None:
    with pytest.raises(Insisted), held():  # noqa: PT012 - it is the second that raises
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)


def test_where_one_came_before_the_next_is_the_second() -> None:
    with pytest.raises(Insisted), held(came=True):
        os.kill(os.getpid(), signal.SIGINT)


def test_without_a_signal_nothing_came() -> None:
    with held() as state:
        pass
    assert not state.came

"""How many rounds a cell gets, and why it ended, by what its rounds showed."""

from __future__ import annotations

import pytest

from concbench.measure.sweep_rounds import RoundRule, is_narrow, with_rates
from concbench.measure.sweep_state import Standing

NARROW = [100.0, 100.1, 99.9]
WIDE = [100.0, 120.0, 80.0]


def standing(rates: list[float], cell: str = "a.c1") -> Standing:
    state = Standing()
    for index, rate in enumerate(rates):
        state.keep(cell, index, 1.0, rate)
    return state


@pytest.mark.parametrize(
    ("rates", "least", "most", "wanted"),
    [
        ([], 2, 5, 2),
        ([100.0], 2, 5, 2),
        ([100.0, 100.0], 2, 5, 3),
        (NARROW, 2, 5, 3),
        (WIDE, 2, 5, 4),
        (WIDE, 2, 3, 3),
        (WIDE, 5, 5, 5),
        (NARROW, 5, 5, 5),
    ],
)
def test_one_round_more_until_it_is_narrow(rates, least, most, wanted) -> None:
    assert RoundRule(least, most).wanted(standing(rates), "a.c1") == wanted


@pytest.mark.parametrize(
    ("rates", "outcome", "why"),
    [
        (NARROW, None, "interval"),
        (WIDE, None, "interrupt"),
        ([*WIDE, 90.0], None, "rounds_max"),
        (NARROW[:1], None, "interrupt"),
        (NARROW, "hung", "timeout"),
        (NARROW, "crashed", "interrupt"),
    ],
)
def test_why_a_cell_ended(rates, outcome, why) -> None:
    state = standing(rates)
    if outcome is not None:
        state.ended["a.c1"] = (outcome, "for a reason")
    state.keep("a.c1.half", 0, 1.0)
    assert RoundRule(2, 4).ended_by(state) == {"a.c1": why}


def test_two_rounds_have_no_interval() -> None:
    assert not is_narrow(standing([100.0, 100.0]), "a.c1")
    assert is_narrow(standing([100.0] * 3), "a.c1")


def test_a_study_without_rounds_has_no_rates() -> None:
    assert with_rates(Standing(), None).rates == {}


def test_every_point_has_prompts_of_its_own_and_keeps_them() -> None:
    state = Standing()
    assert [state.block("x", 2), state.block("y", 3), state.block("x", 2)] == [0, 2, 0]
    assert state.block("z", 1) == 5

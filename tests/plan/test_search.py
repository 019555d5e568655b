"""The search for the largest level that holds: it doubles, then halves the bracket."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from concbench.plan.search import CLOSE_ENOUGH, RateSearch, Search


def levels_of(search: Search, limit: int) -> list[int]:
    asked = []
    while (level := search.next()) is not None:
        asked.append(level)
        search.tell(level, held=level <= limit)
        assert len(asked) < 64
    return asked


def test_it_doubles_then_halves() -> None:
    search = Search()
    assert levels_of(search, 11) == [1, 2, 4, 8, 16, 11, 13]
    assert (search.holds, search.fails) == (11, 13)


def test_it_goes_down_from_where_it_begins() -> None:
    search = Search(least=16)
    assert levels_of(search, 3) == [16, 8, 4, 2, 3]
    assert (search.holds, search.fails) == (3, 4)


def test_it_ends_at_the_most_that_is_allowed() -> None:
    search = Search(most=6)
    assert levels_of(search, 100) == [1, 2, 4, 6]
    assert (search.holds, search.fails) == (6, None)


def test_one_that_fails_is_the_end() -> None:
    search = Search()
    assert levels_of(search, 0) == [1]
    assert (search.holds, search.fails) == (None, 1)


@given(st.integers(0, 2000), st.integers(1, 64), st.integers(0, 1000))
def test_the_bracket_holds_the_truth_and_is_narrow(limit: int, least: int, more: int) -> None:
    search = Search(least, least + more)
    asked = levels_of(search, limit)
    assert len(set(asked)) == len(asked)
    assert all(1 <= level <= least + more for level in asked)
    assert search.holds is None or search.holds <= limit
    assert search.fails is None or search.fails > limit
    if search.holds is not None and search.fails is not None:
        narrow = search.fails <= CLOSE_ENOUGH * search.holds
        assert narrow or search.fails - search.holds == 1
    if search.holds is None:
        assert search.fails == 1


def rates_of(search: RateSearch, limit: float) -> list[float]:
    """The rates that are asked for where those up to `limit` hold."""
    asked: list[float] = []
    while (rate := search.next()) is not None:
        asked.append(rate)
        search.tell(rate, held=rate <= limit)
        assert len(asked) < 60
    return asked


def test_rates_double_and_then_bisect_on_a_log_scale() -> None:
    search = RateSearch(1, 256)
    assert rates_of(search, 11) == [1, 2, 4, 8, 16, 11.3, 9.51]
    assert (search.holds, search.fails) == (9.51, 11.3)


def test_below_the_first_rate_it_halves_and_gives_up_at_a_64th() -> None:
    search = RateSearch(4)
    assert rates_of(search, 1.5) == [4, 2, 1, 1.41, 1.68]
    search = RateSearch(4)
    assert rates_of(search, 0) == [4, 2, 1, 0.5, 0.25, 0.125, 0.0625]
    assert search.holds is None


def test_what_does_not_hold_again_is_taken_back() -> None:
    search = RateSearch(1, 8)
    rates_of(search, 100)
    assert (search.holds, search.fails) == (8, None)
    search.tell(8, held=False)
    assert (search.holds, search.fails) == (4, 8)
    assert search.next() == 5.66
    levels = Search(1, 8)
    levels_of(levels, 100)
    levels.tell(8, held=False)
    assert (levels.holds, levels.fails) == (4, 8)


@given(st.floats(0.02, 900), st.floats(0.1, 64))
def test_the_rate_is_bracketed_within_a_quarter(limit: float, least: float) -> None:
    search = RateSearch(least, 1000)
    rates_of(search, limit)
    if search.holds is not None:
        assert search.holds <= limit
        assert search.fails is None or limit < search.fails <= CLOSE_ENOUGH * search.holds * 1.001

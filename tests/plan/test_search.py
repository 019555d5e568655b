"""The search for the largest level that holds: it doubles, then halves the bracket."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from concbench.plan.search import CLOSE_ENOUGH, Search


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

"""The bisection of a context ceiling, against lanes whose ceiling is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from concbench.measure.ceiling import find_ceiling


@given(
    truth=st.integers(51, 300_000),
    declared=st.none() | st.integers(1, 400_000),
    most=st.integers(100_000, 600_000),
)
def test_it_is_found_within_one_percent_whatever_the_engine_says(
    truth: int, declared: int | None, most: int
) -> None:
    tried: list[int] = []

    def accepts(tokens: int) -> bool:
        tried.append(tokens)
        return tokens <= truth

    found = find_ceiling(accepts, low=50, declared=declared, most=most)
    assert len(tried) == len(set(tried)) == found.tries <= 30
    assert max(tried) <= most
    assert found.accepted_tok is not None
    assert found.accepted_tok <= truth
    if found.rejected_tok is None:
        assert found.accepted_tok == most <= truth
    else:
        assert truth < found.rejected_tok
        assert found.rejected_tok - found.accepted_tok <= max(1, 0.01 * found.rejected_tok)


def test_an_engine_that_keeps_its_word_takes_three_requests() -> None:
    found = find_ceiling(lambda tokens: tokens <= 32_640, low=50, declared=32_640, most=65_280)
    assert (found.accepted_tok, found.tries) == (32_640, 3)
    assert found.rejected_tok == 32_966


def test_a_lane_that_takes_nothing_at_all() -> None:
    found = find_ceiling(lambda _: False, low=50, declared=1000, most=2000)
    assert found.accepted_tok is None
    assert found.rejected_tok == 1

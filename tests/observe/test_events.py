from hypothesis import given
from hypothesis import strategies as st

from concbench.observe.events import counter_events, two_series
from concbench.observe.page import Page


def pages(*values: float, lives=None):
    identities = lives or [()] * len(values)
    return [
        (10 * index, 10 * index + 5, Page({"generated_tok": value}, {}, {}, tuple(life)))
        for index, (value, life) in enumerate(zip(values, identities, strict=True))
    ]


def told(readings):
    return [(row.labels, row.value, row.sent_ns) for row in counter_events(readings)]


def test_a_counter_that_grows_says_nothing():
    assert told(pages(0, 0, 5, 9, 9)) == []
    assert told([]) == []


def test_a_reset_falls_and_stays_down():
    assert told(pages(10, 90, 3, 40, 200)) == [("reset", -87.0, 20)]


def test_resets_again_and_again_are_no_two_workers():
    assert [label for label, _, _ in told(pages(100, 0, 50, 0, 30, 0))] == ["reset"] * 3


def test_two_workers_in_turns():
    readings = pages(100, 40, 110, 50, 120, 61)
    assert told(readings) == [("two_workers", 6.0, 10)]


def test_a_life_that_ends_is_a_restart_and_one_that_comes_back_is_two_workers():
    assert told(pages(90, 95, 3, 9, lives=[[1], [1], [2], [2]])) == [("restarted", None, 20)]
    assert told(pages(5, 90, 8, 99, lives=[[1], [2], [1], [2]])) == [("two_workers", 3.0, 10)]


def test_a_restart_is_told_once_though_the_counter_fell_as_well():
    assert len(told(pages(90, 1, lives=[[1], [2]]))) == 1


@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=20),
    st.lists(st.integers(1, 9), min_size=3, max_size=20),
)
def test_two_growing_counters_in_turns_are_always_known(one, other):
    a, b, values = 0, 5000, []
    for left, right in zip(one, other, strict=False):
        a, b = a + left, b + right
        values += [b, a]
    assert two_series(values)


@given(st.lists(st.integers(0, 9), max_size=40))
def test_one_growing_counter_is_never_two(steps):
    values = [sum(steps[: index + 1]) for index in range(len(steps))]
    assert not two_series(values)

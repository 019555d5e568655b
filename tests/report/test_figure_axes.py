"""Axes: labels that do not collide, and logarithms that can be read."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.report.figure_axes import LEAST_FACTOR, level_axis, log_axis


def inside(axis):
    low, high = axis["range"]
    return [tick for tick in axis["tickvals"] if 10**low <= tick <= 10**high]


def test_log_axes_have_round_ticks():
    assert log_axis("ms", 30.0, 700.0)["tickvals"] == [10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    assert log_axis("ms", 0.5, 900_000.0)["ticktext"][0] == "0.1"


def test_a_narrow_spread_has_ticks_and_is_not_blown_up():
    axis = log_axis("ms", 50.2, 50.5)
    assert len(inside(axis)) >= 3
    low, high = (10**end for end in axis["range"])
    assert high / low >= LEAST_FACTOR
    assert low < 50.2 < 50.5 < high
    assert axis["title"]["text"] == "ms (logarithmic)"


@given(st.floats(1e-3, 1e6), st.floats(1, 1e7))
def test_every_log_axis_has_ticks_and_keeps_the_data_off_its_frame(low, factor):
    axis = log_axis("ms", low, low * factor)
    assert len(inside(axis)) >= 3
    assert axis["range"][0] < math.log10(low)
    assert math.log10(low * factor) < axis["range"][1]
    assert len(set(axis["ticktext"])) == len(axis["ticktext"])


def test_levels_that_would_stand_on_each_other_lose_their_label():
    shown = level_axis((1, 2, 4, 8, 16, 31, 32, 33, 62, 63, 64, 128), "N")["ticktext"]
    assert shown == ["1", "2", "4", "8", "16", "32", "64", "128"]
    near = level_axis((60, 61, 62, 63, 64), "N")
    assert near["ticktext"] == ["60", "61", "62", "63", "64"]
    crowded = level_axis(tuple(range(1, 200)), "N")["ticktext"]
    assert crowded[0] == "1"
    assert crowded[-1] == "199"
    assert len(crowded) < 20


@pytest.mark.parametrize(
    "levels", [(), (1,), (4, 4.5), (0.5, 1, 2, 4, 8), (1, 2, 3, 4, 5, 6, 7, 8)]
)
def test_levels_with_room_are_all_named(levels):
    axis = level_axis(levels, "req/s")
    assert axis["tickvals"] == list(levels)
    assert axis["title"]["text"] == "requests asked for a second"

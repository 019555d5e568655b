from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.errors import UsageError
from concbench.plan.order import Run, ab_order, cell_order, letters_of, pair_seed


@pytest.mark.parametrize(
    ("pairs", "letters"),
    [
        (1, "ABA"),
        (2, "ABBAA"),
        (3, "ABBAABA"),
        (4, "ABBAABBAA"),
        (5, "ABBAABBAABA"),
        (7, "ABBAABBAABBAABA"),
    ],
)
def test_pairs_and_closing_control(pairs, letters):
    assert letters_of(ab_order(pairs)) == letters


def test_going_on_after_a_look():
    assert letters_of(ab_order(5)) == "ABBAABBAABA"
    assert letters_of(ab_order(7, first_pair=5)) == "BAABA"
    assert letters_of(ab_order(10, first_pair=7)) == "BAABBAA"
    assert ab_order(6, first_pair=5) == [
        Run(letter="B", pair=5),
        Run(letter="A", pair=5),
        Run(letter="A", pair=None),
    ]


@given(st.integers(1, 30))
def test_a_linear_drift_cancels_over_two_pairs(half):
    runs = ab_order(2 * half)[:-1]
    place = {(run.pair, run.letter): at for at, run in enumerate(runs)}
    assert sum(place[pair, "B"] - place[pair, "A"] for pair in range(2 * half)) == 0


@pytest.mark.parametrize(("pairs", "first"), [(0, 0), (-1, 0), (3, 3), (3, -1)])
def test_no_pair(pairs, first):
    with pytest.raises(UsageError, match="at least one pair"):
        ab_order(pairs, first)


def test_each_pair_has_its_own_seed():
    seeds = [pair_seed(1, pair) for pair in range(100)] + [
        pair_seed(2, pair) for pair in range(100)
    ]
    assert len(set(seeds)) == 200
    assert all(0 <= seed < 1 << 63 for seed in seeds)  # fits TOML's and Parquet's integers


def shown(order):
    return " ".join(f"{cell}{number}" for number, cell in order)


def test_rounds_spread_over_time():
    order = cell_order("abcd", 3, seed=1)
    assert [number for number, _ in order] == [0] * 4 + [1] * 4 + [2] * 4
    assert shown(order) == GOLDEN_CELLS
    assert cell_order("abcd", 3, seed=1) == order != cell_order("abcd", 3, seed=2)


GOLDEN_CELLS = "c0 d0 a0 b0 b1 d1 c1 a1 b2 d2 c2 a2"


def test_lanes_are_visited_once_a_round_and_back():
    order = cell_order(["x1", "x2", "y1", "y2", "z1"], 4, seed=3, group=lambda cell: cell[0])
    lanes = "".join(cell[0] for _, cell in order)
    assert lanes == "xxyyz" + "zyyxx" + "xxyyz" + "zyyxx"


@given(st.lists(st.integers(), unique=True, max_size=20), st.integers(0, 5), st.integers(0, 99))
def test_every_cell_has_every_round(cells, rounds, seed):
    for group in (None, lambda cell: cell % 3):
        order = cell_order(cells, rounds, seed, group=group)
        assert Counter(order) == Counter((r, c) for r in range(rounds) for c in cells)
        assert [r for r, _ in order] == sorted(r for r, _ in order)

"""Messages that differ in numbers alone are told once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from concbench.report.alike import MOST_PLACES, merged, places


def test_numbers_that_differ_become_a_range_and_the_others_stay() -> None:
    told = {
        "the client read late (p99_ms 1.13, tpot_ms 6.69) where ± 1 % was wanted": ["a · N = 1"],
        "the client read late (p99_ms 11.3, tpot_ms 24) where ± 1 % was wanted": ["a · N = 4"],
        "something else": [],
    }
    assert merged(told) == [
        (
            "the client read late (p99_ms 1.13–11.3, tpot_ms 6.69–24) where ± 1 % was wanted",
            ["a · N = 1", "a · N = 4"],
        ),
        ("something else", []),
    ]


def test_thousands_are_numbers_and_equal_values_stay_one() -> None:
    told = {"1,200 of 5 at 2.0": ["x"], "900 of 5.0 at 2": ["y"]}
    assert merged(told)[0][0] == "900–1,200 of 5 at 2.0"


def test_numbers_in_names_addresses_and_paths_are_no_numbers() -> None:
    told = {
        text: []
        for name in ("q4_1", "10.0.0.2:8000", "v0.8.1", "/tmp/7/x", "a-3", "2026-11-30", "12:30:01")
        for text in (f"lane {name} ended", f"lane {name.replace('1', '9').replace('3', '9')} ended")
    }
    assert [message for message, _ in merged(told)] == list(told)


def test_cells_are_grouped_by_all_but_their_last_word() -> None:
    assert places([]) == ""
    assert places(["N = 4", "N = 8", "N = 4"]) == "N = 4, 8"
    assert places(["a · N = 1", "a · N = 4", "b · N = 1"]) == "a · N = 1, 4; b · N = 1"
    assert places(["alone"]) == "alone"
    many = [f"lane{k} · N = {n}" for k in range(MOST_PLACES + 2) for n in (1, 2)]
    assert places(many).endswith("; and 4 more cells")
    assert places(many).count(";") == MOST_PLACES


@given(st.dictionaries(st.text(), st.lists(st.text(max_size=5), max_size=3), max_size=6))
def test_no_cell_is_lost_and_a_message_alone_is_untouched(told: dict[str, list[str]]) -> None:
    found = merged(told)
    assert sorted(cell for _, cells in found for cell in cells) == sorted(
        cell for cells in told.values() for cell in cells
    )
    if len(told) == 1:
        assert [message for message, _ in found] == list(told)


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=5, unique=True))
def test_a_range_holds_every_number(values: list[float]) -> None:
    told = {f"took {value:.6f} s": [] for value in values}
    if len(told) > 1:
        low, _, high = merged(told)[0][0].split(" ")[1].partition("–")
        assert all(float(low) <= float(f"{value:.6f}") <= float(high) for value in values)


def test_levels_ascend_whatever_their_order_was() -> None:
    assert places(["N = 16", "N = 2", "N = 1,024", "N = 4"]) == "N = 2, 4, 16, 1,024"
    assert places(["b · N = 8", "a · N = 2", "b · N = 1"]) == "b · N = 1, 8; a · N = 2"
    assert places(["req/s = 2.5", "req/s = 0.5"]) == "req/s = 0.5, 2.5"
    assert places(["the whole", "the end"]) == "the whole, end"

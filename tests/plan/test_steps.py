"""The order of a sweep's rounds."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from concbench.plan.file import parse_plan
from concbench.plan.matrix import MatrixCell, cells_of, variants
from concbench.plan.steps import Step, steps_of

PLAN = """
[lanes.a]
url = "http://127.0.0.1:1"
[lanes.b]
url = "http://127.0.0.1:2"
[sweep]
contexts = ["short", 5000]
concurrency = [1, 4]
"""


def matrix(*lanes: str) -> list[MatrixCell]:
    plan = parse_plan(PLAN, "plan.toml")
    return [c for v in variants(plan) if v.lane in lanes for c in cells_of(plan, v, 16)]


def rounds(steps: list[Step]) -> list[Step]:
    return [step for step in steps if step.kind == "round"]


@given(count=st.integers(1, 5), seed=st.integers(0, 2**53))
def test_every_cell_has_each_round_once_and_none_a_second_before_all_had_the_first(
    count: int, seed: int
) -> None:
    steps = rounds(steps_of(matrix("a", "b"), count, seed))
    assert Counter((s.cell_id, s.index) for s in steps).total() == 8 * count
    assert len({(s.cell_id, s.index) for s in steps}) == 8 * count
    assert [s.index for s in steps] == sorted(s.index for s in steps)
    assert steps == rounds(steps_of(matrix("a", "b"), count, seed))


def test_two_lanes_take_turns_at_each_point_and_change_who_is_first() -> None:
    steps = rounds(steps_of(matrix("a", "b"), 2, 3))
    for first, second in list(pairwise(steps))[::2]:
        assert first.cell.cell.context_tok == second.cell.cell.context_tok
        assert first.cell.cell.concurrency == second.cell.cell.concurrency
        lanes = (first.cell.cell.lane, second.cell.cell.lane)
        assert lanes == (("a", "b") if first.index == 0 else ("b", "a"))


def test_the_order_depends_on_the_seed() -> None:
    orders = {tuple(s.cell_id for s in steps_of(matrix("a"), 2, seed)) for seed in range(20)}
    assert len(orders) > 5


def test_one_request_of_a_long_context_is_followed_by_half_of_it() -> None:
    steps = steps_of(matrix("a"), 2, 0)
    halves = [place for place, step in enumerate(steps) if step.kind == "half"]
    assert [steps[place].cell_id for place in halves] == ["a.5000.c1.half"] * 2
    assert all(steps[place - 1].cell_id == "a.5000.c1" for place in halves)
    assert {steps[place].prompt_tok for place in halves} == {2500}


def test_the_first_cell_of_each_lane_is_repeated_last_as_the_control() -> None:
    steps = steps_of(matrix("a", "b"), 2, 9)
    first = {s.cell.cell.lane: s for s in reversed(steps) if s.kind == "round"}
    assert [s.kind for s in steps[-2:]] == ["control", "control"]
    assert {s.cell_id for s in steps[-2:]} == {f"{s.cell_id}.control" for s in first.values()}


def test_a_single_cell_needs_no_control() -> None:
    only = [matrix("a")[0]]
    assert [s.kind for s in steps_of(only, 3, 0)] == ["round"] * 3

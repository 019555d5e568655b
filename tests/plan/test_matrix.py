"""The matrix of a sweep."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.errors import PlanError
from concbench.plan.file import parse_plan
from concbench.plan.matrix import (
    Rung,
    cells_of,
    estimate_s,
    file_name,
    guess_s,
    identity,
    ladder,
    pace,
    variants,
)

PLAN = """
[study]
name = "cluster"
[lanes.gguf]
engine = "llamacpp"
model = "m.gguf"
[lanes.nvfp4]
engine = "vllm"
model = "m"
[sweep]
contexts = ["short", 5000]
concurrency = "auto"
[sweep.vary.nvfp4]
gpu-memory-utilization = [0.80, 0.85]
"""


def test_the_published_ladder_of_a_32k_context() -> None:
    """A pool of 635,712 tokens at 32,000 + 128: 19 inside, 29 at half as much again."""
    rungs = ladder(635_712, 32_000, 128)
    assert [r.concurrency for r in rungs] == [1, 2, 4, 8, 16, 19, 29]
    assert [r.over_kv for r in rungs] == [False] * 6 + [True]


@given(
    pool=st.integers(1, 10_000_000),
    context=st.integers(1, 200_000),
    output=st.integers(1, 4096),
    over=st.floats(1, 4),
    cap=st.none() | st.integers(1, 512),
)
def test_inside_fits_the_pool_and_only_the_last_is_over_it(
    pool: int, context: int, output: int, over: float, cap: int | None
) -> None:
    rungs = ladder(pool, context, output, oversubscribe=over, cap=cap)
    ns = [r.concurrency for r in rungs]
    assert ns == sorted(set(ns))
    for rung in rungs:
        assert rung.over_kv == (rung.concurrency * (context + output) > pool)
        assert rung.capped == (cap is not None and rung.concurrency > cap)
    assert all(not r.over_kv for r in rungs[:-1])


def test_without_a_known_pool_the_cap_is_the_end_and_half_as_much_beyond() -> None:
    assert [r.concurrency for r in ladder(None, 50, 128)] == [1, 2, 4, 8]
    capped = ladder(None, 50, 128, cap=6)
    assert [r.concurrency for r in capped] == [1, 2, 4, 6, 9]
    assert capped[-1] == Rung(concurrency=9, capped=True)


def test_a_varied_lane_repeats_its_first_value_last_as_the_control() -> None:
    found = variants(parse_plan(PLAN, "plan.toml"))
    assert [v.name for v in found] == [
        "gguf",
        "nvfp4[gpu-memory-utilization=0.8]",
        "nvfp4[gpu-memory-utilization=0.85]",
        "nvfp4[gpu-memory-utilization=0.8]~control",
    ]


def test_cells_have_names_that_are_unique_and_fit_for_files() -> None:
    plan = parse_plan(PLAN, "plan.toml")
    names = [
        c.cell.cell
        for v in variants(plan)
        for c in cells_of(plan, v, 128, pool_tok=40_000, max_context_tok=32_768, link="5g")
    ]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", name) for name in names)


def test_a_context_over_the_limit_is_tried_once() -> None:
    plan = parse_plan(PLAN, "plan.toml")
    cells = cells_of(plan, variants(plan)[0], 128, pool_tok=40_000, max_context_tok=4096)
    assert [c.cell.concurrency for c in cells if c.cell.context_tok == 5000] == [1]


def test_a_list_of_concurrencies_is_taken_as_it_is_and_marked() -> None:
    text = PLAN.replace('concurrency = "auto"', "concurrency = [1, 4, 16]")
    plan = parse_plan(text, "plan.toml")
    cells = cells_of(plan, variants(plan)[0], 100, pool_tok=2_000, cap=8)
    short = [c for c in cells if c.cell.context_tok == 50]
    assert [(c.cell.concurrency, c.over_kv, c.capped) for c in short] == [
        (1, False, False),
        (4, False, False),
        (16, True, True),
    ]
    assert short[-1].demand_tok == 16 * 150


def test_too_many_cells_are_refused() -> None:
    numbers = ", ".join(str(n) for n in range(1, 20_002))
    plan = parse_plan(PLAN.replace('"auto"', f"[{numbers}]"), "plan.toml")
    with pytest.raises(PlanError, match="fewer values"):
        cells_of(plan, variants(plan)[0], 10)


def test_names_that_differ_stay_different() -> None:
    assert file_name("a/b") != file_name("a:b")
    assert file_name("plain-name_1") == "plain-name_1"


def test_the_estimate_prefers_what_was_measured() -> None:
    plan = parse_plan(PLAN, "plan.toml")
    cells = cells_of(plan, variants(plan)[0], 100, pool_tok=400)
    guess = estimate_s(cells, 2)
    known = estimate_s(cells, 2, measured_s={c.cell.cell: 1.0 for c in cells})
    assert guess > 0
    assert known == pytest.approx(len(cells) * 3)


def test_identity_sees_every_part() -> None:
    assert identity({"a": 1}, "x") == identity({"a": 1}, "x")
    assert identity({"a": 1}, "x") != identity({"a": 2}, "x")


def test_the_engines_own_cap_takes_the_pools_place_where_it_is_met_first() -> None:
    """4 slots over a pool of 128: 735 at once would show nothing that 6 do not."""
    rungs = ladder(131_072, 50, 128, cap=4)
    assert [r.concurrency for r in rungs] == [1, 2, 4, 6]
    assert [r.capped for r in rungs] == [False, False, False, True]
    assert not any(r.over_kv for r in rungs)
    full = ladder(1024, 240, 16, cap=4)
    assert full[-1] == Rung(concurrency=6, capped=True, over_kv=True)


def test_the_pace_is_what_was_measured_against_what_was_guessed() -> None:
    plan = parse_plan(PLAN, "plan.toml")
    cells = cells_of(plan, variants(plan)[0], 100, pool_tok=40_000)
    assert pace(cells, {}) == 1.0
    doubled = {c.cell.cell: 2 * guess_s(c) for c in cells[:3]}
    assert pace(cells, doubled) == pytest.approx(2.0)

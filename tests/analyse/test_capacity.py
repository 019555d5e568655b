"""Capacity: the largest measured level that is shown to hold, bracketed by the first that fails."""

from __future__ import annotations

from typing import Any

import pytest

from concbench.analyse.capacity import Capacity, capacity
from concbench.domain import Doubt, Estimate, Summary, TargetFacts
from concbench.plan.levels import parse_slo
from concbench.report.capacity import answer
from concbench.result import (
    CellResult,
    Client,
    Instrument,
    Ledger,
    Requests,
    Server,
    Steady,
    Tokens,
)

SLO = parse_slo("ttft_p95=2s,user_tok_per_s=20")
NONE = Summary(n=0)
FACTS = TargetFacts(lane="a", engine="vllm", base_url="http://x", kv_capacity_tok=10_000)


def a_summary(p95: float, high: float | None, mean: float | None = None) -> Summary:
    ci = {"p95": None if high is None else (p95 * 0.9, high)}
    return Summary(n=100, mean=mean or p95, p95=p95, ci=ci)


def a_cell(
    n: int,
    ttft_ms: float = 500.0,
    tpot_ms: float = 20.0,
    *,
    width: float | None = 1.05,
    failed: int = 0,
    rate: float | None = None,
    **changes: Any,
) -> CellResult:
    """A level whose bounds lie `width` times above its points; e2e is 5 s, 100 tokens each."""

    def told(value: float) -> Summary:
        return a_summary(value, None if width is None else value * width)

    figure = Estimate(point=rate or 40.0 * n, low=None, high=None, n=4, method="")
    client = Client(
        output_tok_per_s=figure,
        per_request_tok_per_s=NONE,
        ttft_ms=told(ttft_ms),
        ttft_from_due_ms=NONE,
        ttfo_ms=NONE,
        icl_ms=NONE,
        itl_ms=NONE,
        tpot_ms=told(tpot_ms),
        e2e_ms=a_summary(6000, None, 5000),
        e2e_from_due_ms=NONE,
        send_delay_ms=NONE,
    )
    fields: dict[str, Any] = {
        "cell": f"a.c{n}",
        "lane": "a",
        "context_label": "400",
        "context_tok": 400,
        "concurrency": n,
        "rounds": 4,
        "requests": Requests(sent=100, ok=100 - failed, failed=failed),
        "tokens": Tokens(output=100 * (100 - failed)),
        "ledger": Ledger(),
        "client": client,
        "steady": Steady(found=False),
        "server": Server(),
        "instrument": Instrument(
            stamp="kernel", read_lateness_ms=NONE, late_after_stamp_ms=NONE, loop_lag_ms=NONE
        ),
    }
    return CellResult(**{**fields, **changes})


def of(*cells: CellResult, doubts: list[Doubt] | None = None, think_s: float = 0.0) -> Capacity:
    (found,) = capacity(cells, doubts or [], {"a": FACTS}, SLO, think_s)
    return found


def test_the_largest_level_that_holds_and_the_first_that_fails() -> None:
    found = of(a_cell(1), a_cell(4), a_cell(8), a_cell(16, ttft_ms=2500))
    assert (found.holds, found.fails, found.open) == (8, 16, [])
    assert found.levels[-1].why == "over the limit of ttft_p95"


def test_a_bound_over_the_limit_leaves_a_level_open() -> None:
    # 1.95 s · 1.05 = 2.05 s, over 2 s
    found = of(a_cell(4), a_cell(8, ttft_ms=1950))
    assert (found.holds, found.fails, found.open) == (4, None, [8])
    assert "the interval reaches over the limit of ttft_p95" in found.levels[1].why


def test_too_few_requests_show_nothing() -> None:
    found = of(a_cell(4, width=None))
    assert (found.holds, found.open) == (None, [4])
    assert found.levels[0].why == "too few requests for an interval"


def test_a_floor_on_a_users_speed_is_a_limit_on_tpot() -> None:
    # 50 ms a token are 20 tok/s: the point just holds, its bound does not.
    held, opened, failed = (of(a_cell(4, tpot_ms=ms)) for ms in (47.0, 49.9, 50.1))
    assert (held.holds, opened.open, failed.fails) == (4, [4], 4)
    speed = held.levels[0].objectives[1]
    assert speed.value == pytest.approx(1000 / 47)
    assert speed.bound == pytest.approx(1000 / 47 / 1.05)


def test_errors_above_one_percent_fail_a_level() -> None:
    assert of(a_cell(4, failed=1)).holds == 4
    found = of(a_cell(2), a_cell(4, failed=2))
    assert (found.holds, found.fails) == (2, 4)
    assert "2.0 %" in found.levels[1].why


def test_a_level_above_the_first_that_fails_does_not_count() -> None:
    assert of(a_cell(2), a_cell(4, ttft_ms=9000), a_cell(8)).holds == 2


def test_a_fatal_doubt_leaves_no_capacity() -> None:
    doubt = Doubt(code="client_bound", severity="fatal", message="m", cell="a.c8")
    found = of(a_cell(4), a_cell(8), doubts=[doubt])
    assert (found.holds, found.open) == (4, [8])
    whole = Doubt(code="clock_stepped", severity="fatal", message="m")
    assert of(a_cell(4), a_cell(8), doubts=[whole]).holds is None


def test_a_crash_fails_with_its_reason() -> None:
    crashed = a_cell(8, outcome="oom", outcome_detail="CUDA out of memory")
    found = of(a_cell(4), crashed)
    assert (found.fails, found.levels[1].why) == (8, "CUDA out of memory")


def test_what_was_not_measured_neither_holds_nor_fails() -> None:
    none = Requests()
    for outcome, why in (
        ("interrupted", "interrupted"),
        ("measured", "no request of it ended"),
        ("skipped", "skipped"),
    ):
        found = of(a_cell(4), a_cell(8, outcome=outcome, requests=none, rounds=0))
        assert (found.holds, found.fails, found.open) == (4, None, [])
        assert (found.levels[1].standing, found.levels[1].why) == ("unmeasured", why)
        assert answer(found, 0.0) == (
            f"4 at once hold the objectives; no higher level was shown to fail; "
            f"not measured at 8 ({why})"
        )
    crashed = of(a_cell(4), a_cell(8, outcome="crashed", requests=none, rounds=0))
    assert crashed.fails == 8


def test_users_who_pause_are_more_than_what_is_in_flight() -> None:
    # N · (1 + Z ÷ E2E) = 8 · (1 + 30 ÷ 5)
    assert of(a_cell(8), think_s=30).users == pytest.approx(56)
    assert of(a_cell(8)).users == pytest.approx(8)


def test_what_the_pool_holds_and_where_the_knee_is() -> None:
    found = of(a_cell(1), a_cell(8, rate=200.0), a_cell(16, rate=200.0))
    # 10,000 ÷ (400 + 100) requests; 200 tok/s · 5 s ÷ 100 tokens
    assert found.n_kv == 20
    assert found.knee == pytest.approx(10)
    assert found.ceiling == "reached"
    assert of(a_cell(2)).knee is None


def test_series_are_kept_apart_and_open_loops_left_out() -> None:
    cells = [a_cell(4), a_cell(4, lane="b"), a_cell(4, link="5g"), a_cell(0, rate_rps=2.0)]
    found = capacity(cells, [], {}, SLO)
    assert [(each.lane, each.link) for each in found] == [("a", None), ("b", None), ("a", "5g")]
    assert all(each.n_kv is None for each in found)

"""Capacity in requests a second: held rates, saturated ones, and what nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest

from concbench.analyse.ratecapacity import RateCapacity, rate_capacity
from concbench.domain import Doubt
from concbench.report.ratecapacity import rate_answer
from concbench.result import CellResult, Requests
from tests.analyse.test_capacity import SLO, a_cell


def a_rate(rps: float, state: str = "stable", ttft_ms: float = 500.0, **more: Any) -> CellResult:
    load = {
        "state": state,
        "queue_slope_per_s": 2.5 if state == "saturated" else 0.0,
        "completions_per_arrival": 0.7 if state == "saturated" else 1.0,
        "sent_rps": rps,
    }
    fields: dict[str, Any] = {
        "cell": f"a.r{rps:g}", "concurrency": 0, "rate_rps": rps, "saturation": load,
    }  # fmt: skip
    found = a_cell(4, ttft_ms, width=more.pop("width", 1.05), failed=more.pop("failed", 0))
    for name, value in {**fields, **more}.items():
        setattr(found, name, value)
    return found


def of(*cells: CellResult, doubts: list[Doubt] | None = None, think_s: float = 0) -> RateCapacity:
    (found,) = rate_capacity(cells, doubts or [], SLO, think_s)
    return found


def test_the_largest_rate_below_the_first_that_fails() -> None:
    found = of(a_rate(8), a_rate(2), a_rate(4), a_rate(16, ttft_ms=2500))
    assert (found.holds_rps, found.fails_rps, found.open_rps) == (8, 16, [])
    assert [level.rate_rps for level in found.levels] == [2, 4, 8, 16]
    assert found.confirmed_rounds == 4


def test_a_growing_queue_fails_whatever_the_latency_was() -> None:
    found = of(a_rate(4), a_rate(8, "saturated", ttft_ms=10))
    assert (found.holds_rps, found.fails_rps) == (4, 8)
    assert found.levels[1].why == "saturated: +2.5 more in flight each second"


def test_too_short_to_tell_is_open() -> None:
    found = of(a_rate(4), a_rate(8, "undetermined"))
    assert (found.holds_rps, found.fails_rps, found.open_rps) == (4, None, [8])
    assert found.levels[1].why == "too short to tell whether the queue grows"


def test_users_by_littles_law() -> None:
    # E2E is 5 s: 4 a second are 20 at once, and with 10 s of thought 60 users.
    level = of(a_rate(4), think_s=10).levels[0]
    assert (level.in_flight, level.users) == (pytest.approx(20), pytest.approx(60))
    # Where the queue grows there is no such number.
    level = of(a_rate(4, "saturated"), think_s=10).levels[0]
    assert (level.in_flight, level.users) == (None, None)


def test_a_rate_that_the_client_did_not_keep_says_nothing_of_the_box() -> None:
    slow = Doubt(code="rate_not_kept", severity="warning", message="m", cell="a.r8")
    found = of(a_rate(4), a_rate(8, "saturated"), doubts=[slow])
    assert (found.holds_rps, found.fails_rps, found.open_rps) == (4, None, [8])
    assert found.levels[1].standing == "doubted"
    fatal = Doubt(code="client_bound", severity="fatal", message="m", cell="a.r8")
    found = of(a_rate(4), a_rate(8, "saturated"), doubts=[fatal])
    assert found.levels[1].standing == "doubted"


def test_a_rate_without_a_round_does_not_bracket_the_answer() -> None:
    lost = a_rate(4, requests=Requests(), rounds=0, outcome="interrupted", saturation=None)
    found = of(a_rate(2), lost)
    assert (found.holds_rps, found.fails_rps, found.open_rps) == (2, None, [])
    assert rate_answer(found, 0.0).endswith("not measured at 4 (interrupted)")


def test_closed_loops_are_no_rates() -> None:
    assert rate_capacity([a_cell(4)], [], SLO) == []

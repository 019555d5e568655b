"""The view of a running study and the page around it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.domain import Cell
from concbench.report.following import (
    RoundLine,
    cell_line,
    left_s,
    level_name,
    page,
    page_policy,
    series_name,
)

HOSTILE = "<img src=x onerror=alert(1)>\"'\n\u202e\u200b\x1b[31m" + "ä" * 10_000


def a_line(steady: float | None, batch: float | None = 90.0, **changes: object) -> RoundLine:
    fields: dict[str, object] = {
        "round": "r",
        "cell": "c",
        "phase": "measured",
        "outcome": "measured",
        "ok": 4,
        "sent": 4,
        "took_s": 2.0,
        "batch_tok_per_s": batch,
        "steady_tok_per_s": steady,
    }
    return RoundLine(**{**fields, **changes})  # type: ignore[arg-type]


CELL = Cell(cell="a.short.c4", lane="a", concurrency=4, context_tok=50)


def test_three_rounds_have_an_interval_two_a_range_one_says_so() -> None:
    one = cell_line(CELL, [a_line(100.0)])
    two = cell_line(CELL, [a_line(100.0), a_line(102.0)])
    three = cell_line(CELL, [a_line(100.0), a_line(101.0), a_line(102.0)])
    assert (one.steady, one.steady_spread) == ("100", "(1 round)")
    assert two.steady_spread == "(100.0–102.0)"
    # 4.303 · 1 / √3 = 2.48 of 101
    assert three.steady_spread == "± 2.5 %"
    assert three.point == pytest.approx(101.0)


def test_what_is_discarded_or_retracted_does_not_count() -> None:
    lines = [
        a_line(100.0),
        a_line(1.0, phase="discarded"),
        a_line(1.0, phase="warmup"),
        a_line(1.0, retracted=True),
    ]
    line = cell_line(CELL, lines)
    assert (line.rounds, line.points, line.sent) == (1, [100.0], 4)


def test_without_a_steady_window_the_batch_figure_is_drawn_and_says_so() -> None:
    line = cell_line(CELL, [a_line(None), a_line(None)])
    assert line.points == [90.0, 90.0]
    assert not line.steady_known
    assert line.steady == "–"


def test_a_cell_with_nothing_has_no_point() -> None:
    line = cell_line(CELL, [a_line(None, None, outcome="crashed", ok=0)])
    assert line.point is None
    assert line.points == []
    assert line.outcome == "crashed"


def test_names_are_harmless() -> None:
    cell = Cell(cell=HOSTILE, lane=HOSTILE, concurrency=1, context_tok=1, link=HOSTILE)
    line = cell_line(cell, [])
    for text in (line.cell, line.series, series_name(cell)):
        assert len(text) < 400
        assert not re.search("[\n\x1b\u202e\u200b]", text)


def test_levels_are_named_by_concurrency_or_rate() -> None:
    assert level_name(CELL) == "N = 4"
    rate = Cell(cell="r", lane="a", concurrency=0, context_tok=1, rate_rps=2.5)
    assert level_name(rate) == "2.5 req/s"
    assert cell_line(rate, []).level == 2.5


def test_time_left_is_that_of_the_rounds_still_to_come() -> None:
    assert left_s(2, 8, 20.0, 0.0) == pytest.approx(60.0)
    assert left_s(2, 8, 20.0, 4.0) == pytest.approx(56.0)
    assert left_s(9, 8, 20.0, 4.0) == 0.0
    assert left_s(0, 8, 0.0, 0.0) is None
    assert left_s(3, None, 20.0, 0.0) is None


@given(
    st.integers(0, 100),
    st.none() | st.integers(0, 100),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
)
def test_time_left_is_never_negative(
    done: int, planned: int | None, took_s: float, idle_s: float
) -> None:
    left = left_s(done, planned, took_s, idle_s)
    assert left is None or left >= 0


def test_the_page_asks_nobody_else_and_is_whole() -> None:
    text = page()
    assert "/* style */" not in text
    assert "/* script */" not in text
    assert not re.search(r"""(src|href)=["'](https?:)?//""", text)
    assert "@import" not in text
    # The one address in it is a name space, which nothing fetches.
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}


def test_the_script_never_makes_markup_of_text() -> None:
    ways = "innerHTML|outerHTML|insertAdjacentHTML|document.write|eval|Function|srcdoc"
    assert not re.search(rf"\b({ways})\b", page())


def test_the_policy_lets_only_the_own_script_run() -> None:
    policy = page_policy()
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}';", policy)
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_every_id_that_the_script_fills_is_on_the_page() -> None:
    text = page()
    named = set(re.findall(r'at\("(\w+)"\)', text)) | set(re.findall(r'rows\("(\w+)"', text))
    assert named >= {"sentence", "cells", "doubts", "plot"}
    assert all(f'id="{name}"' in text for name in named)

import os
from pathlib import Path

import pytest

from concbench.domain import Doubt
from concbench.report.terminal import render
from concbench.result import Result, Steady
from tests.report.conftest import HOSTILE, burst, comparison, console, text_of

EXPECTED = Path(__file__).parent / "expected"


def over_the_cap() -> Result:
    result = burst((1, 8, 16), rounds=2)
    result.cells[2].client.steady_output_tok_per_s = None
    result.cells[2].steady = Steady(found=False, reason="16 exceeds the 8 slots")
    result.interrupted = True
    result.corrections = [
        {
            "round": "r1",
            "why": "the recipe had lost its flags",
            "by": "r9",
            "at_utc": "2026-11-30T08:00:00Z",
        }
    ]
    result.doubts.append(
        Doubt(
            code="client_bound",
            severity="fatal",
            message="the client used 99 % of a core",
            cell=result.cells[1].cell,
        )
    )
    return result


def rendered(result, width, page=None):
    target = console(width)
    render(result, target, page=page)
    return "\n".join(line.rstrip() for line in text_of(target).splitlines()) + "\n"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("make", [burst, comparison, over_the_cap])
def test_looks_as_expected(make, width):
    text = rendered(make(), width, page="studies/x/report.html")
    path = EXPECTED / f"{make.__name__}_{width}.txt"
    if os.environ.get("CONCBENCH_REFRESH"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_table_fits_and_loses_nothing(width):
    text = rendered(burst(), width)
    table = text.partition("\n\n")[2].partition("every doubling")[0]
    assert max(map(len, table.splitlines())) <= width
    for number in ("57.10 ± 0.4 %", "436.2", "7.6 ×", "0.91", "+0.2 %", "414"):
        assert number in table


def test_corrections_come_first():
    assert rendered(over_the_cap(), 120).startswith("CORRECTION  round r1 is retracted")


def test_hostile_text_sends_no_control_characters():
    result = burst(lane=HOSTILE)
    result.doubts = [Doubt(code=HOSTILE, severity="fatal", message=HOSTILE, cell=HOSTILE)]
    text = rendered(result, 80)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text) < 6_000


def test_no_cells():
    result = burst(())
    assert "no cells were measured" in rendered(result, 80)

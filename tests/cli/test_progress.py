"""What is shown while measuring: levels, last rate, doubts as they arise; lines without a tty."""

from __future__ import annotations

import io
import sys
from typing import Any

import msgspec
import pytest
from rich.console import Console

from concbench.cli.arising import Arising, doubt_text
from concbench.cli.live import LiveDisplay, snapshot_line
from concbench.cli.progress import Display
from concbench.domain import Doubt, Round
from concbench.measure.watch import Snapshot
from tests.cli.studies import a_round, facts

LANE = facts("a")


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def text_of(display: Display) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(display.board())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def failing(place: int = 0) -> Round:
    return a_round(place, "a", 100.0, failed=1)


def test_without_a_terminal_each_round_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(2, quiet=False, levels=[4]) as display:
        display.now("N = 4: round 1 of 1 is running")
        display.finished(a_round(0, "a", 100.0), LANE)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("N = 4: measured, 4/4 ok, ")
    # 4 in lockstep at 100 tok/s; a window of 119 steps is off by at most one
    assert 98 <= float(lines[0].split(", ")[-1].removesuffix(" tok/s")) <= 102


def test_a_doubt_is_told_once_a_cell_and_when_it_arises(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(3, quiet=False) as display:
        display.finished(a_round(0, "a", 100.0), LANE)
        assert "requests_failed" not in capsys.readouterr().err
        display.finished(failing(1), LANE)
        display.finished(failing(2), LANE)
    assert capsys.readouterr().err.count("! requests_failed") == 1


def test_the_board_shows_levels_rates_and_doubts() -> None:
    display = Display(4, quiet=False, levels=[1, 4])
    assert "N = 1" in text_of(display)
    with display:
        display.now("N = 4: round 2 of 2 is running")
        display.finished(failing(), LANE)
    shown = text_of(display)
    row = next(line for line in shown.splitlines() if line.lstrip().startswith("N = 4 "))
    assert "3/4" in row
    assert "tok/s" in row
    assert "requests_failed" in row
    assert "1/4 rounds" in shown
    assert "! requests_failed" in shown


def test_warmups_and_companions_are_not_figures(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(4, quiet=False)
    warm = msgspec.structs.replace(a_round(0, "a", 1.0), phase="warmup")
    half = a_round(1, "a", 1.0)
    half = msgspec.structs.replace(
        half, cell=msgspec.structs.replace(half.cell, context_label="half")
    )
    with display:
        display.finished(warm, LANE)
        display.finished(half, LANE)
    shown = text_of(display)
    assert "tok/s" not in shown + capsys.readouterr().err
    assert "1/4 rounds" in shown


def test_a_terminal_gets_the_board_and_is_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with Display(2, quiet=False, levels=[4]) as display:
        display.now("N = 4: round 1 of 1 is running")
        display.finished(failing(), LANE)
    written = terminal.getvalue()
    assert "round 1 of 1 is running" in written
    assert "last round" in written
    assert "\x1b[?25h" in written.rpartition("\x1b[?25l")[2]  # the cursor is shown again


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(2, quiet=True) as display:
        display.say("reaching it")
        display.finished(failing(), LANE)
    with LiveDisplay(quiet=True) as live:
        live.say("reaching it")
        live.finished(failing(), LANE)
    assert capsys.readouterr().err == ""


def snapshot(**more: Any) -> Snapshot:
    known: dict[str, Any] = {
        "elapsed_s": 3.0, "left_s": 4.4, "in_flight": 8, "ended": 0, "running": 6.0,
        "waiting": 2.0, "client_tok_per_s": 412.0, "server_tok_per_s": 405.0, "half_width": None,
        "steady": True, "cell": "a.short.c8", "asked": 8,
    }  # fmt: skip
    return Snapshot(**{**known, **more})


def test_a_burst_that_runs_is_told_with_its_estimate_and_the_signs() -> None:
    line = snapshot_line(snapshot(signs=("oversubscribed: 2 wait inside the server",)))
    assert line == (
        "3 s · about 4 s left · 8 in flight · 0 of 8 ended · client 412, server 405 tok/s · "
        "6 running on the server + 2 waiting · ! oversubscribed: 2 wait inside the server"
    )
    # What fits 80 columns is what is needed most.
    assert "client 412, server 405 tok" in line[:79]
    unknown = snapshot(left_s=None, client_tok_per_s=None, server_tok_per_s=None, running=None)
    assert snapshot_line(unknown) == "3 s · 8 in flight · 0 of 8 ended"


def test_the_board_leaves_two_lines_to_write_over(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, ...]] = []
    monkeypatch.setattr("concbench.cli.nowlines.NowLines.show", lambda _, *said: shown.append(said))
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Display(2, quiet=False, levels=[8]) as display:
        assert text_of(display).endswith("\n\n\n")
        display.look(snapshot())
        display.look(snapshot(signs=("stalled: no byte for 3 s",)))
    assert [line[1] for line in shown] == ["", "! stalled: no byte for 3 s (so far)"]
    assert "client 412, server 405 tok/s" in shown[0][0]


def test_without_a_terminal_a_running_burst_says_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Display(2, quiet=False, levels=[8]) as display:
        display.look(snapshot())
    assert capsys.readouterr().err == ""


def test_a_loop_tells_its_rounds_rate_and_doubts(capsys: pytest.CaptureFixture[str]) -> None:
    now = Snapshot(12.0, 48.0, 4, 9, 4.0, 0.0, 99.0, 101.0, 0.012, steady=True)
    with LiveDisplay(quiet=False) as live:
        live.look(now)
        live.finished(failing(), LANE)
    lines = capsys.readouterr().err.splitlines()
    assert "4 in flight" in lines[0]
    assert "at most 48 s left" in lines[0]
    assert "3/4 ok" in lines[1]
    assert lines[1].endswith("tok/s")
    assert any(line.startswith("! requests_failed") for line in lines[2:])


def test_names_are_not_read_as_styles(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(1, quiet=False) as display:
        display.say("reaching [bold]http://[/x]")
    with LiveDisplay(quiet=False) as live:
        live.say("reaching [bold]http://[/x]")
    assert capsys.readouterr().err.count("[bold]http://[/x]") == 2


def test_a_doubt_is_one_harmless_line() -> None:
    doubt = Doubt(code="stalled", severity="fatal", message="a\n\x1b[31mb\u202e" + "x" * 10_000)
    text = doubt_text(doubt, a_round(0, "a", 1.0).cell)
    assert len(text) < 400
    assert not {"\n", "\x1b", "\u202e"} & set(text)


def test_what_more_rounds_decide_is_not_told_of_one() -> None:
    codes = {doubt.code for doubt in Arising().of(a_round(0, "a", 100.0), LANE)}
    assert not codes & {"single_round", "few_rounds", "wide_interval"}

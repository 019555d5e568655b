import os

import pytest

from concbench.cli import following
from concbench.cli.following import Follower
from concbench.cli.main import main
from concbench.cli.study import result_of
from concbench.clock import sleep_s
from concbench.report.headline import headline
from concbench.report.numbers import estimate_number, estimate_spread
from concbench.store.correct import retract
from concbench.store.log import LOG_NAME
from concbench.store.read import open_study
from concbench.store.write import Study
from tests.cli.studies import interleaved


@pytest.fixture
def study(tmp_path):
    return interleaved(tmp_path / "s", {"a": {1: 50.0}}, rounds=4)


def damaged_round(study):
    name = open_study(study).rounds()[1].round_id
    for path in (study / "rounds" / name).iterdir():
        os.truncate(path, 50)
    return f"1 round on record cannot be read ({name})"


def damaged_log(study):
    os.truncate(study / LOG_NAME, 60)
    return "1 line of the log cannot be read and 4 rounds on record are not in the log"


@pytest.mark.parametrize("damage", [damaged_round, damaged_log])
def test_what_cannot_be_read_stands_above_the_report(study, damage, capsys):
    told = damage(study)
    assert main(["report", str(study)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"DAMAGED {told}")
    assert "! record_damaged" in shown
    assert main(["report", str(study), "--md", "-"]) == 0
    assert capsys.readouterr().out.startswith("> **DAMAGED** 1 ")
    found = [each for each in result_of(study).doubts if each.code == "record_damaged"]
    assert [each.severity for each in found] == ["warning"]


@pytest.mark.parametrize("damage", [damaged_round, damaged_log])
def test_who_watches_is_told_of_damage(study, damage):
    told = damage(study)
    follower = Follower(study)
    try:
        assert follower.state([]).events[0].startswith(f"damaged {told}")
    finally:
        follower.close()


def test_a_line_that_is_being_written_is_no_damage(study):
    with Study.resume(study, even_finished=True) as writer:
        with (study / LOG_NAME).open("ab") as log:
            log.write(b'{"seq": 9')
        assert open_study(study).damaged_lines == 0
        writer.close()
        assert open_study(study).damaged_lines == 1


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_who_watches_sees_the_interval_of_the_report(tmp_path, rounds):
    study = interleaved(tmp_path / "s", {"a": {1: 50.0, 4: 180.0}}, rounds=rounds)
    follower = Follower(study)
    try:
        cells = follower.state([]).cells
    finally:
        follower.close()
    result = result_of(study)
    for line, cell in zip(cells, result.cells, strict=True):
        rate = headline(cell, result.doubts).estimate
        assert line.steady == estimate_number(rate)
        assert line.steady_spread == ("(1 round)" if rounds == 1 else estimate_spread(rate))
        assert line.point == pytest.approx(rate.point)


def test_who_watches_reads_corrections_first_and_counts_what_counts(study):
    first = open_study(study).rounds()[0].round_id
    retract(study, first, "a wrong flag")
    follower = Follower(study)
    try:
        while (state := follower.state([])).judging:
            sleep_s(0.05)
    finally:
        follower.close()
    assert len(state.corrections) == 1
    assert "retracted" in state.corrections[0]
    assert "a wrong flag" in state.corrections[0]
    assert (state.done, state.retracted, state.unread) == (3, 1, 0)
    assert state.judged.rounds == 3


def test_a_long_study_is_shown_while_it_is_read(study, monkeypatch):
    monkeypatch.setattr(following, "READ_NS", 0)
    follower = Follower(study)
    try:
        state = follower.state([])
        assert (state.done, state.unread, state.cells) == (4, 4, [])
        monkeypatch.setattr(following, "READ_NS", 10**12)
        state = follower.state([])
        assert (state.unread, len(state.cells)) == (0, 1)
    finally:
        follower.close()


def test_a_study_without_an_end_says_so_above_everything(study, capsys):
    assert "unfinished" not in (result_of(study).payload or {})
    log = study / LOG_NAME
    lines = log.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"finished"' not in line or '"round"' in line]
    assert len(kept) == len(lines) - 1
    log.write_text("".join(kept))
    assert (result_of(study).payload or {})["unfinished"] is True
    assert main(["report", str(study)]) == 0
    assert capsys.readouterr().out.startswith("UNFINISHED  nothing says that it came to its end")
    assert main(["report", str(study), "--md", "-"]) == 0
    assert capsys.readouterr().out.startswith("> **UNFINISHED** nothing says")

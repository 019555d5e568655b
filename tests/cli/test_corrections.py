"""`concbench retract` and `amend`: what the record says afterwards, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from concbench.cli.main import main
from concbench.store.read import open_study
from tests.cli.reading import drawn_in
from tests.cli.studies import alone


def test_a_retraction_is_told_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = alone(tmp_path / "s", "x", [100.0, 100.4, 60.0, 100.2, 100.1])
    assert main(["report", str(folder), "--html", str(folder / "report.html")]) == 0
    (folder / "result.json").write_text("{}")
    capsys.readouterr()
    words = ["retract", str(folder), "00002-x.50.c4", "--why", "another job ran"]
    assert main([*words, "--by", "00004-x.50.c4"]) == 0
    said = capsys.readouterr().out
    assert "is retracted: another job ran" in said
    assert "was  " in said
    assert "now  " in said
    # What lies in the folder to be passed on is not left as it was.
    assert json.loads((folder / "result.json").read_text())["corrections"][0]["why"]
    page = (folder / "report.html").read_text()
    assert "<del>" in page
    assert "another job ran" in page
    assert main(["report", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("CORRECTION  round 00002-x.50.c4 is retracted: another job ran")
    assert "  was  " in shown
    assert main(["report", str(folder), "--md", "-"]) == 0
    assert "~~" in capsys.readouterr().out
    assert main(words) == 2
    assert "already" in capsys.readouterr().err


def test_each_of_a_chain_says_what_it_took_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = alone(tmp_path / "s", "x", [100.0, 100.4, 60.0, 100.2, 80.0])
    for name in ("00002-x.50.c4", "00004-x.50.c4"):
        assert main(["retract", str(folder), name, "--why", "wrong"]) == 0
    capsys.readouterr()
    assert main(["report", str(folder), "--json", "-"]) == 0
    first, second = json.loads(capsys.readouterr().out)["corrections"]
    assert first["was"]
    assert second["was"]
    assert first["was"] != second["was"]


def test_wrong_words_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = alone(tmp_path / "s", "x", [100.0])
    for words in (
        ["retract", str(folder), "r9", "--why", "x"],
        ["retract", str(folder), "00000-x.50.c4", "--why", " "],
        ["retract", str(folder), "00000-x.50.c4"],
        ["retract", str(tmp_path / "absent"), "r", "--why", "x"],
        ["amend", str(folder), "--supersedes", str(folder), "--why", "x"],
    ):
        assert main(words) == 2, words
        assert capsys.readouterr().err.count("\n") == 1
    assert open_study(folder).corrections() == []


def test_an_amendment_is_told_by_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = alone(tmp_path / "old", "x", [100.0] * 3)
    new = alone(tmp_path / "new", "x", [120.0] * 3)
    words = ["amend", str(new), "--supersedes", str(old), "--why", "a newer driver"]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["report", str(old)]) == 0
    name = open_study(new).record.study
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"AMENDED superseded by new (study {name}): a newer driver")
    assert main(["report", str(new), "--md", "-"]) == 0
    assert capsys.readouterr().out.startswith("> **AMENDED** supersedes old (study ")
    assert main(["report", str(old), "--html", str(tmp_path / "p.html")]) == 0
    assert "Amended" in (tmp_path / "p.html").read_text()
    assert main(words) == 2


def test_an_amendment_renews_the_pages_of_both(tmp_path: Path) -> None:
    """What lies in the folders is what people pass on; what was never made is not made."""
    old = alone(tmp_path / "old", "x", [100.0] * 3)
    new = alone(tmp_path / "new", "x", [120.0] * 3)
    assert main(["report", str(old), "--html", str(old / "report.html")]) == 0
    page = tmp_path / "page.html"
    words = ["amend", str(new), "--supersedes", str(old), "--why", "a newer driver"]
    assert main([*words, "--html", str(page)]) == 0
    assert "superseded by" in (old / "report.html").read_text()
    assert "supersedes" in page.read_text()
    for made in (old / "report.html", page):
        assert drawn_in(made).keys() >= {"timeline", "ttft-spread"}
    assert not (new / "report.html").exists()

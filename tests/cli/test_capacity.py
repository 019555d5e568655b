"""`concbench capacity`: an answer from a stored study, on the terminal and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from concbench.cli.main import main
from tests.cli.reading import drawn_in
from tests.cli.studies import a_round, create


def stored(folder: Path) -> Path:
    """A lane at levels 1, 16 and 32: 16 · 6 requests are enough for a bound, 6 are not."""
    with create(folder, {"a": {"kv_capacity_tok": 17_000}}) as writer:
        place = 0
        for level in (1, 16, 32):
            for _ in range(6):
                rate = 50.0 * level if level < 32 else 320.0
                writer.write_round(a_round(place, "a", rate, level=level))
                place += 1
        writer.finish()
    return folder


def test_the_answer_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored(tmp_path / "study")
    assert main(["capacity", str(folder), "--think-s", "60s"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # E2E: 50 ms + 119 steps of 20 ms = 2.43 s; 16 · (1 + 60 ÷ 2.43)
    assert "16 at once hold the objectives, 411 users who pause for 60 s" in lines[0]
    assert "32 at once do not; open at 1" in lines[0]
    # 17,000 ÷ (50 + 120)
    assert any("100 requests of 50 + 120 tokens at once" in line for line in lines)


def test_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored(tmp_path / "study")
    words = ["capacity", str(folder), "--slo", "ttft_p95=10ms", "--json", "-", "--quiet"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)["payload"]["capacity"]
    assert told["slo"] == "ttft_p95=10ms"
    (series,) = told["series"]
    assert (series["holds"], series["fails"]) == (None, 16)
    assert [level["standing"] for level in series["levels"]] == ["open", "fails", "fails"]


def test_an_objective_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capacity", str(tmp_path), "--slo", "speed=1"]) == 2
    assert "--slo" in capsys.readouterr().err
    assert main(["capacity", str(tmp_path / "nothing")]) == 2


def test_the_page_says_the_answer_and_draws_the_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, page = stored(tmp_path / "study"), tmp_path / "page.html"
    assert main(["capacity", str(folder), "--html", str(page), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    text = page.read_text()
    answer = "16 at once hold the objectives; 32 at once do not; open at 1"
    assert f"<h1><bdi>{answer}" in text
    for heading in ("ttft_p95 ≤ 2000 ms", "user_tok_per_s ≥ 20 tok/s"):
        assert f'<th scope="col">{heading}</th>' in text
    assert text.index("Levels against objectives") < text.index('<div id="table">')
    assert drawn_in(page).keys() >= {"timeline", "ttft-spread", "e2e-spread", "gap-spread"}

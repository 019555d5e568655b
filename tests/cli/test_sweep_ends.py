"""How cells and lanes of a sweep end: refusals, lanes that are gone, another try."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from concbench.cli.main import main
from concbench.measure.sweep_state import standing_of
from concbench.store.read import open_study
from tests.cli.test_sweep import (
    FAST,
    by_cell,
    failures,
    lane,
    measured,
    mortal,
    reference,
    sweep,
    write,
)

CHOOSY = Path(__file__).parent / "choosy_engine.py"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def choosy() -> list[str]:
    return [sys.executable, str(CHOOSY), str(Path("full").absolute()), *FAST]


@pytest.mark.parametrize("words", [("--rounds", "2"), ("--rounds-max", "3")])
def test_a_refusal_after_others_of_that_length_were_answered_ends_its_own_cell(capsys, words):
    write(lane("a", choosy()), contexts=["short", 100, 150], rounds=1)
    sweep(capsys)
    Path("full").touch()
    cells = by_cell(sweep(capsys, *words))
    Path("full").unlink()
    assert {name: cell["rounds"] for name, cell in cells.items()} == {
        f"a.{context}.c{n}": 1 if context != "short" else cells[f"a.short.c{n}"]["rounds"]
        for context in ("short", "100", "150")
        for n in (1, 2)
    }
    assert cells["a.short.c1"]["rounds"] > 1
    refused = {name for name, cell in cells.items() if cell["outcome"] == "context_rejected"}
    assert refused == {f"a.{context}.c{n}" for context in (100, 150) for n in (1, 2)}
    assert "one of that length was answered" in cells["a.100.c1"]["outcome_detail"]
    assert {name for name, how, _ in failures() if how == "skipped"} == set()


def test_a_length_that_is_refused_at_once_ends_its_context_and_longer_ones(capsys):
    Path("full").touch()
    write(lane("a", choosy()), contexts=["short", 100, 150])
    cells = by_cell(sweep(capsys))
    outcomes = {name: cell["outcome"] for name, cell in cells.items()}
    assert outcomes == {
        **{f"a.short.c{n}": "measured" for n in (1, 2)},
        **{f"a.100.c{n}": "context_rejected" for n in (1, 2)},
        **{f"a.150.c{n}": "skipped" for n in (1, 2)},
    }


def test_a_lane_that_is_gone_when_more_rounds_are_wanted_is_told_and_its_rounds_stand(capsys):
    write(lane("a", mortal(0, 1, "the last words")), concurrency=(1,))
    Path("deaths").write_text("not now\n" * 2)
    sweep(capsys)
    Path("deaths").unlink()
    words = ["sweep", "plan.toml", "--out", "s", "--rounds-max", "3", "--quiet", "--warmup", "0"]
    assert main(words) == 3
    assert "lane a" in capsys.readouterr().err
    ((name, how, final),) = failures()
    assert (name, how, final) == ("a.short.c1", "crashed", False)
    assert by_cell(sweep(capsys))["a.short.c1"]["outcome"] == "measured"


def test_no_lane_at_all_is_exit_3_also_the_second_time_until_it_is_tried_again(capsys):
    write(lane("a", mortal(0, 1, "no")), concurrency=(1,))
    words = ["sweep", "plan.toml", "--out", "s", "--quiet", "--warmup", "0"]
    assert main(words) == 3
    assert main(words) == 3
    assert "--retry-failed tries again" in capsys.readouterr().err
    assert main([*words, "--retry-failed"]) in (0, 4)
    assert [name for name, _ in measured()] == ["a.short.c1"]


def test_another_try_takes_up_the_study_that_holds_the_failures(capsys):
    write(lane("bad", mortal(0, 1, "no")), lane("good", reference()), concurrency=(1,))
    words = ["sweep", "plan.toml", "--warmup", "0"]
    main(words)
    (study,) = Path("studies").iterdir()
    capsys.readouterr()
    assert main([*words, "--retry-failed", "--dry-run", "--json", "-"]) == 0
    told = capsys.readouterr().out
    rows = {row["cell"]: row for row in json.loads(told)["payload"]["sweep_plan"]}
    assert (rows["bad.short.c1"]["rounds_left"], rows["bad.short.c1"]["ended"]) == (1, None)
    assert rows["good.short.c1"]["rounds_left"] == 0
    main([*words, "--retry-failed"])
    assert f"going on with {study}" in capsys.readouterr().err
    assert list(Path("studies").iterdir()) == [study]
    state = standing_of(open_study(study))
    assert set(state.took_s) == {"bad.short.c1", "good.short.c1"}
    assert len(state.took_s["good.short.c1"]) == 1


def test_a_dry_run_refuses_what_the_run_would_refuse(capsys):
    path = write(lane("a", reference()), concurrency=(1,))
    sweep(capsys)
    path.write_text(path.read_text().replace("output_tokens = 8", "output_tokens = 9"))
    assert main(["sweep", "plan.toml", "--out", "s", "--dry-run"]) == 2
    assert "workload.output_tokens was 8, is 9" in capsys.readouterr().err


def test_a_lane_with_less_room_than_a_calibration_takes_is_measured_beside_the_others(capsys):
    """An engine without a tokenizer: the longer texts that tell its counting do not fit."""
    small = reference("--context", "300")
    small[small.index("vllm")] = "openai"
    plain = lane("a", small).replace('engine = "vllm"', 'engine = "openai"')
    tiny = reference("--context", "40")
    tiny[tiny.index("vllm")] = "openai"
    none = lane("b", tiny).replace('engine = "vllm"', 'engine = "openai"')
    write(plain, none, lane("good", reference()), concurrency=(1,))
    cells = by_cell(sweep(capsys))
    assert cells["a.short.c1"]["outcome"] == "measured", cells["a.short.c1"]["outcome_detail"]
    assert cells["good.short.c1"]["outcome"] == "measured"
    assert cells["b.short.c1"]["outcome"] == "context_rejected"
    assert "the shortest request is too long" in cells["b.short.c1"]["outcome_detail"]
    assert list(cells) == ["a.short.c1", "b.short.c1", "good.short.c1"]


def test_a_link_whose_command_fails_ends_the_sweep_with_its_report(capsys):
    write(lane("a", reference()), concurrency=(1,))
    fails = json.dumps([sys.executable, "-c", "raise SystemExit(7)"])
    path = Path("plan.toml")
    links = f"[links.one]\n[links.two]\nbefore = [{fails}]\n"
    path.write_text(path.read_text().replace("[sweep]", '[sweep]\nlinks = ["one", "two"]') + links)
    words = ["sweep", "plan.toml", "--out", "s", "--yes", "--quiet", "--warmup", "0"]
    assert main(words) == 3
    assert "link two" in capsys.readouterr().err
    result = json.loads(Path("s/result.json").read_text())
    assert [cell["link"] for cell in result["cells"]] == ["one"]
    assert not open_study(Path("s")).finished
    path.write_text(path.read_text().replace("raise SystemExit(7)", "pass"))
    assert main(["sweep", "plan.toml", "--out", "s", "--yes", "--quiet"]) in (0, 2, 4)

"""`concbench compare` on studies with a known truth: verdicts, gate, baselines, formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from concbench.cli.main import main
from concbench.store.correct import retract
from concbench.store.read import open_study
from tests.cli.reading import drawn_in
from tests.cli.studies import a_round, alone, create, interleaved

RATES = {"gguf": {1: 106.0, 4: 200.0, 8: 300.0}, "nvfp4": {1: 100.0, 4: 300.0, 8: 600.0}}


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["compare", *words, "--quiet", "--json", "-"])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    return code, json.loads(captured.out, parse_constant=lambda text: pytest.fail(text))


def steady(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in result["verdicts"] if row["metric"] == "steady_output_tok_per_s"]


def test_two_lanes_of_an_interleaved_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interleaved(tmp_path / "s", RATES)
    code, result = compared(capsys, str(folder))
    assert code == 0
    rows = steady(result)
    assert [(row["concurrency"], row["verdict"]) for row in rows] == [
        (1, "a_faster"),
        (4, "b_faster"),
        (8, "b_faster"),
    ]
    assert rows[1]["ratio"]["point"] == pytest.approx(1.5, rel=0.01)
    assert rows[1]["ratio"]["low"] < 1.5 < rows[1]["ratio"]["high"]
    assert all(row["n_pairs"] == 5 and row["provisional"] for row in rows)
    assert rows[0]["unlike"] == []
    entry = next(
        one
        for one in result["crossovers"]
        if one["metric"] == "steady_output_tok_per_s" and one["axis"] == "concurrency"
    )
    assert entry["bracket"] == [1, 4]
    assert [part["winner"] for part in entry["ranges"]] == ["gguf", "nvfp4"]
    assert result["command"] == "compare"
    assert len(result["cells"]) == 6
    metrics = {row["metric"] for row in result["verdicts"]}
    assert {"ttft_ms.p50", "tpot_ms.p50", "tpot_ms.worst_quarter"} <= metrics
    assert "provisional" in {doubt["code"] for doubt in result["doubts"]}


def test_the_table_and_the_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = interleaved(tmp_path / "s", RATES, starts=2)
    assert main(["compare", str(folder), "--md", str(tmp_path / "c.md")]) == 0
    shown = capsys.readouterr().out
    assert "steady tok/s: nvfp4 against gguf" in shown
    assert "nvfp4 is faster than gguf from N = 4" in " ".join(shown.split())
    assert "crossover in (1, 4)" in " ".join(shown.split())
    assert "Provisional" not in shown
    written = (tmp_path / "c.md").read_text()
    assert "| 4 |" in written
    assert "nvfp4 faster" in written


def test_one_after_the_other_is_refused_unless_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The same build in two states: 63 and 94 ms a step, three runs each, one after the other.
    a = alone(tmp_path / "a", "old", [1000 / 63 * 4] * 3)
    b = alone(tmp_path / "b", "new", [1000 / 94 * 4] * 3)
    code, result = compared(capsys, str(a), str(b))
    assert code == 0
    assert {row["verdict"] for row in result["verdicts"]} == {"not_comparable"}
    assert "one after the other" in steady(result)[0]["why"]
    assert steady(result)[0]["unlike"] == ["order"]
    _, taken = compared(capsys, str(a), str(b), "--accept", "order")
    (row,) = steady(taken)
    assert row["verdict"] == "a_faster"
    assert row["provisional"]
    assert row["accepted"] == ["order"]


def test_what_is_unlike_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"gguf": {"quantization": "Q5_K_M", "slots": 8}}
    folder = interleaved(tmp_path / "s", RATES, more=more)
    _, result = compared(capsys, str(folder))
    assert {row["verdict"] for row in result["verdicts"]} == {"not_comparable"}
    assert steady(result)[0]["unlike"] == ["quantization", "slots"]
    _, taken = compared(capsys, str(folder), "--accept", "quantization,slots")
    assert steady(taken)[1]["verdict"] == "b_faster"
    assert main(["compare", str(folder), "--accept", "quantisation"]) == 2
    assert "quantization" in capsys.readouterr().err


def test_a_drift_of_the_control_voids_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = {"a": {4: 200.0}, "b": {4: 300.0}}
    folder = interleaved(tmp_path / "s", rates, drift=-0.02, noise=0.001)
    code, result = compared(capsys, str(folder))
    (row,) = steady(result)
    assert row["verdict"] == "drifted"
    assert row["drift_pct"] < -4
    assert code == 4
    assert "drifted" in {d["code"] for d in result["doubts"] if d["severity"] == "fatal"}


def test_a_fatal_doubt_gives_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with create(tmp_path / "s", {"a": {}, "b": {}}) as writer:
        for place in range(8):
            lane = "abba"[place % 4]
            broken = 1 if lane == "b" else 0
            writer.write_round(a_round(place, lane, 200.0, failed=broken))
        writer.finish()
    code, result = compared(capsys, str(tmp_path / "s"))
    assert code == 4
    assert {row["verdict"] for row in result["verdicts"]} == {"invalid"}
    assert "requests_failed (b)" in result["verdicts"][0]["why"]


def test_three_lanes_have_one_winner_a_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = {
        "gguf": {1: 100.0, 4: 200.0},
        "vllm": {1: 101.0, 4: 400.0},
        "sglang": {1: 150.0, 4: 300.0},
    }
    folder = tmp_path / "s"
    with create(folder, {lane: {} for lane in rates}) as writer:
        place = 0
        for number in range(6):
            for lane in list(rates)[:: 1 if number % 2 == 0 else -1]:
                for level, rate in rates[lane].items():
                    pace = rate * (1 + 0.001 * ((place * 7) % 5 - 2))
                    writer.write_round(a_round(place, lane, pace, level=level))
                    place += 1
        writer.finish()
    _, result = compared(capsys, str(folder))
    entry = next(one for one in result["crossovers"] if one["metric"] == "steady_output_tok_per_s")
    assert [(part["from"], part["winner"]) for part in entry["ranges"]] == [
        (1, "sglang"),
        (4, "vllm"),
    ]


def test_runs_on_record_pair_whole_runs_and_spend_alpha(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "s"
    with create(folder, {"old": {}, "new": {}}, command="ab") as writer:
        writer.note("ab", {"a": "old", "b": "new", "looks": [5, 7, 10]})
        place = 0
        letters = "ABBAABBAABA"
        pairs = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, None]
        for letter, pair in zip(letters, pairs, strict=True):
            lane = "old" if letter == "A" else "new"
            writer.note("start", {"lane": lane})
            names = []
            for offset in (-1, 1):
                rate = (200 if lane == "old" else 220) + offset * 4 + 0.01 * place
                made = a_round(place, lane, rate)
                writer.write_round(made)
                names.append(made.round_id)
                place += 1
            writer.note("ab_run", {"letter": letter, "pair": pair, "rounds": names})
        writer.finish()
    _, result = compared(capsys, str(folder))
    (row,) = steady(result)
    assert row["n_pairs"] == 5
    assert row["verdict"] == "b_faster"
    assert not row["provisional"]
    assert "all looks" in row["ratio"]["method"]
    assert row["ratio"]["point"] == pytest.approx(1.1, rel=0.002)
    # The study of a comparison carries its verdict in every report.
    assert main(["report", str(folder), "--json", "-"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert steady(reported)[0]["verdict"] == "b_faster"
    assert main(["report", str(folder)]) == 0
    assert "new is faster than old" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("plan", "verdict"),
    [({}, "drifted"), ({"delta": 0.1}, "b_faster"), ({"delta": 7.0}, "drifted")],
)
def test_the_margin_that_was_fixed_beforehand_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: dict[str, Any], verdict: str
) -> None:
    """The control moves by 4 %: more than half of 3 %, less than half of 10 %. B is 30 % faster."""
    folder = tmp_path / "s"
    with create(folder, {"old": {}, "new": {}}, command="ab", plan=plan) as writer:
        writer.note("ab", {"a": "old", "b": "new", "looks": [5, 7, 10]})
        pairs = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, None]
        for place, (letter, pair) in enumerate(zip("ABBAABBAABA", pairs, strict=True)):
            lane, rate = ("old", 200.0) if letter == "A" else ("new", 260.0)
            made = a_round(place, lane, rate * 0.995**place)
            writer.note("start", {"lane": lane})
            writer.write_round(made)
            writer.note("ab_run", {"letter": letter, "pair": pair, "rounds": [made.round_id]})
        writer.finish()
    _, result = compared(capsys, str(folder))
    (row,) = steady(result)
    assert row["verdict"] == verdict, row["why"]
    assert row["delta"] == (0.1 if verdict == "b_faster" else 0.03)
    assert -5 < row["drift_pct"] < -3


@pytest.mark.parametrize(
    ("rate", "words", "code"),
    [
        (100.0, (), 0),
        (110.0, (), 0),
        (90.0, (), 5),
        (97.0, (), 0),
        (90.0, ("--inconclusive", "pass"), 5),
    ],
)
def test_the_gate(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rate: float,
    words: tuple[str, ...],
    code: int,
) -> None:
    folder = interleaved(tmp_path / "s", {"main": {4: 100.0}, "branch": {4: rate}})
    junit = tmp_path / "junit.xml"
    assert main(["compare", str(folder), "--gate", "5%", "--junit", str(junit), *words]) == code
    assert ("FAILED" if code else "passed") in capsys.readouterr().out
    suite = ET.parse(junit).getroot()
    assert int(suite.get("failures", "9")) == (1 if code else 0)
    assert int(suite.get("tests", "0")) == len(suite.findall("testcase")) > 0


def test_the_gate_and_what_is_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "s"
    with create(folder, {"main": {}, "branch": {}}) as writer:
        for place, rate in enumerate((100, 93.5, 96.5, 100, 100, 93.5, 96.5, 100)):
            writer.write_round(a_round(place, "main" if rate == 100 else "branch", float(rate)))
        writer.finish()
    assert main(["compare", str(folder), "--gate", "5%", "--quiet"]) == 5
    assert main(["compare", str(folder), "--gate", "5%", "--quiet", "--inconclusive", "pass"]) == 0
    # No verdict at all is never a pass.
    a, b = alone(tmp_path / "a", "x", [100.0] * 3), alone(tmp_path / "b", "y", [200.0] * 3)
    words = ["compare", str(a), str(b), "--gate", "5%", "--quiet", "--inconclusive", "pass"]
    assert main(words) == 5
    assert main([*words, "--metric", "speed"]) == 2
    assert main(["compare", str(folder), "--gate", "none"]) == 2
    capsys.readouterr()


def test_a_baseline_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a = alone(tmp_path / "studies" / "a", "x", [100.0, 101.0, 99.0, 100.0])
    b = alone(tmp_path / "studies" / "b", "x", [90.0, 91.0, 89.0, 90.0])
    assert main(["compare", str(a), "--save-baseline", "main"]) == 0
    capsys.readouterr()
    pointer = json.loads((tmp_path / "studies" / "baselines" / "main").read_text())
    assert pointer["study"] == open_study(a).record.study
    assert pointer["folder"] == "../a"
    words = ["--baseline", "main", str(b), "--accept", "order"]
    code, result = compared(capsys, *words)
    assert code == 0
    (row,) = steady(result)
    assert (row["a"], row["b"], row["verdict"]) == ("a:x", "b:x", "a_faster")
    assert {cell["cell"] for cell in result["cells"]} == {"a:x.50.c4", "b:x.50.c4"}
    assert main(["compare", *words, "--gate", "5%", "--save-baseline", "main", "--quiet"]) == 5
    assert json.loads((tmp_path / "studies" / "baselines" / "main").read_text()) == pointer
    assert main(["compare", "--baseline", "other", str(b)]) == 2
    assert "there are main" in capsys.readouterr().err
    assert main(["compare", "--baseline", "../x", str(b)]) == 2
    (tmp_path / "studies" / "baselines" / "main").write_text("{")
    assert main(["compare", "--baseline", "main", str(b)]) == 2
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a study"),
        (["{a}"], "nothing to compare"),
        (["{a}", "{a}"], "the same study"),
        (["{a}", "{b}", "{c}"], "one study or two"),
        (["{a}", "{c}"], "in common"),
        (["{a}", "absent"], "absent"),
    ],
)
def test_nothing_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    places = {
        "a": alone(tmp_path / "a", "x", [100.0] * 3),
        "b": alone(tmp_path / "b", "y", [100.0] * 3),
        "c": tmp_path / "c",
    }
    with create(places["c"], {"z": {}}) as writer:
        writer.write_round(a_round(0, "z", 100.0, level=2))
        writer.finish()
    assert main(["compare", *(word.format(**places) for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_retraction_changes_the_verdict_and_both_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "s"
    with create(folder, {"old": {}, "new": {}}) as writer:
        lanes = ("old", "new", "new", "old") * 3
        for place, lane in enumerate(lanes):
            bad = place == 5  # a backup ran during this round of `new`
            rate = 50.0 if bad else (100.0 if lane == "old" else 110.0) + 0.1 * (place % 3)
            writer.write_round(a_round(place, lane, rate))
        writer.finish()
    _, before = compared(capsys, str(folder))
    assert steady(before)[0]["verdict"] == "inconclusive"
    retract(folder, "00005-new.50.c4", "a backup ran")
    _, after = compared(capsys, str(folder))
    (row,) = steady(after)
    assert row["verdict"] == "b_faster"
    assert row["n_pairs"] == 5
    assert row["corrected"] == "00005-new.50.c4 retracted (a backup ran)"
    (entry,) = after["corrections"]
    assert any("undecided" in sentence for sentence in entry["was"])
    assert main(["compare", str(folder), "--md", "-"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("> **CORRECTION** round 00005")
    assert "~~" in shown.out.splitlines()[2]
    assert "was  steady tok/s" in shown.err


def test_links_are_sides_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "s"
    with create(folder, {"x": {}}) as writer:
        for place in range(12):
            link = ("5g", "bond", "bond", "5g")[place % 4]
            rate = (100.0 if link == "5g" else 170.0) * (1 + 0.001 * (place % 3))
            writer.write_round(a_round(place, "x", rate, link=link))
        writer.finish()
    _, result = compared(capsys, str(folder))
    (row,) = steady(result)
    assert (row["a"], row["b"], row["verdict"]) == ("x · 5g", "x · bond", "b_faster")


def test_the_page_draws_the_rounds_of_both_studies(tmp_path: Path) -> None:
    """Lanes of one name in two studies are told apart in every figure."""
    old = alone(tmp_path / "before", "x", [100.0] * 4)
    new = alone(tmp_path / "after", "x", [120.0] * 4)
    page = tmp_path / "page.html"
    main(["compare", str(old), str(new), "--html", str(page), "--quiet"])
    drawn = drawn_in(page)
    for key in ("timeline", "ttft-spread", "e2e-spread", "gap-spread"):
        labels = drawn[key]
        assert len(labels) == 2, key
        assert "before:x" in labels[0], key
        assert "after:x" in labels[1], key

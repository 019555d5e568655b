"""`concbench ab` through its command line, against servers whose speed is known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.cli.ab import pair_lines
from concbench.cli.main import command_parser, main
from concbench.cli.sides import SideSpec, is_same_server, parse_contexts, parse_vary, sides_of
from concbench.errors import UsageError
from concbench.measure.target import embedded_size
from concbench.store.read import open_study
from tests.analyse.test_verdict import one, spread
from tests.cli.reading import drawn_in
from tests.servers import reference_server

SHORT = ["--levels", "2", "--rounds", "1", "--output-tokens", "40", "--pairs", "3"]

PLAN = """
[study]
seed = 77
rounds = 2

[lanes.old]
url = "http://127.0.0.1:1"

[lanes.new]
engine = "llamacpp"
model = "embedded"
flags = { parallel = 2, ctx-size = 1024 }

[lanes.third]
command = ["serve", "--port", "{port}"]

[workload]
output_tokens = 33
content = "code"

[sweep]
lanes = ["old", "new"]
contexts = ["short", 700]
concurrency = [4, 1]
"""


@pytest.fixture(scope="module")
def slower() -> Iterator[str]:
    with reference_server("--ttft-ms", "10", "--itl-ms", "12") as url:
        yield url


@pytest.fixture(scope="module")
def faster() -> Iterator[str]:
    # A fifth less time a token: 1.2 times the rate.
    with reference_server("--ttft-ms", "10", "--itl-ms", "10") as url:
        yield url


def ab(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    code = main(["ab", *words, "--json", "-"])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    return code, json.loads(captured.out, parse_constant=lambda text: pytest.fail(text)), (
        captured.err
    )  # fmt: skip


def rates(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in result["verdicts"] if row["metric"] == "output_tok_per_s"]


def spoiled(row: dict[str, Any]) -> bool:
    """Whether a busy machine voided the cell: the client was late, or the control drifted."""
    return row["verdict"] == "drifted" or (
        row["verdict"] == "invalid" and "client_bound" in row["why"]
    )


def test_the_faster_one_wins_and_the_disk_says_the_same(
    slower: str, faster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, md, xml = tmp_path / "s", tmp_path / "s.md", tmp_path / "s.xml"
    words = [faster, slower, *SHORT, "--out", str(out), "--md", str(md), "--junit", str(xml)]
    code, result, said = ab(capsys, *words)
    (row,) = rates(result)
    assert row["n_pairs"] == 3
    assert row["ratio"]["point"] == pytest.approx(1 / 1.2, rel=0.08)
    assert row["verdict"] == "a_faster" or spoiled(row)
    assert code == (4 if any(d["severity"] == "fatal" for d in result["doubts"]) else 0)
    assert row["a"] == faster.removeprefix("http://")
    assert result["payload"]["ab"]["order"] == "ABBAABA"
    assert row["provisional"]
    assert "after 1 pair it would be: N = 2" in said
    assert "2 to the next look" in said
    reader = open_study(out)
    assert reader.finished
    # Judged again from the disk, by either command, it is the same.
    assert main(["compare", str(out), "--quiet", "--json", "-"]) in (0, 4)
    again = json.loads(capsys.readouterr().out)
    assert again["verdicts"] == result["verdicts"]
    assert main(["report", str(out), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == result
    assert main(["report", str(out), "--md", "-"]) == 0
    assert "### Comparison" in capsys.readouterr().out
    assert "| 2 |" in md.read_text()
    assert len(drawn_in(out / "report.html")["timeline"]) == 2
    suite = ET.parse(xml).getroot()
    assert len(suite.findall("testcase")) == len(result["verdicts"])


def test_the_same_server_twice_is_never_a_winner(
    slower: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result, _ = ab(capsys, slower, slower, *SHORT, "--out", str(tmp_path / "s"))
    (row,) = rates(result)
    assert (row["a"][-2:], row["b"][-2:]) == ("~a", "~b")
    assert row["verdict"] in ("equivalent", "inconclusive") or spoiled(row)
    assert code in (0, 4)
    assert set(result["targets"]) == {row["a"], row["b"]}


def test_the_gate(
    slower: str, faster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = [*SHORT, "--gate", "5%", "--save-baseline", "good"]
    code, result, said = ab(capsys, faster, slower, *words, "--out", "a")
    assert code == 5
    assert "gate 5 % FAILED" in said
    assert not Path("studies/baselines/good").exists()
    code, result, said = ab(capsys, slower, faster, *words, "--out", "b")
    (row,) = rates(result)
    assert code == (5 if spoiled(row) else 0)
    assert Path("studies/baselines/good").exists() is (code == 0)


def test_a_baseline_is_measured_again_as_side_a(
    slower: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = ["--levels", "1", "--rounds", "1", "--output-tokens", "5"]
    assert main(["burst", slower, *words, "--out", "old", "--quiet"]) in (0, 4)
    assert main(["compare", "old", "--save-baseline", "main"]) == 0
    capsys.readouterr()
    _, result, _ = ab(
        capsys, slower, "--baseline", "main", *words, "--pairs", "1", "--out", "new"
    )  # fmt: skip
    host = slower.removeprefix("http://")
    assert {(row["a"], row["b"]) for row in result["verdicts"]} == {(f"main:{host}", host)}


def test_unlike_lanes_are_told_after_one_pair_and_measured_when_accepted(
    slower: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with reference_server("--itl-ms", "12", "--context", "4096", "--ttft-ms", "10") as other:
        words = [slower, other, "--levels", "1", "--rounds", "1", "--output-tokens", "8"]
        code, result, _ = ab(capsys, *words, "--out", str(tmp_path / "a"))
        assert {row["verdict"] for row in result["verdicts"]} <= {"not_comparable", "invalid"}
        assert result["verdicts"][0]["unlike"] == ["context"]
        assert code in (0, 4)
        assert result["payload"]["ab"]["ended_by"] in ("not_comparable", "pairs")
        words += ["--accept", "context", "--pairs", "1"]
        _, result, _ = ab(capsys, *words, "--out", str(tmp_path / "b"))
    row = result["verdicts"][0]
    assert row["accepted"] == row["unlike"] == ["context"]
    assert row["verdict"] in ("inconclusive", "invalid")


def test_a_signal_leaves_a_readable_study_that_says_it_is_undecided(
    slower: str, faster: str, tmp_path: Path
) -> None:
    out = tmp_path / "s"
    command = [sys.executable, "-m", "concbench", "ab", slower, faster, *SHORT, "--out", str(out)]
    said = ""
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as child:  # fmt: skip
        assert child.stderr is not None
        assert child.stdout is not None
        for line in child.stderr:
            said += line
            if "run A of pair 1 is measured" in line:
                child.send_signal(signal.SIGINT)
        shown = child.stdout.read()
        code = child.wait(60)
    assert code == 130, said
    assert "Traceback" not in said
    assert "INTERRUPTED" in shown
    reader = open_study(out)
    assert reader.interrupted
    result = json.loads((out / "result.json").read_bytes())
    assert result["interrupted"] is True
    assert {row["verdict"] for row in result["verdicts"]} <= {"inconclusive", "invalid"}
    assert result["verdicts"]
    assert main(["report", str(out)]) == 0


def sides(tmp_path: Path, *words: str) -> tuple[tuple[SideSpec, SideSpec], Namespace]:
    args = command_parser("ab").parse_args(list(words))
    args.argv = ["ab", *words]
    return sides_of(args), args


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


def test_a_plan_gives_its_lanes_and_what_was_not_asked(plan: str, tmp_path: Path) -> None:
    (a, b), args = sides(tmp_path, plan)
    assert (a.name, a.upkeep, b.name, b.upkeep) == ("old", "attached", "new", "fresh")
    assert b.recipe == {"parallel": "2", "ctx-size": "1024"}
    assert (args.levels, args.contexts, args.rounds, args.seed) == ([1, 4], [50, 700], 2, 77)
    assert (args.output_tokens, args.content) == (33, "code")
    _, args = sides(tmp_path, plan, "--levels", "2", "--output-tokens", "9", "--rounds", "5")
    assert (args.levels, args.output_tokens, args.rounds) == ([2], 9, 5)


def test_one_lane_with_a_flag_varied(plan: str, tmp_path: Path) -> None:
    (a, b), _ = sides(tmp_path, "new", "--plan", plan, "--vary", "parallel=8,4", "--both-up")
    assert (a.name, b.name) == ("new[parallel=8]", "new[parallel=4]")
    assert (a.flags, a.upkeep, a.recipe["parallel"]) == ({"parallel": 8}, "kept", "8")
    words = ["--vary", "cache-type-k=f16,q8_0", "--vary", "cache-type-v=f16,q8_0"]
    (a, b), _ = sides(tmp_path, "embedded", *words)
    assert b.flags == {"cache-type-k": "q8_0", "cache-type-v": "q8_0"}
    assert a.name == "embedded[cache-type-k=f16,cache-type-v=f16]"


def test_a_lane_against_itself_has_two_names(plan: str, tmp_path: Path) -> None:
    (a, b), _ = sides(tmp_path, "embedded", "embedded")
    assert (a.name, b.name) == ("embedded~a", "embedded~b")
    assert not is_same_server(a, b)
    (a, b), _ = sides(tmp_path, "http://h:1", "h:1")
    assert is_same_server(a, b)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name two sides"),
        (["embedded"], "name two sides"),
        (["http://a", "http://b", "http://c"], "name two sides"),
        (["http://a", "--vary", "x=1,2"], "runs already"),
        (["old", "--plan", "PLAN", "--vary", "x=1,2"], "runs already"),
        (["a", "b", "--vary", "x=1,2"], "of one lane"),
        (["http://a", "http://b", "--baseline", "main"], "side A"),
        (["http://a", "--baseline", "main"], "no baseline 'main'"),
        (["PLAN", "old", "neww"], "did you mean new"),
    ],
)
def test_what_are_not_two_sides(plan: str, tmp_path: Path, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        sides(tmp_path, *(plan if word == "PLAN" else word for word in words))


def test_a_plan_of_three_lanes_has_to_be_told_which(plan: str, tmp_path: Path) -> None:
    Path(plan).write_text(PLAN.replace('lanes = ["old", "new"]\n', ""))
    with pytest.raises(UsageError, match=r"3 lanes \(old, new, third\)"):
        sides(tmp_path, plan)
    (a, b), _ = sides(tmp_path, plan, "old", "third")
    assert (a.name, b.name) == ("old", "third")


def test_values_of_a_varied_flag() -> None:
    assert parse_vary("parallel=8,4") == ("parallel", [8, 4])
    assert parse_vary("--x=0.8,true") == ("x", [0.8, True])
    assert parse_vary('x=["a,b","c"]') == ("x", ["a,b", "c"])
    for wrong in ("x", "x=", "=1,2", "x=1", "x=1,2,3", "x=1,1", "x=1,", "x=[1", 'x=["a"]'):
        with pytest.raises(UsageError, match="--vary"):
            parse_vary(wrong)


@given(st.text(max_size=30))
def test_whatever_is_typed_is_two_values_or_a_usage_error(text: str) -> None:
    try:
        flag, values = parse_vary(text)
    except UsageError:
        return
    assert flag
    assert len(values) == 2


def test_contexts() -> None:
    assert parse_contexts("700,short") == [50, 700]
    for wrong in ("", "0", "a", "5,,6", "-5"):
        with pytest.raises(ValueError, match="prompt lengths"):
            parse_contexts(wrong)


def test_the_embedded_engines_size_may_be_varied() -> None:
    assert embedded_size({}, 8, 1024) == ((8, 1024), {})
    assert embedded_size({"np": 4}, 8, 1024) == ((4, 1024), {})
    assert embedded_size({"ctx-size": 4096, "threads": 1}, 2, 1024) == ((2, 2048), {"threads": 1})
    with pytest.raises(UsageError, match="whole number"):
        embedded_size({"parallel": "many"}, 8, 1024)


def test_what_is_said_after_a_pair() -> None:
    rows = [one(spread(1.5, 0.01))]
    first, second = pair_lines(3, rows, (5, 7, 10))
    assert first.startswith("after 3 pairs it would be: N = 4 new faster 1.5")
    assert second == "  2 to the next look; at most 3 blocks, 10 pairs in all"
    assert pair_lines(5, rows, (5, 7, 10))[1] == "  a look; up to 2 more blocks, 10 pairs at most"
    assert pair_lines(10, rows, (5, 7, 10))[1] == "  a look; the last look"
    drifted = one(spread(1.5, 0.01), controls=[100, 100, 110, 110])
    assert "control drifted" in pair_lines(1, [drifted], (5,))[0]

"""`concbench spec`: its sides, what is on the disk by content, and servers whose gain is known."""

from __future__ import annotations

import json
import random
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from concbench.cli.main import command_parser, main
from concbench.cli.spec import kinds_of
from concbench.cli.spec_sides import SPECULATION, parse_flag, spec_sides
from concbench.cli.study import result_of
from concbench.errors import UsageError
from concbench.plan.file import load_plan
from concbench.serve.launch import flags_of, varied
from tests.cli.studies import a_round, create
from tests.servers import reference_server

PLAN = """
[lanes.drafts]
engine = "vllm"
command = [
  "vllm", "serve", "m", "--speculative-config", '{"method":"ngram"}', "--max-num-seqs", "8",
]

[lanes.gguf]
engine = "llamacpp"
model = "m.gguf"
flags = { parallel = 4, spec-type = "ngram-mod", spec-draft-n-max = 8 }

[lanes.hub]
engine = "llamacpp"
model = "m.gguf"
flags = { parallel = 4, hf-repo-draft = "somebody/draft" }

[lanes.plain]
engine = "llamacpp"
model = "m.gguf"
flags = { parallel = 4 }

[lanes.attached]
url = "http://127.0.0.1:1"
"""


def args_of(*words: str) -> Namespace:
    parsed = command_parser("spec").parse_args(list(words))
    parsed.argv = list(words)
    return parsed


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


def flags_by_side(plan: str, lane: str, *words: str) -> list[dict[str, Any]]:
    """What either side's command line holds in the end."""
    sides = spec_sides(args_of(lane, "--plan", plan, *words))
    assert [side.name for side in sides] == [f"{lane}~off", f"{lane}~spec"]
    known = load_plan(Path(plan)).lanes[lane]
    return [flags_of(varied(known, side.flags) if side.flags else known) for side in sides]


def test_a_lane_that_speculates_is_measured_without(plan: str) -> None:
    off, on = flags_by_side(plan, "drafts")
    assert off == {"max-num-seqs": "8"}
    assert on == {"max-num-seqs": "8", "speculative-config": {"method": "ngram"}}
    off, on = flags_by_side(plan, "gguf")
    assert off == {"parallel": "4"}
    assert on == {"parallel": "4", "spec-type": "ngram-mod", "spec-draft-n-max": "8"}
    off, on = flags_by_side(plan, "hub")
    assert off == {"parallel": "4"}, "by the engine's own name of a flag too"
    assert on == {"parallel": "4", "spec-draft-hf": "somebody/draft"}


def test_other_flags_take_the_place_of_the_lanes_own(plan: str) -> None:
    off, on = flags_by_side(plan, "gguf", "--with", "spec-type=ngram-simple")
    assert (off, on) == ({"parallel": "4"}, {"parallel": "4", "spec-type": "ngram-simple"})
    off, on = flags_by_side(plan, "plain", "--with", "spec-type=ngram-simple")
    assert (off, on) == ({"parallel": "4"}, {"parallel": "4", "spec-type": "ngram-simple"})
    words = ["--with", 'speculative-config={"method":"mtp","num_speculative_tokens":2}']
    off, on = flags_by_side(plan, "drafts", *words)
    assert "speculative-config" not in off
    assert on["speculative-config"] == {"method": "mtp", "num_speculative_tokens": 2}


def test_the_embedded_engine_needs_no_flags() -> None:
    off, on = spec_sides(args_of("embedded"))
    assert (dict(off.flags), dict(on.flags)) == ({}, {"spec-type": "ngram-simple"})
    assert (off.name, on.name) == ("embedded~off", "embedded~spec")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://127.0.0.1:1"], "runs already, so its speculation cannot be switched"),
        (["attached"], "name both, as in `concbench spec URL_OFF URL_ON`"),
        (["plain"], "sets no flag of speculation: say with which"),
        (["a", "b", "c"], "name one lane, or two targets"),
        (["embedded", "embedded", "--with", "x=1"], "--with is of one lane"),
        (["embedded", "--with", "=1"], "expected FLAG=VALUE"),
        (["embedded", "--with", "x={"], "not JSON"),
        (["embedded", "--contents", "poems"], "'poems' is none of prose"),
    ],
)
def test_what_is_no_comparison_is_refused_in_one_line(
    words: list[str], said: str, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spec", *words, "--plan", plan]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1


def test_two_targets_are_taken_as_they_are() -> None:
    off, on = spec_sides(args_of("http://127.0.0.1:1", "http://127.0.0.1:2"))
    assert (off.name, on.name, off.upkeep) == ("127.0.0.1:1", "127.0.0.1:2", "attached")
    off, on = spec_sides(args_of("http://127.0.0.1:1", "http://127.0.0.1:1"))
    assert (off.name, on.name) == ("127.0.0.1:1~off", "127.0.0.1:1~spec")


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("spec-type", True), ("speculative-num-steps", True), ("draft-max", True),
        ("speculate", True), ("parallel", False), ("special", False), ("max-num-seqs", False),
    ],
)  # fmt: skip
def test_which_flags_are_speculation(name: str, counts: bool) -> None:
    assert (SPECULATION.fullmatch(name) is not None) is counts


def test_a_switch_and_a_number() -> None:
    assert parse_flag("--draft") == ("draft", True)
    assert parse_flag("draft-max=8") == ("draft-max", 8)
    with pytest.raises(UsageError):
        parse_flag("draft-max=")


def test_the_contents() -> None:
    assert kinds_of(args_of("embedded")) == ["prose", "code", "json", "repetition"]
    assert kinds_of(args_of("embedded", "--content", "code")) == ["code"]
    assert kinds_of(args_of("embedded", "--contents", "json,code,json")) == ["json", "code"]
    assert kinds_of(args_of("embedded", "--prompts", "p.jsonl")) == ["file"]


def stored(folder: Path, gains: Mapping[str, Mapping[int, float]], pairs: int = 5) -> Path:
    """A study of A B B A …, where speculation gives `gains` times the rate, with little noise."""
    draw = random.Random(3)
    layout = {
        "a": "m~off", "b": "m~spec", "looks": [pairs], "contexts": [50],
        "levels": sorted({n for levels in gains.values() for n in levels}),
        "contents": list(gains),
    }  # fmt: skip
    lanes: dict[str, dict[str, Any]] = {
        "m~off": {"speculation": "none"}, "m~spec": {"speculation": "ngram k=4"},
    }  # fmt: skip
    accept = {"accept": ["speculation", "acceptance"]}
    with create(folder, lanes, command="spec", plan=accept) as writer:
        writer.note("ab", layout)
        place = 0
        letters = [("A", "B") if pair % 2 == 0 else ("B", "A") for pair in range(pairs)]
        order = [(letter, pair) for pair, both in enumerate(letters) for letter in both]
        for letter, pair in [*order, ("A", None)]:
            ids = []
            lane = "m~off" if letter == "A" else "m~spec"
            for content, levels in gains.items():
                for level, gain in levels.items():
                    pace = 40.0 * level * (gain if letter == "B" else 1.0)
                    one = a_round(place, lane, pace * (1 + draw.gauss(0, 0.003)), level=level)
                    name = f"{lane.replace('~', '_')}.{content}.short.c{level}"
                    cell = msgspec.structs.replace(one.cell, cell=name, context_label=content)
                    load = msgspec.structs.replace(one.workload, content=content)
                    round_id = f"{place:05d}-{name}"
                    writer.write_round(
                        msgspec.structs.replace(one, cell=cell, workload=load, round_id=round_id)
                    )
                    ids.append(round_id)
                    place += 1
            writer.note("ab_run", {"letter": letter, "pair": pair, "rounds": ids})
        writer.note("ab_end", {"ended_by": "verdict"})
        writer.finish()
    return folder


def test_the_known_answer_from_the_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gains = {"code": {1: 1.5, 4: 1.2, 8: 0.9}, "prose": {1: 0.9, 4: 0.85, 8: 0.8}}
    folder = stored(tmp_path / "s", gains)
    result = result_of(folder)
    assert result.payload is not None
    told = result.payload["spec"]
    assert told["sentence"] == "speculation pays up to N = 4 for code, never for prose"
    assert told["contents"][0]["stops_in"] == [4, 8] or told["contents"][0]["stops_in"] == (4, 8)
    points = {(row["content"], row["concurrency"]): row["ratio"]["point"] for row in told["rows"]}
    for content, levels in gains.items():
        for level, gain in levels.items():
            assert points[content, level] == pytest.approx(gain, rel=0.01)
    assert result.payload["ab"]["order"] == "ABBAABBAABA"
    # What a page and a report show is by content too, and `compare` says the same.
    assert {row.a for row in result.verdicts} == {"m~off · code", "m~off · prose"}
    assert main(["compare", str(folder), "--json", "-", "--quiet"]) in (0, 4)
    again = json.loads(capsys.readouterr().out)
    assert again["payload"]["spec"]["sentence"] == told["sentence"]
    assert main(["compare", str(folder), str(stored(tmp_path / "t", gains))]) == 2
    assert "give it alone" in capsys.readouterr().err


def test_contents_are_one_family(tmp_path: Path) -> None:
    # One level of two contents each: two claims, so that either is adjusted.
    result = result_of(stored(tmp_path / "s", {"code": {4: 1.5}, "prose": {4: 1.4}}))
    rows = [row for row in result.verdicts if row.metric == "steady_output_tok_per_s"]
    assert [(row.verdict, row.adjusted) for row in rows] == [("b_faster", "holm")] * 2


def test_servers_whose_gain_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Steps of 8 + N ms for one token, 10 + 4·N ms for two: 2 · 9 ÷ 14 at N = 1, 2 · 12 ÷ 26 at 4.
    common = ["--ttft-ms", "10", "--decode-step"]
    drafts = ["--tokens-per-chunk", "2", "--draft-tok", "3"]
    out, md = tmp_path / "s", tmp_path / "s.md"
    with (
        reference_server(*common, "--step-a-ms", "8", "--step-b-ms", "1") as off,
        reference_server(*common, "--step-a-ms", "10", "--step-b-ms", "4", *drafts) as on,
    ):
        words = [off, on, "--levels", "1,4", "--contents", "code", "--rounds", "1", "--pairs", "3"]
        words += ["--output-tokens", "60", "--warmup", "0", "--out", str(out), "--md", str(md)]
        assert main(["spec", *words, "--json", "-"]) in (0, 4)
    captured = capsys.readouterr()
    told = json.loads(captured.out)["payload"]["spec"]
    one, four = told["rows"]
    assert one["ratio"]["point"] == pytest.approx(18 / 14, rel=0.1)
    assert four["ratio"]["point"] == pytest.approx(24 / 26, rel=0.1)
    assert (one["accepted_len"], one["accepted_rate"]) == (
        pytest.approx(2, abs=0.05), pytest.approx(1 / 3, abs=0.02),
    )  # fmt: skip
    assert one["tokens_per_step"] == pytest.approx(2, rel=0.1)
    assert told["acceptance"] == "server"
    # A busy machine may void a verdict, never turn it round.
    assert one["verdict"] != "costs"
    assert four["verdict"] != "pays"
    assert told["sentence"] in captured.err
    assert told["sentence"] in md.read_text()

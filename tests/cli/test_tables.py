"""Published figures judged again: what the readings of `examples/seeds` come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from concbench.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples" / "seeds"
ALL = "order,quantization,context,slots,speculation,kv_cache_dtype,eager"


def compared(
    capsys: pytest.CaptureFixture[str], name: str, *words: str, accept: str | None = ALL
) -> dict[str, Any]:
    taken = ["--accept", accept] if accept else []
    code = main(["compare", str(EXAMPLES / name), *taken, "--quiet", "--json", "-", *words])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    found: dict[str, Any] = json.loads(captured.out, parse_constant=lambda text: pytest.fail(text))
    return found


def test_the_fan_out_and_its_corrections(capsys: pytest.CaptureFixture[str]) -> None:
    result = compared(capsys, "fanout.toml")
    first, recipe, four = result["corrections"]
    assert first["reading"] == "first"
    assert first["by"] == "recipe"
    assert first["was"][0].startswith("batch tok/s by concurrency: gguf at 1–4, tie at 8")
    assert recipe["superseded_by"] == "four-engines"
    assert "vllm-mtp3 at 1–8" in recipe["was"][0]
    assert four["superseded_by"] == "dflash2"
    assert "sglang-dspark at 1–2, vllm-mtp3 at 4–8; crossover in (2, 4)" in four["was"][0]
    (now,) = result["crossovers"]
    assert [(part["from"], part["to"], part["winner"]) for part in now["ranges"]] == [
        (1, 4, "sglang-dflash2"),
        (8, 8, "vllm-mtp3"),
    ]
    assert now["bracket"] == [4, 8]
    assert now["basis"] == "points"
    # A single reading proves nothing, however large the ratio.
    assert {row["verdict"] for row in result["verdicts"]} == {"inconclusive"}


def test_by_context_an_overlap_is_undecided_and_the_rest_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = compared(capsys, "contexts.toml")
    alone = [row for row in result["verdicts"] if row["metric"] == "decode_tok_per_s"]
    assert [row["verdict"] for row in alone] == ["inconclusive", *["b_faster"] * 4]
    points = [round(100 * (row["ratio"]["point"] - 1)) for row in alone]
    assert points == [0, 6, 13, 19, 32]
    entry = next(one for one in result["crossovers"] if one["metric"] == "decode_tok_per_s")
    assert [part["winner"] for part in entry["ranges"]] == ["tie", "vllm"]


def test_the_client_moved_and_the_server_did_not(capsys: pytest.CaptureFixture[str]) -> None:
    result = compared(capsys, "client-server.toml")
    client, server = result["verdicts"]
    assert client["ratio"]["point"] == pytest.approx(0.794, abs=0.001)
    assert server["ratio"]["point"] == pytest.approx(0.995, abs=0.001)
    assert server["ratio"]["low"] < 1 < server["ratio"]["high"]
    (told,) = (d for d in result["doubts"] if d["code"] == "client_server_disagree")
    assert "−20.6 %" in told["message"]
    assert "−0.5 %" in told["message"]


def test_what_is_no_fair_comparison_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    result = compared(capsys, "recipes.toml", accept=None)
    assert {row["verdict"] for row in result["verdicts"]} == {"not_comparable"}
    unlike = {row["b"]: row["unlike"] for row in result["verdicts"]}
    assert unlike["driver-595"] == ["eager", "order"]
    assert unlike["vllm"] == ["quantization", "context", "slots", "order"]
    assert result["crossovers"] == []


def test_the_terminal_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "p.html"
    words = ["compare", str(EXAMPLES / "fanout.toml"), "--accept", ALL, "--html", str(page)]
    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("CORRECTION reading first is retracted")
    assert "was batch tok/s by concurrency: gguf at 1–4, tie at 8" in shown
    assert "AMENDED reading four-engines is superseded by dflash2" in shown
    assert "single reading" in shown
    assert "<del>" in page.read_text()


def test_a_table_is_compared_alone(capsys: pytest.CaptureFixture[str]) -> None:
    table = str(EXAMPLES / "fanout.toml")
    assert main(["compare", table, table]) == 2
    assert main(["compare", str(Path(__file__))]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_the_guide_shows_what_is_really_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = EXAMPLES.parents[1]
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "100")
    guide = (root / "docs" / "guides" / "retrodiction.md").read_text()
    blocks = [part.split("\n```", 1)[0] for part in guide.split("```console\n")[1:]]
    assert len(blocks) == 4
    for block in blocks:
        command, _, shown = block.partition("\n")
        assert main(command.removeprefix("$ concbench ").split()) == 0
        printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
        assert printed == shown

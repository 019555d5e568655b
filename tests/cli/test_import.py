"""`concbench import`: a study of its own, told as such, and what differs explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from concbench.cli.main import main
from tests.cli.reading import drawn_in
from tests.cli.studies import alone

SAMPLES = Path(__file__).parents[1] / "store" / "importers" / "samples"


def imported(
    capsys: pytest.CaptureFixture[str], out: Path, *names: str, lane: str | None = None
) -> tuple[int, dict[str, Any]]:
    words = ["import", *(str(SAMPLES / name) for name in names), "--out", str(out), "--quiet"]
    code = main([*words, "--json", "-", *(["--lane", lane] if lane else [])])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    return code, json.loads(captured.out, parse_constant=lambda text: pytest.fail(text))


def differences(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        one["figure"] + ("" if one["theirs"] < one["ours"] else " above"): one
        for entry in result["payload"]["imported"]
        for one in entry["differences"]
    }


def test_requests_are_computed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = imported(capsys, tmp_path / "s", "vllm_detailed.json", lane="box")
    assert code == 0
    (cell,) = result["cells"]
    assert cell["lane"] == "box"
    assert cell["tokens"]["source"] == "usage"
    # 32 tokens, 20 ms apart, four at once: told by construction, found from the gaps.
    assert cell["client"]["tpot_ms"]["mean"] == pytest.approx(20, rel=0.01)
    assert cell["client"]["ttft_ms"]["n"] == 12  # the start wave is not among them
    notes = {doubt["code"]: doubt for doubt in result["doubts"]}
    assert notes["imported"]["severity"] == "note"
    assert "user_stamps" not in notes
    ttft = differences(result)["ttft_ms above"]
    assert ttft["difference_pct"] == pytest.approx(23, abs=2)
    assert "start wave" in ttft["why"]
    assert main(["report", str(tmp_path / "s"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == result


def test_a_summary_is_kept_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = imported(capsys, tmp_path / "s", "vllm_summary.json")
    assert code == 0
    (cell,) = result["cells"]
    assert cell["client"]["output_tok_per_s"]["method"] == "told by vllm bench"
    assert cell["client"]["output_tok_per_s"]["low"] is None
    assert cell["client"]["steady_output_tok_per_s"] is None
    assert "summary" in cell["steady"]["reason"]
    assert result["payload"]["imported"][0]["recomputed"] is False


def test_their_tpot_includes_ttft(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = imported(capsys, tmp_path / "s", "guidellm.json")
    assert code == 4  # one request in eighteen failed
    found = differences(result)["tpot_ms above"]
    assert found["ours"] == pytest.approx(20, rel=0.01)
    assert "includes TTFT" in found["why"]
    assert result["cells"][0]["requests"]["incomplete"] == 1


def test_their_output_tokens_are_requested_lengths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, result = imported(capsys, tmp_path / "s", "sglang.jsonl")
    assert [cell["concurrency"] for cell in result["cells"]] == [2, 4]
    found = differences(result)
    assert found["output_tok_per_s above"]["difference_pct"] == pytest.approx(100, abs=1)
    assert "requested lengths" in found["output_tok_per_s above"]["why"]
    assert found["tpot_ms"]["ours"] == pytest.approx(20, rel=0.01)
    assert any("requested lengths" in remark for remark in result["payload"]["remarks"])


def test_repetitions_give_an_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, result = imported(capsys, tmp_path / "s", "llama_benchy.json")
    steady = result["cells"][1]["client"]["steady_output_tok_per_s"]
    assert steady["n"] == 3
    assert steady["low"] < 209.2 < steady["high"]


def test_the_terminal_tells_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["import", str(SAMPLES / "profile_export_aiperf.json"),
             str(SAMPLES / "profile_export.jsonl"), "--out", str(tmp_path / "s")]  # fmt: skip
    assert main(words) == 4
    shown = capsys.readouterr().out
    assert "theirs is 1 ÷ ITL" in shown
    assert main(words) == 2  # nothing is ever overwritten


def test_told_and_measured_are_never_mixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(capsys, tmp_path / "told", "vllm_summary.json")
    measured = alone(tmp_path / "measured", "x", [100.0] * 3)
    assert main(["compare", str(tmp_path / "told"), str(measured)]) == 2
    assert "another tool" in capsys.readouterr().err


def test_two_told_studies_are_compared_without_a_claim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(capsys, tmp_path / "a", "vllm_summary.json")
    imported(capsys, tmp_path / "b", "profile_export_genai_perf.json")
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--quiet", "--json", "-"]
    assert main([*words, "--accept", "order"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {row["verdict"] for row in result["verdicts"]} == {"inconclusive"}
    assert all("single reading" in row["why"] for row in result["verdicts"])


def test_a_file_that_is_none_leaves_no_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "x.json"
    bad.write_text('{"a": NaN}')
    assert main(["import", str(bad), "--out", str(tmp_path / "s")]) == 2
    error = capsys.readouterr().err
    assert "no result that is known" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_the_page_draws_what_the_file_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Requests with their times are drawn; a summary has none to draw."""
    imported(capsys, tmp_path / "s", "vllm_detailed.json")
    assert drawn_in(tmp_path / "s" / "report.html").keys() >= {"timeline", "ttft-spread"}
    imported(capsys, tmp_path / "t", "vllm_summary.json")
    assert "timeline" not in drawn_in(tmp_path / "t" / "report.html")

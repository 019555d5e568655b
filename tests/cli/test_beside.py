"""What stands beside a burst's cells: the server's view, prefill, a silence, the prompt cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from concbench.cli.main import main
from concbench.store.read import open_study
from tests.cli.reading import codes, measured
from tests.servers import reference_server


def test_the_servers_own_figures_stand_beside_the_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with reference_server("--ttft-ms", "20", "--itl-ms", "5") as url:
        words = ["burst", url, "--levels", "4", "--rounds", "2", "--output-tokens", "150"]
        _, result = measured(capsys, *words, "--out", str(tmp_path / "study"))
    (cell,) = result["cells"]
    assert cell["server"]["source"] == "metrics"
    assert cell["server"]["running_mean"] == pytest.approx(4, abs=0.5)
    assert cell["ledger"]["generated"] == cell["ledger"]["received"] == 2 * 4 * 150
    assert cell["ledger"]["foreign"] == 0
    assert cell["agreement_pct"] == pytest.approx(0, abs=3)


def test_foreign_tokens_are_seen_in_the_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with reference_server("--itl-ms", "5", "--foreign-tok-per-s", "200") as url:
        words = ["burst", url, "--levels", "2", "--rounds", "2", "--output-tokens", "120"]
        _, result = measured(capsys, *words, "--out", str(tmp_path / "study"))
    assert result["cells"][0]["ledger"]["foreign"] > 50
    assert result["cells"][0]["agreement_pct"] is None
    assert "foreign_traffic" in codes(result)


def test_the_prefill_rate_comes_from_a_second_length_beside_each_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    with reference_server("--ttft-ms", "10", "--itl-ms", "2", "--prefill-tok-per-s", "4000") as url:
        words = ["burst", url, "--levels", "1,2", "--rounds", "3", "--prompt-tokens", "600"]
        _, result = measured(capsys, *words, "--output-tokens", "60", "--out", str(out))
    one, two = result["cells"]
    assert one["client"]["prefill_tok_per_s"]["point"] == pytest.approx(4000, rel=0.08)
    assert one["client"]["prefill_tok_per_s"]["n"] == 3
    assert two["client"]["prefill_tok_per_s"] is None
    assert one["tokens"]["prompt"] == 3 * 600
    half = [info for info in open_study(out).rounds() if info.cell.context_label == "half"]
    assert [info.index for info in half] == [0, 1, 2]
    assert {info.workload.prompt_tokens for info in half} == {300}
    assert result["workload"]["prompt_tokens"] == 600


def test_short_prompts_have_no_prefill_rate_and_no_second_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    with reference_server("--itl-ms", "2") as url:
        words = ["burst", url, "--levels", "1", "--rounds", "1", "--prompt-tokens", "200"]
        _, result = measured(capsys, *words, "--output-tokens", "20", "--out", str(out))
    assert result["cells"][0]["client"]["prefill_tok_per_s"] is None
    assert len(open_study(out).rounds()) == 2


def test_after_a_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with reference_server("--itl-ms", "2") as url:
        words = ["burst", url, "--levels", "2", "--rounds", "1", "--output-tokens", "60"]
        _, result = measured(capsys, *words, "--idle-s", "0.3", "--out", str(tmp_path / "study"))
    (entry,) = result["payload"]["idle"]
    assert 0.3 <= entry["idle_s"] < 3
    assert entry["cell"] == result["cells"][0]["cell"]
    assert len(result["cells"]) == 1


def test_the_prompt_cache_is_emptied_before_every_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--levels", "1", "--rounds", "2", "--same-prompt", "--prompt-tokens", "200"]
    words += ["--output-tokens", "60"]
    with reference_server("--itl-ms", "2", "--prefix-cache") as url:
        _, warm = measured(capsys, "burst", url, *words, "--out", str(tmp_path / "a"))
        _, cold = measured(
            capsys, "burst", url, *words, "--reset-cache", "--out", str(tmp_path / "b")
        )
    assert warm["cells"][0]["server"]["cached_tok"] > 2 * 150
    assert cold["cells"][0]["server"]["cached_tok"] < 2 * 50


@pytest.mark.parametrize("command", [["burst"], ["sustain", "-c", "2"], ["rate", "--rps", "2"]])
def test_an_engine_that_cannot_empty_its_cache_is_named_with_those_that_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    out = tmp_path / "study"
    with reference_server("--persona", "llamacpp", "--itl-ms", "2") as url:
        words = [command[0], url, *command[1:], "--quiet", "--reset-cache", "--out", str(out)]
        assert main(words) == 2
    error = capsys.readouterr().err
    assert "llama.cpp" in error
    assert "SGLang and vLLM" in error
    assert not out.exists()

"""`concbench burst` through its command line, against the known-truth server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from concbench.cli.main import main
from concbench.store.read import open_study
from tests.cli.reading import assert_sound
from tests.servers import reference_server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with reference_server("--ttft-ms", "20", "--itl-ms", "4", "--slots", "8") as url:
        yield url


def burst(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["burst", *words, "--quiet", "--json", "-"])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    return code, json.loads(captured.out, parse_constant=lambda text: pytest.fail(text))


def test_the_numbers_are_the_servers_own(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    words = ["--levels", "1,4", "--rounds", "3", "--output-tokens", "80", "--out", str(out)]
    code, result = burst(capsys, server, *words)
    assert_sound(code, result)
    one, four = result["cells"]
    assert (one["concurrency"], four["concurrency"]) == (1, 4)
    assert one["requests"]["ok"] == one["requests"]["sent"] == 3
    assert four["tokens"]["output"] == 3 * 4 * 80
    assert four["tokens"]["source"] == "usage"
    assert four["tokens"]["prompt"] == 3 * 4 * 50
    assert four["steady"]["found"]
    # One token every 4 ms a stream; the wide margin is for a busy machine, not for the method.
    assert four["client"]["steady_output_tok_per_s"]["point"] == pytest.approx(1000, rel=0.1)
    assert four["client"]["tpot_ms"]["p50"] == pytest.approx(4, rel=0.1)
    assert four["client"]["ttft_ms"]["min"] >= 19
    assert four["overlap"] == pytest.approx(1, abs=0.2)
    assert result["target"]["engine"] == "vllm"
    assert result["interrupted"] is False


def test_who_watches_is_told_what_runs_while_it_runs(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, Any]] = []
    monkeypatch.setattr("concbench.store.now.NowFile.write", lambda _, values: said.append(values))
    out = tmp_path / "study"
    words = ["--levels", "2", "--rounds", "1", "--output-tokens", "300", "--out", str(out)]
    main(["burst", server, *words, "--quiet"])
    assert said, "an answer takes 1.2 s"
    assert {each["cell"].rpartition(".")[2] for each in said} == {"c2"}
    assert "measured" in {each["phase"] for each in said}
    assert {each["asked"] for each in said} == {2}
    assert not (out / ".now").exists()


def test_the_study_is_complete_and_says_the_same_again(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    _, first = burst(
        capsys, server, "--levels", "2", "--rounds", "2", "--output-tokens", "60", "--out", str(out)
    )
    reader = open_study(out)
    assert reader.finished
    assert [info.phase for info in reader.rounds()] == ["warmup", "measured", "measured"]
    assert (out / "report.html").stat().st_size < 8_000_000
    assert main(["report", str(out), "--json", "-"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == first
    assert main(["report", str(out)]) == 0
    assert "TTFT" in capsys.readouterr().out


def test_with_two_rounds_there_are_ranges_and_no_intervals(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, result = burst(
        capsys, server, "--levels", "2", "--rounds", "2", "--output-tokens", "60",
        "--out", str(tmp_path / "study"),
    )  # fmt: skip
    estimate = result["cells"][0]["client"]["output_tok_per_s"]
    assert estimate["low"] is None
    assert len(estimate["range"]) == 2
    assert "few_rounds" in {doubt["code"] for doubt in result["doubts"]}


def test_the_same_seed_sends_the_same_prompts_and_another_seed_others(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def hashes(name: str, seed: int) -> list[str | None]:
        out = tmp_path / name
        burst(
            capsys, server, "--levels", "3", "--rounds", "1", "--output-tokens", "5",
            "--seed", str(seed), "--out", str(out),
        )  # fmt: skip
        reader = open_study(out)
        infos = reader.rounds("measured")
        return [r.prompt_sha256 for r in reader.load_round(infos[0].round_id).requests]

    one, same, other = hashes("a", 7), hashes("b", 7), hashes("c", 8)
    assert one == same
    assert len(set(one)) == 3
    assert not set(one) & set(other)


def test_not_streaming_has_no_ttft(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, result = burst(
        capsys, server, "--levels", "2", "--rounds", "1", "--output-tokens", "20", "--no-stream",
        "--out", str(tmp_path / "study"),
    )  # fmt: skip
    client = result["cells"][0]["client"]
    assert client["ttft_ms"]["n"] == 0
    assert client["e2e_ms"]["n"] == 2
    assert result["cells"][0]["tokens"]["output"] == 40


def test_completions_and_prompts_from_a_file(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Tell me about rivers.\nTell me about the sea.\n")
    _, result = burst(
        capsys, server, "--levels", "2", "--rounds", "1", "--output-tokens", "20",
        "--endpoint", "completions", "--prompts", str(prompts), "--out", str(tmp_path / "study"),
    )  # fmt: skip
    assert result["cells"][0]["requests"]["ok"] == 2
    assert result["workload"]["content"] == "file"


def test_the_prefill_rate_comes_from_a_second_length_beside_each_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    with reference_server("--ttft-ms", "10", "--itl-ms", "2", "--prefill-tok-per-s", "4000") as url:
        _, result = burst(
            capsys, url, "--levels", "1,2", "--rounds", "3", "--prompt-tokens", "600",
            "--output-tokens", "60", "--out", str(out),
        )  # fmt: skip
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
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    _, result = burst(
        capsys, server, "--levels", "1", "--rounds", "1", "--prompt-tokens", "200",
        "--output-tokens", "20", "--out", str(out),
    )  # fmt: skip
    assert result["cells"][0]["client"]["prefill_tok_per_s"] is None
    assert len(open_study(out).rounds()) == 2


BAD = [
    (["--levels", "0"], "0"),
    (["--levels", "-1"], "-1"),
    (["--levels", "a"], "a"),
    (["--levels", ""], "--levels"),
    (["--rounds", "0"], "at least 1"),
    (["--output-tokens", "x"], "at least 1"),
    (["--extra-body", "[1]"], "JSON object"),
    (["--temperature", "nan"], "temperature"),
    (["--prompts", "/nowhere/prompts.txt"], "/nowhere/prompts.txt"),
    (["--api-key-env", "CONCBENCH_NO_SUCH_KEY"], "CONCBENCH_NO_SUCH_KEY"),
    (["--prompt-tokens", "9000"], "context"),
    (["--output-tokens", "9000"], "context"),
    (["--prompt-tokens", "5"], "prompt"),
    (["--ca", "/nowhere/ca.pem"], "ca.pem"),
]


@pytest.mark.parametrize(("words", "says"), BAD, ids=lambda value: " ".join(value)[:40])
def test_bad_input_is_one_line_and_leaves_nothing(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    out = tmp_path / "study"
    url = server.replace("http:", "https:") if "--ca" in words else server
    assert main(["burst", url, "--quiet", *words, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1, error
    assert says in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "words", "code", "says"),
    [
        (("--api-key", "s3cret"), [], 3, "--api-key-env"),
        ((), ["--model", "other"], 3, "other"),
        (("--persona", "openai"), ["--model", "nope"], 3, "nope"),
    ],
)
def test_a_target_that_refuses(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    words: list[str],
    code: int,
    says: str,
) -> None:
    with reference_server(*options) as url:
        out = tmp_path / "study"
        assert main(["burst", url, "--quiet", *words, "--out", str(out)]) == code
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1, error
    assert says in error
    assert not out.exists()


def test_nobody_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "study"
    assert main(["burst", "http://127.0.0.1:1", "--quiet", "--out", str(out)]) == 3
    assert "refused" in capsys.readouterr().err
    assert main(["burst", "http://no-such-host.invalid", "--quiet", "--out", str(out)]) == 3
    assert not out.exists()


def test_a_wrong_path_names_the_likely_right_one(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    assert main(["burst", f"{server}/api/v3", "--quiet", "--out", str(out)]) == 3
    error = capsys.readouterr().err
    assert re.search(r"/api/v3", error)
    assert not out.exists()


def test_an_existing_study_is_not_touched(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    assert main(["burst", server, "--quiet", "--out", str(out)]) == 2
    assert (out / "mine.txt").read_text() == "keep"
    assert list(out.iterdir()) == [out / "mine.txt"]
    file = tmp_path / "file"
    file.write_text("x")
    assert main(["burst", server, "--quiet", "--out", str(file)]) == 2
    capsys.readouterr()


def test_the_key_is_sent_and_nowhere_to_be_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONCBENCH_TEST_KEY", "s3cret-value")
    out = tmp_path / "study"
    with reference_server("--api-key", "s3cret-value", "--itl-ms", "2") as url:
        code, result = burst(
            capsys, url, "--levels", "2", "--rounds", "1", "--output-tokens", "60",
            "--api-key-env", "CONCBENCH_TEST_KEY", "--out", str(out),
        )  # fmt: skip
    assert result["cells"][0]["requests"]["ok"] == 2
    assert code in (0, 4)
    for path in out.rglob("*"):
        if path.is_file():
            assert b"s3cret-value" not in path.read_bytes(), path


def test_every_request_failing_is_exit_4_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with reference_server("--fault", "status=500@every=1") as url:
        code = main(["burst", url, "--quiet", "--levels", "2", "--out", str(tmp_path / "s")])
    assert code in (3, 4)
    assert "500" in capsys.readouterr().err

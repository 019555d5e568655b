"""`concbench rate` through its command line, against the known-truth server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from concbench.cli.main import main
from concbench.domain import Round
from concbench.store.read import open_study
from tests.cli.reading import codes, measured, truth
from tests.servers import reference_server

MS = 1_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with reference_server("--ttft-ms", "20", "--itl-ms", "4") as url:
        yield url


def rounds_of(out: Path) -> list[Round]:
    reader = open_study(out)
    return [reader.load_round(info.round_id) for info in reader.rounds("measured")]


def test_requests_reach_the_server_when_they_are_due(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    with reference_server("--ttft-ms", "20", "--itl-ms", "4") as url:
        words = ["rate", url, "--rps", "25", "--duration", "3s", "--rounds", "1"]
        _, result = measured(capsys, *words, "--output-tokens", "20", "--out", str(out))
        received = {trace["client_id"]: trace["received_ns"] for trace in truth(url)["requests"]}
    (round_,) = rounds_of(out)
    assert len(round_.requests) == 75
    late_ms = sorted(
        (received[f"concbench-1-{record.index}"] - record.due_ns) / MS for record in round_.requests
    )
    assert late_ms[0] > -0.2
    assert late_ms[len(late_ms) // 2] < 5
    entry = result["payload"]["rate"][0]
    assert entry["asked_rps"] == 25
    assert entry["due_rps"] == pytest.approx(25, rel=1e-6)
    assert entry["sent_rps"] == pytest.approx(25, rel=0.02)
    assert "rate_not_kept" not in codes(result)
    (cell,) = result["cells"]
    assert (cell["rate_rps"], cell["concurrency"]) == (25, 0)
    assert cell["steady"]["found"]
    assert cell["ended_by"] == "rounds_max"


def test_poisson_arrivals_differ_between_rounds_and_repeat_with_the_seed(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def dues(name: str, seed: int) -> list[list[int]]:
        out = tmp_path / name
        words = ["rate", server, "--rps", "40", "--poisson", "--duration", "1s", "--rounds", "2"]
        measured(capsys, *words, "--output-tokens", "5", "--seed", str(seed), "--out", str(out))
        return [[r.due_ns - each.start_ns for r in each.requests] for each in rounds_of(out)]

    one, two = dues("a", 3)
    assert one != two
    assert dues("b", 3) == [one, two]
    assert dues("c", 4)[0] != one


def test_above_capacity_the_queue_grows_and_is_reported_with_its_slope(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Two slots of 100 ms each serve 20 a second; 40 are sent.
    with reference_server("--ttft-ms", "20", "--itl-ms", "4", "--slots", "2") as url:
        words = ["rate", url, "--rps", "40", "--duration", "4s", "--rounds", "1", "--drain-s", "1"]
        code, result = measured(
            capsys, *words, "--output-tokens", "20", "--slo", "ttft_p95=200ms",
            "--out", str(tmp_path / "study"),
        )  # fmt: skip
    (cell,) = result["cells"]
    assert code in (0, 4)
    assert not cell["steady"]["found"]
    assert "the queue grew by" in cell["steady"]["reason"]
    slope = float(cell["steady"]["reason"].split("grew by ")[1].split(" ")[0])
    assert slope == pytest.approx(19, rel=0.35)
    assert "no_steady_state" in codes(result)
    assert cell["requests"]["sent"] == 160
    assert cell["requests"]["incomplete"] > 10
    entry = result["payload"]["rate"][0]
    assert entry["sent_rps"] == pytest.approx(40, rel=0.05)
    assert entry["connections_max"] > 60
    assert entry["slo"] == [
        {"slo": "ttft_p95", "limit": 200.0, "value": entry["slo"][0]["value"], "met": False}
    ]
    assert cell["server"]["waiting_max"] > 20


def test_a_trace_sends_its_own_lengths_at_its_own_times(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 1000 + 50 * k, "input_length": 60 if k % 2 else 90, "output_length": 5 + k}
        for k in range(20)
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "study"
    words = ["rate", server, "--trace", str(trace), "--rounds", "1", "--out", str(out)]
    _, result = measured(capsys, *words)
    (round_,) = rounds_of(out)
    assert [r.due_ns - round_.start_ns for r in round_.requests] == [50 * MS * k for k in range(20)]
    assert [r.output_tok for r in round_.requests] == [5 + k for k in range(20)]
    assert [r.prompt_tok for r in round_.requests] == [60 if k % 2 else 90 for k in range(20)]
    assert len({r.prompt_sha256 for r in round_.requests}) == 20
    assert result["workload"]["arrival"] == "trace"
    assert result["cells"][0]["rate_rps"] == pytest.approx(20 / 0.95, rel=1e-4)


def test_the_study_says_the_same_again(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    words = ["rate", server, "--rps", "30", "--duration", "1s", "--rounds", "2"]
    slo = ["--slo", "ttft_p95=2s,user_tok_per_s=20"]
    _, first = measured(capsys, *words, *slo, "--output-tokens", "20", "--out", str(out))
    assert main(["report", str(out), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert first["payload"]["rate"][0]["good_pct"] == 100
    assert [slo["met"] for slo in first["payload"]["rate"][0]["slo"]] == [True, True]


BAD = [
    ([], "--rps"),
    (["--rps", "0"], "rate"),
    (["--rps", "x"], "rate"),
    (["--rps", "2", "--trace", "t"], "one of the two"),
    (["--trace", "/nowhere/trace"], "/nowhere/trace"),
    (["--rps", "2", "--duration", "0s"], "duration"),
    (["--rps", "2", "--slo", "ttfft=2s"], "did you mean"),
    (["--rps", "900000", "--duration", "1h"], "at most"),
    (["--rps", "2", "--output-tokens", "9000"], "context"),
]


@pytest.mark.parametrize(("words", "says"), BAD, ids=lambda value: " ".join(value)[:40])
def test_bad_input_is_one_line_and_leaves_nothing(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    out = tmp_path / "study"
    assert main(["rate", server, "--quiet", *words, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1, error
    assert says in error
    assert not out.exists()


def test_a_trace_that_does_not_fit_the_context_is_refused_with_its_row(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"at_s": 0}\n{"at_s": 1, "prompt_tok": 9000}\n')
    out = tmp_path / "study"
    assert main(["rate", server, "--quiet", "--trace", str(trace), "--out", str(out)]) == 2
    assert "request 2 of the trace" in capsys.readouterr().err
    assert not out.exists()

"""`concbench sustain` through its command line, against the known-truth server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from concbench.cli.main import main
from concbench.store.read import open_study
from tests.cli.reading import assert_sound, codes, measured, truth
from tests.cli.scripts import Script, play
from tests.servers import reference_server

QUICK = ["--output-tokens", "60", "--min-s", "2", "--max-s", "20"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with reference_server("--ttft-ms", "20", "--itl-ms", "5") as url:
        yield url


def test_it_ends_when_the_interval_is_reached_and_the_rate_is_the_true_one(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    words = ["sustain", server, "-c", "6", *QUICK, "--until", "2%", "--out", str(out)]
    code, result = measured(capsys, *words)
    assert_sound(code, result)
    (cell,) = result["cells"]
    assert cell["ended_by"] == "interval"
    assert cell["rounds"] == 1
    steady = cell["client"]["steady_output_tok_per_s"]
    # 60 tokens take 20 + 59 · 5 = 315 ms, six at once.
    assert steady["point"] == pytest.approx(6 * 60 / 0.315, rel=0.03)
    assert steady["n"] >= 8
    assert (steady["high"] - steady["low"]) / 2 / steady["point"] <= 0.021
    assert cell["steady"]["estimand"] == "sustained"
    assert cell["steady"]["running"]["max"] == 6
    assert cell["steady"]["running"]["mean"] == pytest.approx(6, abs=0.3)
    requests = cell["requests"]
    # The end may come between an answer and the next request of one of the six.
    assert requests["incomplete"] in (5, 6)
    assert requests["sent"] == requests["ok"] + requests["incomplete"]
    assert requests["failed"] == 0
    assert cell["client"]["e2e_ms"]["n"] == requests["ok"] - 6
    assert cell["server"]["source"] == "metrics"
    assert cell["agreement_pct"] == pytest.approx(0, abs=2)
    assert result["workload"]["arrival"] == "closed"


def test_over_two_processes_the_loop_is_one_loop_and_the_rate_the_true_one(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    words = ["sustain", server, "-c", "5", *QUICK, "--until", "3%", "--procs", "2"]
    code, result = measured(capsys, *words, "--out", str(out))
    assert_sound(code, result)
    (cell,) = result["cells"]
    assert cell["ended_by"] == "interval"
    assert cell["client"]["steady_output_tok_per_s"]["point"] == pytest.approx(
        5 * 60 / 0.315, rel=0.04
    )
    assert cell["steady"]["running"]["max"] == 5
    assert cell["requests"]["incomplete"] == 5
    assert cell["requests"]["failed"] == 0
    study = open_study(out)
    (name,) = [r.round_id for r in study.rounds("measured") if r.cell.concurrency == 5]
    loop = study.load_round(name)
    workers = {record.worker for record in loop.requests}
    assert workers == set(range(5))
    hashes = [record.prompt_sha256 for record in loop.requests]
    assert len(set(hashes)) == len(hashes)


def test_cut_requests_are_incomplete_and_their_tokens_are_in_the_ledger(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    words = ["sustain", server, "-c", "4", "--output-tokens", "400", "--max-s", "3"]
    code, result = measured(capsys, *words, "--out", str(out))
    (cell,) = result["cells"]
    assert code in (0, 4)
    assert cell["ended_by"] == "max_s"
    reader = open_study(out)
    (info,) = reader.rounds("measured")
    round_ = reader.load_round(info.round_id)
    cut = [record for record in round_.requests if record.outcome == "incomplete"]
    assert len(cut) == 4
    assert {record.error for record in cut} == {None}
    # One may have been sent a moment ago; they do not begin together, so not all of them.
    begun = [record for record in cut if record.first_token_ns is not None]
    assert begun
    assert all(record.output_tok > 0 for record in begun)
    assert all(record.output_tok == 0 for record in cut if record not in begun)
    ok = [record for record in round_.requests if record.outcome == "ok"]
    received = sum(record.output_tok for record in (*ok, *cut))
    assert cell["ledger"]["received"] == received
    assert "wide_interval" in codes(result)


def test_first_requests_are_a_share_of_the_length_and_prompts_are_fresh(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    words = ["sustain", server, "-c", "8", "--output-tokens", "40", "--max-s", "1.5"]
    measured(capsys, *words, "--seed", "11", "--out", str(out))
    reader = open_study(out)
    (info,) = reader.rounds("measured")
    records = reader.load_round(info.round_id).requests
    firsts = sorted(record.asked_output_tok for record in records[:8])
    # One in each eighth of the length.
    assert all(5 * k <= length <= 5 * (k + 1) for k, length in enumerate(firsts))
    assert {record.asked_output_tok for record in records[8:]} == {40}
    assert len({record.prompt_sha256 for record in records}) == len(records)
    assert all(record.prompt_tok == 50 for record in records if record.outcome == "ok")


def test_the_automatic_length_takes_a_twelfth_of_the_longest_loop(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sustain", server, "-c", "2", "--max-s", "2.4", "--out", str(tmp_path / "study")]
    _, result = measured(capsys, *words)
    assert result["workload"]["output_tokens"] == pytest.approx(40, abs=8)


def test_the_request_after_a_silence_stands_beside_warm_ones(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    words = ["sustain", server, "-c", "2", "--output-tokens", "40", "--max-s", "1"]
    _, result = measured(capsys, *words, "--idle-s", "0.5", "--out", str(out))
    (entry,) = result["payload"]["idle"]
    assert entry["idle_s"] >= 0.5
    assert entry["n_warm"] == 3
    assert entry["ttft_ms"] == pytest.approx(20, abs=15)
    assert entry["warm_ttft_ms"] == pytest.approx(20, abs=15)
    assert [cell["concurrency"] for cell in result["cells"]] == [2]
    labels = {info.cell.context_label for info in open_study(out).rounds()}
    assert labels == {"short", "idle"}


def test_several_loops(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sustain", server, "-c", "2", "--output-tokens", "40", "--max-s", "1"]
    _, result = measured(capsys, *words, "--rounds", "3", "--out", str(tmp_path / "study"))
    assert result["cells"][0]["rounds"] == 3


def test_a_server_that_refuses_everything_is_not_asked_without_pause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The probes and the warm-up are served; 503 from then on.
    with reference_server("--itl-ms", "5", "--max-inflight", "2") as url:
        words = ["sustain", url, "-c", "4", "--output-tokens", "40", "--max-s", "2"]
        code, result = measured(capsys, *words, "--out", str(tmp_path / "study"))
        asked = len(truth(url)["requests"])
    assert code == 4
    requests = result["cells"][0]["requests"]
    assert requests["ok"] > 0
    assert 0 < requests["failed"] < 40
    assert asked < 120


def test_a_loop_in_which_nothing_comes_is_hung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("concbench.measure.closed.STALL_S", 0.8)
    monkeypatch.setattr("concbench.measure.closed.STALL_FACTOR", 1.0)
    code, result = play(Script("hung", ("--stall-s", "120"), "stall", 60.0), tmp_path)
    (cell,) = result["cells"]
    assert code == 4
    assert cell["ended_by"] == "timeout"
    assert cell["outcome"] == "hung"
    assert "stalled" in codes(result)


BAD = [
    ([], "-c"),
    (["-c", "0"], "0"),
    (["-c", "1,2"], "one"),
    (["-c", "2", "--until", "1"], "percentage"),
    (["-c", "2", "--until", "0%"], "percentage"),
    (["-c", "2", "--max-s", "-3"], "duration"),
    (["-c", "2", "--idle-s", "0"], "seconds"),
    (["-c", "2", "--output-tokens", "9000"], "context"),
]


@pytest.mark.parametrize(("words", "says"), BAD, ids=lambda value: " ".join(value)[:40])
def test_bad_input_is_one_line_and_leaves_nothing(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    out = tmp_path / "study"
    assert main(["sustain", server, "--quiet", *words, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1, error
    assert says in error
    assert not out.exists()

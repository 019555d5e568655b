"""A round that will not end by itself is ended: silence, and answers without an end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from concbench.cli.main import main
from concbench.domain import RequestRecord
from concbench.load.generator import Progress
from concbench.measure.silence import (
    LATER_SILENT_S,
    MOST_GUESSED_S,
    RUNAWAY_ROOM_BYTES,
    STALL_S,
    Guard,
    Patience,
    Runaway,
    Silence,
    later_silent_s,
    probe_guard,
)
from concbench.observe.observer import LiveView
from tests.servers import reference_server

S = 1_000_000_000


def progress(at_s: float, received: int = 0, in_flight: int = 1) -> Progress:
    return Progress(
        elapsed_ns=int(at_s * S), in_flight=in_flight, ended=0, reads=0, received_bytes=received
    )


def view(generated: float | None) -> LiveView:
    return LiveView(
        stamp_ns=0,
        running=1.0,
        waiting=0.0,
        generated_tok=generated,
        generated_tok_per_s=None,
        scrapes=1,
        skipped=0,
        failed=0,
    )


def test_silence_counts_from_the_last_byte() -> None:
    silence = Silence(10, lambda: None)
    assert silence.look(progress(0)) is None
    assert silence.look(progress(9.9)) is None
    assert silence.look(progress(9.95, received=1)) is None
    assert silence.look(progress(19.9, received=1)) is None
    assert silence.look(progress(20, received=1)) == (
        "no byte came for 10 s with 1 requests in flight"
    )


def test_nothing_in_flight_is_no_silence() -> None:
    silence = Silence(10, lambda: None)
    assert all(silence.look(progress(t, in_flight=0)) is None for t in range(60))
    assert silence.look(progress(61)) is None


def test_a_counter_that_moves_is_no_silence() -> None:
    counted = [0.0]
    silence = Silence(10, lambda: view(counted[0]))
    for second in range(0, 60, 5):
        counted[0] += 1
        assert silence.look(progress(second)) is None
    assert silence.look(progress(66)) is not None


def test_an_unknown_counter_is_a_still_one() -> None:
    silence = Silence(10, lambda: view(None))
    assert silence.look(progress(0)) is None
    assert silence.look(progress(11)) is not None


def test_runaway_leaves_room_for_long_events() -> None:
    runaway = Runaway(100, 2, 300.0)
    assert runaway.look(progress(1, received=8 * 100 * 300 + 2 * RUNAWAY_ROOM_BYTES)) is None
    said = runaway.look(progress(1, received=8 * 100 * 300 + 2 * RUNAWAY_ROOM_BYTES + 1))
    assert said is not None
    assert "did not end" in said
    assert Runaway(100, 1, 0.0).look(progress(1, received=500_000)) is None


def test_patience_grows_with_what_was_seen_and_what_is_asked() -> None:
    patience = Patience(prefill_ns=100_000_000)
    assert patience.limit_s(1, 50) == STALL_S
    assert patience.limit_s(1, 5_000) == pytest.approx(50)
    assert patience.limit_s(64, 100_000) == MOST_GUESSED_S
    waited = RequestRecord(
        index=0, worker=0, due_ns=0, sent_ns=0, outcome="ok", first_token_ns=200 * S
    )
    patience.learn([waited])
    assert patience.limit_s(1, 50) == pytest.approx(1000)


def test_a_short_request_may_be_silent_as_long_as_answers_were_before() -> None:
    assert later_silent_s(0.2) == LATER_SILENT_S
    assert later_silent_s(100.0) == 500.0


def test_a_probe_is_ended_by_silence_by_too_much_and_by_its_length() -> None:
    def guard(silent_s: float = 30.0) -> Guard:
        return probe_guard(silent_s, output_tok=24, step_s=1.0, bytes_per_tok=100.0)

    assert "no byte came for 30 s" in (guard().silence.look(progress(30)) or "")
    assert "did not end" in (guard().runaway.look(progress(1, received=5_000_000)) or "")
    assert guard().deadline.look(progress(269)) is None
    assert "did not end within 270 s" in (guard().deadline.look(progress(271)) or "")
    assert guard(600.0).deadline.look(progress(599)) is None, "while a model loads"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concbench.measure.silence.STALL_S", 0.7)
    monkeypatch.setattr("concbench.measure.silence.LATER_SILENT_S", 0.7)
    monkeypatch.setattr("concbench.measure.silence.STALL_FACTOR", 1.0)
    monkeypatch.setattr("concbench.measure.silence.RUNAWAY_ROOM_BYTES", 20_000)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("fault", "said"), [("hang=5", "no byte came"), ("endless", "did not end")]
)
@pytest.mark.parametrize(
    "command",
    [
        ["burst", "--levels", "1,2,4", "--rounds", "2", "--warmup", "0"],
        ["rate", "--rps", "20", "--duration", "1", "--drain-s", "30", "--rounds", "2"],
    ],
    ids=["burst", "rate"],
)
def test_what_does_not_end_is_ended(
    fault: str, said: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Requests 1 and 2 are those before the measured ones."""
    name, rest = command[0], command[1:]
    with reference_server("--ttft-ms", "2", "--itl-ms", "1", "--fault", f"{fault}@after=2") as url:
        code = main(
            [name, url, *rest, "--output-tokens", "16", "--quiet", "--json", "-",
             "--out", str(tmp_path / "s")]
        )  # fmt: skip
    result = json.loads(capsys.readouterr().out)
    assert code == 4
    measured = [cell for cell in result["cells"] if cell["rounds"]]
    assert {cell["outcome"] for cell in measured} == {"hung"}
    assert all(said in cell["outcome_detail"] for cell in measured)
    stalled = [doubt for doubt in result["doubts"] if doubt["code"] == "stalled"]
    assert {doubt["severity"] for doubt in stalled} == {"fatal"}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("hang=0@after=1", "no byte came for 1 s with 1 requests in flight"),
        ("endless@after=1", "the answers did not end"),
        ("endless", "the answers did not end"),
    ],
)
def test_a_request_before_the_measured_ones_does_not_wait_for_ever(
    fault: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with reference_server("--ttft-ms", "2", "--itl-ms", "1", "--fault", fault) as url:
        code = main(["burst", url, "--levels", "1", "--quiet", "--out", str(tmp_path / "s")])
    assert code == 3
    assert said in capsys.readouterr().err

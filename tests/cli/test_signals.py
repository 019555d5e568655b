"""Signals during a loop: the study is readable and marked, a second signal ends it at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from concbench.clock import now_ns
from concbench.store.read import open_study
from tests.servers import reference_server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with reference_server("--ttft-ms", "20", "--itl-ms", "5") as url:
        yield url


def signalled(words: list[str], out: Path, marker: str, *signals: int) -> tuple[int, str, float]:
    """Run a command and signal it once it said `marker`; return code, stderr, seconds after."""
    command = [sys.executable, "-m", "concbench", *words, "--out", str(out)]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    said, sent_ns = "", 0
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            said += line.decode()
            if marker in said and not sent_ns:
                sent_ns = now_ns()
                for number in signals:
                    child.send_signal(number)
        code = child.wait(60)
    return code, said, (now_ns() - sent_ns) / 1e9


@pytest.mark.parametrize(
    ("words", "marker", "number"),
    [
        (["sustain", "-c", "4", "--output-tokens", "40"], "in flight ·", signal.SIGINT),
        (["sustain", "-c", "4", "--output-tokens", "40"], "in flight ·", signal.SIGTERM),
        (["rate", "--rps", "20", "--output-tokens", "40"], "in flight ·", signal.SIGINT),
    ],
)
def test_a_signal_in_a_loop_leaves_a_marked_study_with_what_was_measured(
    server: str, tmp_path: Path, words: list[str], marker: str, number: int
) -> None:
    out = tmp_path / "study"
    code, said, took_s = signalled([words[0], server, *words[1:]], out, marker, number)
    assert code == 130, said
    assert "Traceback" not in said
    assert took_s < 20
    reader = open_study(out)
    assert reader.interrupted
    (info,) = reader.rounds("measured")
    assert info.interrupted
    result = json.loads((out / "result.json").read_bytes())
    assert result["interrupted"] is True
    (cell,) = result["cells"]
    assert cell["ended_by"] == "interrupt"
    assert cell["outcome"] == "interrupted"
    assert cell["requests"]["failed"] == 0
    assert cell["requests"]["incomplete"] > 0


def test_a_signal_while_the_server_is_left_idle(server: str, tmp_path: Path) -> None:
    out = tmp_path / "study"
    words = ["sustain", server, "-c", "2", "--output-tokens", "40", "--max-s", "1"]
    code, said, took_s = signalled(
        [*words, "--idle-s", "50"], out, "leaving the server idle", signal.SIGINT
    )
    assert code == 130, said
    assert took_s < 20
    result = json.loads((out / "result.json").read_bytes())
    assert result["interrupted"] is True
    assert result["cells"][0]["requests"]["ok"] > 0


def test_two_signals_end_it_at_once_and_the_study_can_still_be_read(
    server: str, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    words = ["sustain", server, "-c", "4", "--output-tokens", "40"]
    code, said, _ = signalled(words, out, "in flight ·", signal.SIGINT, signal.SIGINT)
    assert code == 130, said
    assert "Traceback" not in said
    open_study(out)

"""Signals at different moments of a burst: the study is readable, marked, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from concbench.store.read import open_study
from tests.servers import reference_server

WORDS = ["--levels", "4", "--rounds", "50", "--output-tokens", "60"]


def run_until(target: str, out: Path, marker: str, *signals: int) -> tuple[int, str, set[int]]:
    """Run a burst, signal it when it has said `marker`; return exit code, stderr, children."""
    command = [sys.executable, "-m", "concbench", "burst", target, *WORDS, "--out", str(out)]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as child:
        assert child.stderr is not None
        said = ""
        children: set[int] = set()
        for line in child.stderr:
            said += line.decode()
            if marker in said and not children:
                children = {p.pid for p in psutil.Process(child.pid).children(recursive=True)}
                children.add(child.pid)
                for number in signals:
                    child.send_signal(number)
        code = child.wait(60)
    return code, said, children


@pytest.mark.parametrize(
    ("marker", "number"),
    [
        ("warmup", signal.SIGINT),
        ("measured", signal.SIGINT),
        ("measured", signal.SIGTERM),
    ],
)
def test_a_signal_leaves_a_readable_study_marked_interrupted(
    tmp_path: Path, marker: str, number: int
) -> None:
    out = tmp_path / "study"
    with reference_server("--itl-ms", "5") as url:
        code, said, _ = run_until(url, out, marker, number)
    assert code == 130, said
    assert "Traceback" not in said
    reader = open_study(out)
    assert reader.interrupted
    assert not reader.unreadable
    assert all(reader.load_round(info.round_id) for info in reader.rounds())


def test_before_the_first_round_nothing_is_left(tmp_path: Path) -> None:
    out = tmp_path / "study"
    with reference_server("--ttft-ms", "4000") as url:
        code, said, _ = run_until(url, out, "reaching", signal.SIGINT)
    assert code == 130, said
    assert not out.exists()


@pytest.mark.system
def test_the_embedded_engine_ends_with_the_tool(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    out = tmp_path / "study"
    code, said, children = run_until("embedded", out, "measured", signal.SIGINT)
    assert code == 130, said
    assert open_study(out).interrupted
    gone, alive = psutil.wait_procs(
        [psutil.Process(p) for p in children if psutil.pid_exists(p)], 10
    )
    assert not alive, [p.cmdline() for p in alive]
    del gone


def test_two_signals_end_it_at_once(tmp_path: Path) -> None:
    out = tmp_path / "study"
    with reference_server("--itl-ms", "5") as url:
        code, said, _ = run_until(url, out, "measured", signal.SIGINT, signal.SIGINT)
    assert code == 130, said
    assert "Traceback" not in said
    open_study(out)

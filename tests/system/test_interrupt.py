"""Signals at different moments of a burst: the study is readable, marked, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from concbench.clock import now_ns, sleep_s
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


STREAMS = 1024
AT_ONCE = {
    "burst": ["--levels", str(STREAMS), "--rounds", "9"],
    "sustain": ["-c", str(STREAMS), "--max-s", "300"],
}


def running(url: str) -> float:
    """How many requests the server says that it is answering."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        found = re.search(r"^vllm:num_requests_running\S* (\S+)", answer.read().decode(), re.M)
    return float(found[1]) if found else 0.0


def cpu_s(child: subprocess.Popen[bytes]) -> float:
    """CPU seconds of a process that has not been waited for."""
    used = psutil.Process(child.pid).cpu_times()
    return float(used.user + used.system)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("command", list(AT_ONCE))
def test_a_thousand_streams_end_as_fast_as_few(tmp_path: Path, command: str, signals: int) -> None:
    out = tmp_path / "study"
    words = [*AT_ONCE[command], "--warmup", "0", "--output-tokens", "600", "--out", str(out)]
    slots = "--slots", str(STREAMS)
    with reference_server("--ttft-ms", "50", "--itl-ms", "200", *slots) as url:
        argv = [sys.executable, "-m", "concbench", command, url, *words, "--quiet"]
        child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            end_ns = now_ns() + 120 * 10**9
            while running(url) < STREAMS and child.poll() is None and now_ns() < end_ns:
                sleep_s(0.1)
            assert child.poll() is None
            before_s, sent_ns = cpu_s(child), now_ns()
            for number in range(signals):
                sleep_s(0.2 * number)  # two that are pending together are one
                os.kill(child.pid, signal.SIGINT)
            _, status, used = os.wait4(child.pid, 0)
            took_s = (now_ns() - sent_ns) / 1e9
            child.returncode = os.waitstatus_to_exitcode(status)
        finally:
            child.kill()
    assert child.returncode == 130
    # What it took of the processor is what it takes by the clock where nothing else runs.
    spent_s = used.ru_utime + used.ru_stime - before_s
    assert spent_s < 2, f"{spent_s:.1f} s of CPU, {took_s:.1f} s by the clock"
    assert took_s < 60
    if signals == 1:
        reader = open_study(out)
        assert reader.interrupted
        (info,) = reader.rounds()
        kept = reader.load_round(info.round_id)
        assert len(kept.requests) >= STREAMS
        assert {record.outcome for record in kept.requests} <= {"ok", "incomplete"}

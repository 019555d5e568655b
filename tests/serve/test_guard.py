from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from concbench.serve import guard
from tests.serve.processes import all_end

ENGINE = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
print("up", flush=True)
time.sleep(60)
"""
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ENGINE


def start_guard(log: Path, mark: str = "abc", parent: int | None = None):
    argv = [sys.executable, "-I", "-S", guard.__file__, mark, str(parent or os.getpid())]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    with process.stdout as told:
        assert told.readline() == b"ready\n"
    return process


def start_engine(code: str = ENGINE, mark: str | None = None):
    env = {**os.environ, **({guard.MARK_VARIABLE: mark} if mark else {})}
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=env,
    )
    with process.stdout as told:
        assert told.readline() == b"up\n"
    return process, [psutil.Process(process.pid), *psutil.Process(process.pid).children()]


def close(process) -> None:
    process.stdin.close()
    process.wait(15)


def gone(engine, family) -> bool:
    engine.wait(5)
    return all_end(family[1:])


def test_done_means_nothing_is_touched(tmp_path):
    engine, family = start_engine(mark="abc")
    process = start_guard(tmp_path / "log")
    process.stdin.write(b"group %d\ndone\n" % engine.pid)
    close(process)
    assert all(one.is_running() for one in family)
    for one in family:
        one.kill()
    assert gone(engine, family)


@pytest.mark.parametrize("told", [True, False])
def test_a_closed_pipe_ends_the_engine_even_if_it_was_never_named(tmp_path, told):
    engine, family = start_engine(mark="abc")
    process = start_guard(tmp_path / "log")
    if told:
        process.stdin.write(b"group %d\n" % engine.pid)
    close(process)
    assert gone(engine, family)
    assert "nothing is left" in (tmp_path / "log").read_text()


def test_a_stubborn_engine_is_killed(tmp_path, monkeypatch):
    engine, family = start_engine(STUBBORN)
    monkeypatch.setattr(guard, "GRACE_S", 0.1)
    guard._end(b"other", engine.pid)
    assert gone(engine, family)
    assert engine.returncode == -signal.SIGKILL


def test_other_marks_are_left_alone(tmp_path):
    engine, family = start_engine(mark="abcd")
    process = start_guard(tmp_path / "log", mark="abc")
    close(process)
    assert family[0].is_running()
    for one in family:
        one.kill()
    assert gone(engine, family)


def test_signals_of_the_terminal_are_ignored(tmp_path):
    process = start_guard(tmp_path / "log")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process.send_signal(number)
    process.stdin.write(b"done\n")
    process.stdin.close()
    assert process.wait(10) == 0


def test_the_death_of_the_parent_counts_even_while_the_pipe_is_held_open(tmp_path):
    parent = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    engine, family = start_engine()
    process = start_guard(tmp_path / "log", parent=parent.pid)
    process.stdin.write(b"group %d\n" % engine.pid)
    process.stdin.flush()
    parent.kill()
    parent.stdin.close()
    parent.wait()
    assert gone(engine, family)
    process.wait(10)
    process.stdin.close()


def test_stop_commands_are_run(tmp_path):
    mark = tmp_path / "stopped"
    process = start_guard(tmp_path / "log")
    command = [sys.executable, "-I", "-S", "-c", f"open({str(mark)!r}, 'w')"]
    process.stdin.write(b"stop " + json.dumps(command).encode() + b'\nstop ["no-such"]\n')
    close(process)
    assert mark.exists()
    assert "no-such" in (tmp_path / "log").read_text()

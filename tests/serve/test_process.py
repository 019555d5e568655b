from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from concbench.clock import sleep_s
from concbench.engines.spec import StartFailure
from concbench.errors import NotReady, OutputUnusable
from concbench.serve.process import Child, spawn
from tests.serve.processes import all_end

FOLLOWS = "import time\nprint('up', flush=True)\ntime.sleep(60)"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FOLLOWS
DAEMON = (
    """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
"""
    + FOLLOWS
)


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def start(code: str, log: Path, **options) -> Child:
    """Spawn and wait until it says `up`."""
    child = spawn(python(code), log, **options)
    for _ in range(1000):
        if "up" in child.log_lines() or child.popen.poll() is not None:
            return child
        sleep_s(0.01)
    raise AssertionError("it never said up")


def test_a_child_lives_is_seen_and_ends(tmp_path):
    log = tmp_path / "deep" / "engine.log"
    child = start(FOLLOWS, log)
    assert child.alive() is None
    assert [process.pid for process in child.members()] == [child.pid]
    assert child.rss_bytes() > 1 << 20
    assert os.getsid(child.pid) == child.pid
    teardown = child.stop()
    assert teardown["signal"] == "SIGTERM"
    assert teardown["exit_code"] == -signal.SIGTERM
    assert teardown["rss_before_bytes"] > teardown["rss_after_bytes"] == 0
    assert teardown["left_pids"] == []
    assert "ended by SIGTERM" in child.alive()
    assert child.stop() is teardown
    assert not psutil.pid_exists(child.guard.pid)


def test_one_that_ignores_sigterm_is_killed(tmp_path):
    child = start(STUBBORN, tmp_path / "log")
    teardown = child.stop(grace_s=0.2)
    assert (teardown["signal"], teardown["exit_code"]) == ("SIGKILL", -signal.SIGKILL)


def test_children_that_left_the_session_are_ended_too(tmp_path):
    child = start(DAEMON, tmp_path / "log")
    members = child.members()
    assert len(members) == 3
    child.stop()
    assert all_end(members)


def test_a_dead_leader_still_has_its_workers_ended(tmp_path):
    child = start(DAEMON, tmp_path / "log")
    workers = [process for process in child.members() if process.pid != child.pid]
    child.popen.kill()
    child.popen.wait()
    assert child.stop()["exit_code"] == -signal.SIGKILL
    assert all_end(workers)


def test_death_is_told_with_the_last_lines_and_the_known_cause(tmp_path):
    log = tmp_path / "log"
    log.write_text("out of memory in an earlier run\n")
    known = StartFailure("out of memory", "too little GPU memory", "lower the context", "oom")
    child = spawn(python("print('one'); print('boom'); raise SystemExit(3)"), log, failures=[known])
    child.popen.wait()
    told = child.alive()
    assert "exit code 3" in told
    assert "one | boom" in told
    assert child.failure() is None
    child.stop()
    child = spawn(python("print('CUDA out of memory')"), log, failures=[known])
    child.popen.wait()
    assert "too little GPU memory; lower the context" in child.alive()
    child.stop()


def test_environment_and_folder(tmp_path):
    code = "import os; print(os.environ['SOME'], os.getcwd())"
    child = spawn(python(code), tmp_path / "log", env={"SOME": "thing"}, cwd=tmp_path)
    child.popen.wait()
    assert child.log_lines() == [f"thing {tmp_path}"]
    child.stop()


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(NotReady, match="no-such-engine cannot be started: No such file"):
        spawn(["no-such-engine"], tmp_path / "log")


def test_a_log_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputUnusable, match="cannot be written"):
        spawn(["x"], tmp_path / "file" / "log")

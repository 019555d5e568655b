"""Lanes left running, found again, ended; and what an earlier run left behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from concbench.clock import sleep_s
from concbench.errors import OutputUnusable
from concbench.plan.model import LanePlan
from concbench.serve import ports, records
from concbench.serve.http import Access
from concbench.serve.lane import Recipe, start
from concbench.serve.orphans import find_orphans
from concbench.serve.running import running_lane
from tests.serve.processes import all_end
from tests.serve.runtimes import boxed, install

FAKE = Path(__file__).with_name("fake_engine.py")


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def up(tmp_path: Path) -> records.Record:
    """Start the stand-in engine and leave it running."""
    port = ports.free_port()
    argv = (sys.executable, "-I", "-S", str(FAKE), str(port), "0")
    running = start(
        Recipe("mine", "openai", argv, f"http://127.0.0.1:{port}"), tmp_path / "log", 30
    )
    record = records.save(running, str(tmp_path / "plan.toml"))
    running.detach()
    return record


def test_left_running_found_again_and_ended(tmp_path):
    plan = str(tmp_path / "plan.toml")
    record = up(tmp_path)
    try:
        found = records.find(plan, "mine")
        assert found == record
        assert found.alive() is None
        assert records.every() == [record]
        assert records.find(plan, "other") is None
        met = found.attach(Access())
        assert met.facts.launch == record.facts.launch
        assert met.facts.memory_bytes == record.facts.memory_bytes
        lane = LanePlan(name="mine", command=["x"])
        with running_lane(lane, plan, Access(), tmp_path / "log2") as again:
            assert again.facts.cold_start_s == record.cold_start["first_token_s"]
            assert again.alive() is None
        assert record.alive() is None
        assert [one for one in find_orphans() if one.mark == record.mark] == []
    finally:
        engine = psutil.Process(record.pid)
        teardown = record.end()
    assert (teardown["signal"], teardown["left_pids"]) == ("SIGTERM", [])
    assert teardown["port_free"]
    assert teardown["memory_back"]
    assert all_end([engine], 0)
    assert records.every() == []
    assert "has ended" in record.alive()


def test_one_that_died_meanwhile_is_forgotten(tmp_path):
    record = up(tmp_path)
    os.kill(record.pid, signal.SIGKILL)
    while record.alive() is None:
        sleep_s(0.01)
    assert records.find(str(tmp_path / "plan.toml"), "mine") is None
    assert records.every() == []
    assert record.end()["signal"] is None


def test_a_number_given_anew_is_not_taken_for_the_engine(tmp_path):
    record = up(tmp_path)
    record.end()
    record.pid = os.getpid()
    assert record.family.session == 0
    assert "has ended" in record.alive()


def test_one_in_a_container(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch)
    running = start(boxed(tmp_path, "0"), tmp_path / "log", 30)
    record = records.save(running, "plan.toml")
    running.detach()
    assert record.alive() is None
    assert [one for one in find_orphans() if one.mark == record.mark] == []
    teardown = record.end()
    assert (teardown["container_gone"], teardown["memory_back"]) == (True, True)
    assert "is gone" in record.alive()


def test_a_record_that_cannot_be_written_says_what_to_do(tmp_path, monkeypatch):
    port = ports.free_port()
    argv = (sys.executable, "-I", "-S", str(FAKE), str(port), "0")
    (tmp_path / "file").write_text("")
    with start(
        Recipe("mine", "openai", argv, f"http://127.0.0.1:{port}"), tmp_path / "l", 30
    ) as on:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
        with pytest.raises(OutputUnusable, match="set XDG_STATE_HOME"):
            records.save(on, "plan.toml")


def test_an_orphan_is_named_with_its_pids_and_left_alone(tmp_path):
    port = ports.free_port()
    argv = (sys.executable, "-I", "-S", str(FAKE), str(port), "0")
    running = start(
        Recipe("mine", "openai", argv, f"http://127.0.0.1:{port}"), tmp_path / "log", 30
    )
    mark = running.child.guard.mark
    assert [one for one in find_orphans() if one.mark == mark] == []
    running.detach()
    [orphan] = [one for one in find_orphans() if one.mark == mark]
    assert orphan.pids == (running.child.pid,)
    assert orphan.end_with == f"kill {running.child.pid}"
    assert str(running.child.pid) in orphan.told
    assert running.alive() is None
    running.stop()
    assert [one for one in find_orphans() if one.mark == mark] == []


def test_records_that_cannot_be_read_are_passed_over(tmp_path):
    folder = records.state_folder() / "lanes"
    folder.mkdir(parents=True)
    (folder / "x-1.json").write_text("{")
    assert records.every() == []

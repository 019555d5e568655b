from __future__ import annotations

import socket
import sys
from pathlib import Path

import psutil
import pytest

from concbench.engines.spec import Fact
from concbench.errors import NotReady, PortTaken
from concbench.serve import lane, ports
from concbench.serve.lane import Recipe, start
from tests.serve.server import models, serving, token

FAKE = Path(__file__).with_name("fake_engine.py")


def recipe(port: int, loads: int = 3, **options) -> Recipe:
    argv = (sys.executable, "-I", "-S", str(FAKE), str(port), str(loads))
    return Recipe("mine", "openai", argv, f"http://127.0.0.1:{port}", **options)


def test_a_lane_starts_is_described_and_stops(tmp_path):
    port = ports.free_port()
    facts = {"engine_version": Fact("9", "file:x"), "colour": Fact("red", "argv")}
    with start(recipe(port, facts=facts), tmp_path / "log", 30) as running:
        assert running.alive() is None
        assert running.attached.model == "fake"
        assert running.attached.extra["colour"] == "red"
        cold = running.cold_start
        assert 0 < cold["listening_s"] <= cold["ready_s"] < cold["first_token_s"]
        assert running.facts.launch == list(recipe(port).argv)
        assert running.facts.cold_start_s == cold["first_token_s"]
        assert running.facts.engine_version == "9"
        assert running.facts.facts_from["engine_version"] == "file"
        assert running.facts.teardown is None
        assert "fake engine starts" in running.log_path.read_text()
    assert running.facts.teardown["port_free"] is True
    assert running.facts.teardown["left_pids"] == []
    assert "ended by SIGTERM" in running.alive()
    assert ports.is_free(port)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_whatever_is_raised_the_engine_is_stopped(tmp_path, error):
    with pytest.raises(error), start(recipe(ports.free_port()), tmp_path / "log", 30) as running:
        raise error
    assert not psutil.pid_exists(running.child.pid)


def test_an_interrupt_while_it_starts_stops_it(tmp_path, monkeypatch):
    started = []

    def interrupted(*_: object, alive, **__: object):
        started.append(alive.__self__)
        raise KeyboardInterrupt

    monkeypatch.setattr(lane, "await_attached", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start(recipe(ports.free_port()), tmp_path / "log", 30)
    assert started[0].teardown["left_pids"] == []
    assert not psutil.pid_exists(started[0].pid)


def test_a_taken_port_is_found_before_anything_starts(tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(PortTaken, match="pid"),
    ):
        start(recipe(server.getsockname()[1]), tmp_path / "log", 30)
    assert not (tmp_path / "log").exists()


def test_an_old_server_on_the_port_is_not_taken_for_the_new_one(tmp_path, monkeypatch):
    """The new engine cannot bind and the old one answers (sglang#28563)."""
    monkeypatch.setattr(ports, "require_free", lambda *_: None)
    script = {"/v1/models": models("old"), "/v1/chat/completions": token()}
    with serving(script) as old:
        argv = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)")
        with pytest.raises(PortTaken, match="not by the engine started here"):
            start(Recipe("mine", "openai", argv, old.url), tmp_path / "log", 30)


def test_an_engine_that_dies_says_what_it_said(tmp_path):
    argv = (sys.executable, "-I", "-S", "-c", "print('no such flag'); raise SystemExit(2)")
    with pytest.raises(NotReady, match=r"exit code 2 .*no such flag"):
        start(
            Recipe("mine", "openai", argv, f"http://127.0.0.1:{ports.free_port()}"),
            tmp_path / "log",
            30,
        )


def test_an_engine_that_is_too_slow(tmp_path):
    with pytest.raises(NotReady, match="not ready after"):
        start(recipe(ports.free_port(), loads=10**6), tmp_path / "log", 0.5)

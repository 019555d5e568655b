"""Lanes of a plan file for real: llama.cpp from the wheel, by the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from concbench.cli.main import main
from concbench.clock import now_ns, sleep_s
from concbench.errors import MissingExtra
from concbench.serve.embedded import embedded_recipe, find_model
from concbench.serve.guard import MARK_VARIABLE
from tests.serve.processes import all_end

pytestmark = pytest.mark.system

ENGINE = "concbench.serve.llamacpp_child"
PLAN = """
[lanes.plain]
engine = "llamacpp"
model = "embedded"
flags = { parallel = 2, ctx-size = 1024 }

[lanes.small]
engine = "llamacpp"
model = "embedded"
flags = { np = 1, c = 512, ctk = "q8_0", ctv = "q8_0", fa = "on" }
reference = "small.toml"
"""
RECIPE = """
engine = "llamacpp"
[flags]
cache-type-k = "q8_0"
cache-type-v = "q8_0"
spec-type = "ngram-mod"
ctx-size = 2048
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path, monkeypatch):
    try:
        embedded_recipe(1, 256, {})
    except MissingExtra as error:
        pytest.skip(str(error))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def plan(tmp_path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    (tmp_path / "small.toml").write_text(RECIPE)
    return path


def lanes(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Run `lanes` and return its payload."""
    assert main(["lanes", *words, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)["payload"]


def marked() -> list[psutil.Process]:
    """Return the living engines of this session's tests: those below this process's state."""
    found = []
    for process in psutil.process_iter():
        try:
            env = process.environ()
            if MARK_VARIABLE in env and env.get("XDG_STATE_HOME") == os.environ["XDG_STATE_HOME"]:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def child(**settings: object) -> list[str]:
    """Return a command that runs the wheel's server; `{port}` is filled in when it starts."""
    full = {"model": str(find_model()), "host": "127.0.0.1", "parallel": 1, "ctx-size": 256}
    words = json.dumps({**full, "port": "{port}", **settings}).replace('"{port}"', "{port}")
    return [sys.executable, "-m", ENGINE, "--json", words]


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


def fails(capsys: pytest.CaptureFixture[str], *, wait_s: str = "60", **lane: object) -> str:
    """Start a lane that cannot start; return the one line on stderr that says why."""
    table = "\n".join(f"{key} = {toml(value)}" for key, value in lane.items())
    Path("failing.toml").write_text(f"[lanes.x]\n{table}\n")
    code = main(["lanes", "up", "x", "--plan", "failing.toml", "--wait-s", wait_s, "--quiet"])
    errors = capsys.readouterr().err.splitlines()
    [line] = [line for line in errors if line.startswith("concbench: ")]
    assert code in (2, 3), errors
    assert marked() == []
    return f"{code} {line}"


def test_a_model_that_is_not_there(capsys):
    line = fails(capsys, engine="llamacpp", command=child(model="/no/such.gguf"))
    assert line.startswith("3 ")
    assert "the model's file is not there, and could not be fetched; check the path" in line
    line = fails(capsys, engine="llamacpp", model="no-such.gguf")
    assert line.startswith("2 concbench: ")
    assert "is no file" in line


def test_a_file_that_is_no_model(capsys, tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"no model at all")
    line = fails(capsys, engine="llamacpp", model="broken.gguf")
    assert "is no GGUF, or only a part of one" in line


def test_an_unknown_flag(capsys):
    line = fails(capsys, engine="llamacpp", model="embedded", flags={"ctx-siz": 256})
    assert line.startswith("2 ")
    assert "did you mean ctx-size?" in line
    line = fails(capsys, engine="llamacpp", command=child(colour="red"))
    assert "does not know a flag" in line


def test_a_taken_port(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = fails(capsys, engine="llamacpp", model="embedded", flags={"port": port})
    assert re.search(rf"port {port} is taken by .*pid {os.getpid()}", line)


def test_a_context_that_memory_cannot_hold(capsys):
    flags = {"parallel": 1, "ctx-size": 100_000_000, "fit": "off"}
    line = fails(capsys, engine="llamacpp", model="embedded", flags=flags)
    assert "do not fit into memory; lower -c or -np" in line


def test_one_that_is_killed_while_it_starts(capsys):
    command = ["bash", "-c", "echo loading; kill -9 $$"]
    line = fails(capsys, engine="llamacpp", command=command)
    assert "was ended by SIGKILL (the kernel ends what needs too much memory that way)" in line
    assert "last lines: loading" in line


def test_a_program_that_is_not_there(capsys):
    line = fails(capsys, engine="llamacpp", command=["no-such-server", "-m", "x"])
    assert "no-such-server cannot be started: No such file" in line
    assert "is it installed" in line


def test_one_that_is_never_ready(capsys):
    line = fails(capsys, wait_s="0.5", engine="vllm", command=["sleep", "60", "--port", "9"])
    assert re.search(r"ended with exit code 1|not ready after", line)
    command = ["bash", "-c", "sleep 60"]
    line = fails(capsys, wait_s="0.3", engine="llamacpp", command=command)
    assert "was not ready after 0.3 s" in line


def test_another_engine_answers(capsys):
    words = [
        sys.executable,
        "-m",
        "concbench",
        "reference",
        "--persona",
        "vllm",
        "--port",
        "{port}",
    ]
    line = fails(capsys, engine="llamacpp", command=words)
    assert "is answered by vLLM, but the lane says llama.cpp" in line


def test_the_last_lines_of_the_log_are_shown(capsys, tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"no model at all")
    (tmp_path / "plan.toml").write_text(PLAN.replace('"embedded"', '"broken.gguf"', 1))
    assert main(["lanes", "up", "plain"]) == 3
    errors = capsys.readouterr().err
    assert "last lines of" in errors
    assert "invalid magic characters" in errors


def test_lanes_go_up_are_shown_compared_and_go_down(capsys, plan):
    started = lanes(capsys, "up", "plain", "small")["lanes"]
    engines = marked()
    try:
        assert [(row["facts"]["slots"], row["facts"]["kv_cache_dtype"]) for row in started] == [
            (2, "f16"),
            (1, "q8_0"),
        ]
        listed = {row["lane"]: row["state"] for row in lanes(capsys, "list")["lanes"]}
        assert listed == {"plain": "up", "small": "up"}
        [shown] = lanes(capsys, "show", "small")["lanes"]
        facts = shown["facts"]
        assert shown["live"]
        assert facts["cold_start_s"] > 0
        assert facts["engine_version"].startswith("xllamacpp")
        assert facts["memory_bytes"] > 50 << 20
        assert facts["facts_from"]["memory_bytes"] == "process"
        assert shown["extra"]["model_hash"].startswith("sha256:")
        assert shown["extra"]["sampling_defaults"]["top_k"] == 40
        told = lanes(capsys, "diff", "plain", "small")
        assert told["unfair"] == ["kv_cache_dtype", "context", "slots"] or told["unfair"] == [
            "kv_cache_dtype",
            "slots",
        ]
        found = lanes(capsys, "lint", "small")["findings"]
        gaps = {
            (one["code"], one["evidence"]["name"]) for one in found if one["kind"] == "reference"
        }
        assert gaps == {("missing_flag", "spec-type"), ("different_flag", "ctx-size")}
        assert main(["lanes", "up", "plain"]) == 2
        assert "is up already" in capsys.readouterr().err
    finally:
        ended = lanes(capsys, "down", "--all")["lanes"]
    assert {row["lane"] for row in ended} == {"plain", "small"}
    assert all(row["teardown"]["port_free"] for row in ended)
    assert all_end(engines, 0)


def test_a_burst_on_a_lane_by_its_name(capsys, plan):
    """Started for the burst and stopped; then the one that is up is used, and left up."""
    words = ["burst", "plain", "--levels", "2", "--rounds", "1", "--output-tokens", "20", "--quiet"]
    assert main([*words, "--json", "-"]) in (0, 4)
    target = json.loads(capsys.readouterr().out)["target"]
    assert target["lane"] == "plain"
    assert target["teardown"]["memory_back"]
    assert marked() == []
    lanes(capsys, "up", "plain")
    try:
        assert main([*words, "--plan", str(plan), "--json", "-"]) in (0, 4)
        again = json.loads(capsys.readouterr().out)["target"]
        assert again["teardown"] is None
        assert again["cold_start_s"] > 0
        assert len(marked()) == 1
    finally:
        lanes(capsys, "down", "plain")
    assert main(["burst", "plane", "--plan", str(plan), "--quiet"]) == 2
    assert "did you mean plain?" in capsys.readouterr().err


BURST = ["burst", "plain", "--levels", "2", "--rounds", "50", "--output-tokens", "150"]


def tool(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "concbench", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def until(condition: Any, timeout_s: float = 150.0) -> None:
    end_ns = now_ns() + int(timeout_s * 1e9)
    while not condition():
        assert now_ns() < end_ns, "it never came to that"
        sleep_s(0.05)


def measuring(folder: Path) -> bool:
    """Whether a first round has been stored."""
    return any(folder.glob("study/rounds/[!.]*"))


def test_an_engine_that_crashes_during_a_burst(tmp_path, plan):
    with tool(*BURST, "--out", "study") as running:
        until(lambda: measuring(tmp_path))
        for process in marked():
            process.kill()
        _, said = running.communicate(timeout=60)
    assert running.returncode in (3, 4), said.decode()
    assert marked() == []
    assert any(tmp_path.glob("study/rounds/[!.]*"))


def test_an_interrupt_while_it_loads(tmp_path, plan):
    with tool("lanes", "up", "plain") as running:
        until(marked)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)
    assert running.returncode == 130
    assert marked() == []


def test_kill_9_of_the_tool_during_a_burst(tmp_path, plan):
    with tool(*BURST, "--out", "study") as running:
        until(lambda: measuring(tmp_path))
        engines = marked()
        assert engines
        running.kill()
        running.communicate()
    assert all_end(engines, 20)
    assert marked() == []

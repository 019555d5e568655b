"""Containers, with a stand-in runtime whose containers outlive their clients as real ones do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from concbench.clock import now_ns, sleep_s
from concbench.errors import NotReady, PortTaken, StartFailed
from concbench.serve import lane as lane_module
from concbench.serve import ports
from concbench.serve.container import ContainerRecipe
from concbench.serve.lane import start
from concbench.serve.orphans import find_orphans
from concbench.serve.runtime import host_network, inspect
from tests.serve.processes import all_end
from tests.serve.runtimes import IMAGE, boxed, install

TOOL = """
import sys
from pathlib import Path
from concbench.clock import sleep_s
from concbench.serve.lane import start
from tests.serve.runtimes import boxed
running = start(boxed(Path(sys.argv[1]), "0"), Path(sys.argv[1]) / "log", 30)
print(running.child.name, running.child.pid, running.port, flush=True)
sleep_s(60)
"""


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return install(tmp_path, monkeypatch)


def until(condition, timeout_s: float = 10.0) -> bool:
    end_ns = now_ns() + int(timeout_s * 1e9)
    while not condition():
        if now_ns() > end_ns:
            return False
        sleep_s(0.02)
    return True


def test_it_starts_is_described_and_is_gone_after(tmp_path, state):
    with start(boxed(tmp_path, "3"), tmp_path / "log", 30) as running:
        name = running.child.name
        facts = running.facts
        assert name.startswith("concbench-boxed-")
        assert facts.container["image"] == IMAGE
        assert facts.container["image_digest"] == f"fake/engine@sha256:{'1' * 64}"
        assert facts.container["pulled_s"] is None
        assert facts.launch[1:4] == ["run", "--detach", "--name"]
        assert f"127.0.0.1:{running.port}:8000" in facts.launch
        assert facts.memory_bytes > 1 << 20
        assert running.alive() is None
        engine = psutil.Process(running.child.pid)
        assert until(lambda: "fake engine starts" in running.child.log_lines())
    teardown = running.facts.teardown
    assert teardown["container_gone"] is True
    assert (teardown["signal"], teardown["exit_code"]) == ("SIGTERM", 128 + 15)
    assert (teardown["port_free"], teardown["left_pids"]) == (True, [])
    assert teardown["rss_before_bytes"] > teardown["rss_after_bytes"] == 0
    assert all_end([engine], 0)
    assert not list(state.glob("*.json"))
    assert "is gone" in running.alive()


def test_variables_are_named_not_spelled_out(tmp_path, state):
    recipe = boxed(tmp_path, "0").replaced(env={"API_TOKEN": "very-secret"})
    with start(recipe, tmp_path / "log", 30) as running:
        assert "very-secret" not in " ".join(running.child.argv)
        box = json.loads((state / f"{running.child.name}.json").read_text())
        assert box["Config"]["Env"]["API_TOKEN"] == "very-secret"


def test_a_crash_is_told_with_its_exit_code_its_cause_and_its_log(tmp_path, state):
    with pytest.raises(StartFailed, match=r"exit code 3: the GPU's memory ran out") as caught:
        start(boxed(tmp_path, "0", "crash"), tmp_path / "log", 30)
    assert caught.value.outcome == "oom"
    assert "CUDA out of memory" in caught.value.__notes__[0]
    assert not list(state.glob("*.json"))


def test_the_kernel_ending_it_for_memory_is_told(tmp_path, state):
    (state / "oom").touch()
    with pytest.raises(NotReady, match="the kernel ended it"):
        start(boxed(tmp_path, "0", "crash"), tmp_path / "log", 30)


def test_a_client_that_dies_is_no_dead_container(tmp_path, state):
    with start(boxed(tmp_path, "0", "chatty"), tmp_path / "log", 30) as running:
        first = running.child.follower
        first.kill()
        first.wait()
        assert running.alive() is None
        assert running.child.follower is not first
        seen = len(running.child.log_lines())
        assert until(
            lambda: running.attached.http.get("/later").ok and len(running.child.log_lines()) > seen
        )
        assert running.alive() is None


def test_one_that_ignores_sigterm_is_killed(tmp_path, state, monkeypatch):
    running = start(boxed(tmp_path, "0", "stubborn"), tmp_path / "log", 30)
    teardown = running.child.stop(grace_s=0.0)
    assert (teardown["signal"], teardown["container_gone"]) == ("SIGKILL", True)


def test_an_interrupt_while_it_loads_takes_it_away(tmp_path, state, monkeypatch):
    def interrupted(*_: object, **__: object):
        raise KeyboardInterrupt

    monkeypatch.setattr(lane_module, "await_attached", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start(boxed(tmp_path, "0"), tmp_path / "log", 30)
    assert not list(state.glob("*.json"))


def test_kill_9_of_the_tool_takes_the_container_away(tmp_path, state):
    with subprocess.Popen(
        [sys.executable, "-c", TOOL, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as tool:
        name, pid, port = tool.stdout.readline().split()
        engine = psutil.Process(int(pid))
        assert inspect(str(tmp_path / "bin" / "docker"), name)
        tool.kill()
    assert all_end([engine], 20)
    assert until(lambda: not (state / f"{name}.json").exists())
    assert ports.is_free(int(port))


def test_an_image_that_is_not_there_is_fetched_or_told(tmp_path, state):
    recipe = boxed(tmp_path, "0")
    (state / "images").write_text("other")
    with pytest.raises(NotReady, match=r"could not be fetched: .*pull access denied"):
        start(recipe, tmp_path / "log", 30)
    (state / "registry").touch()
    with start(recipe, tmp_path / "log", 30) as running:
        assert running.facts.container["pulled_s"] > 0


@pytest.mark.parametrize(
    ("says", "error", "advice"),
    [
        ("Bind for 127.0.0.1:80 failed: port is already allocated", PortTaken, "another port"),
        ("could not select device driver with capabilities: [[gpu]]", NotReady, "toolkit"),
    ],
)
def test_what_the_runtime_refuses_is_told_with_advice(tmp_path, state, says, error, advice):
    (state / "refuse").write_text(says)
    with pytest.raises(error, match=advice):
        start(boxed(tmp_path, "0"), tmp_path / "log", 30)


def test_without_its_daemon(tmp_path, state):
    (state / "down").touch()
    with pytest.raises(NotReady, match="is its daemon running"):
        start(boxed(tmp_path, "0"), tmp_path / "log", 30)


def test_a_name_that_is_taken_leaves_the_other_container_alone(tmp_path, state):
    with start(boxed(tmp_path, "0", name="mine"), tmp_path / "log", 30) as running:
        with pytest.raises(NotReady, match="give it another name"):
            start(boxed(tmp_path, "0", name="mine"), tmp_path / "log2", 30)
        assert running.alive() is None


def test_one_left_behind_is_found_and_left_alone(tmp_path, state):
    running = start(boxed(tmp_path, "0"), tmp_path / "log", 30)
    assert [one for one in find_orphans() if one.kind == "container"] == []
    running.child.detach()
    found = [one for one in find_orphans() if one.kind == "container"]
    # Both names of the stand-in show the same containers.
    assert {one.name.partition(" ")[2] for one in found} == {running.child.name}
    assert found[0].end_with == f"docker rm --force {running.child.name}"
    assert running.child.state()["Running"]
    running.child.stop()


def test_never_ready_says_where_to_listen(tmp_path, state):
    with pytest.raises(StartFailed, match=r"must listen on 0\.0\.0\.0"):
        start(boxed(tmp_path, "1000000"), tmp_path / "log", 0.5)


def test_words_of_the_run():
    box = ContainerRecipe("docker", "i", ("--x",), ("--gpus", "all"), host_port=5, inside_port=8)
    words = box.run_words("n", "l", "m", ["A"])
    assert words[words.index("--publish") + 1] == "127.0.0.1:5:8"
    assert words[-4:] == ["--gpus", "all", "i", "--x"]
    assert "--rm" not in words
    shared = ContainerRecipe("docker", "i").run_words("n", "l", "m", [])
    assert "--publish" not in shared


@pytest.mark.parametrize("options", [["--network=host"], ["--net", "host"], ["--network", "host"]])
def test_the_hosts_network(options):
    assert host_network(options)
    assert not host_network(["--network", "hostile"])

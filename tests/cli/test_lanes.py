"""`concbench lanes` through its command line, with stand-ins; real engines are in tests/system."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from concbench.cli.main import main
from concbench.serve import records
from concbench.serve.lane import Recipe, start
from concbench.serve.ports import free_port
from tests.serve.runtimes import IMAGE, install
from tests.servers import reference_server

FAKE = Path(__file__).parents[1] / "serve" / "fake_engine.py"
FAKE_LANE = f"""
[lanes.fake]
command = {json.dumps([sys.executable, "-I", "-S", str(FAKE), "{port}", "2"])}
notes = "the stand-in"
"""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def lanes(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["lanes", *words, "--json", "-"]) == code
    captured = capsys.readouterr()
    return json.loads(captured.out, parse_constant=lambda text: pytest.fail(text))


def says(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    assert main(["lanes", *words]) == code
    return capsys.readouterr().err


def test_up_list_show_and_down(tmp_path, capsys):
    Path("concbench.toml").write_text(FAKE_LANE)
    up = lanes(capsys, "up", "fake")
    try:
        assert up["command"] == "lanes"
        assert up["payload"]["action"] == "up"
        assert up["target"]["cold_start_s"] > 0
        [row] = lanes(capsys, "list")["payload"]["lanes"]
        assert (row["state"], row["engine"], row["notes"]) == ("up", "openai", "the stand-in")
        assert main(["lanes", "list"]) == 0
        assert "fake" in capsys.readouterr().out
        [shown] = lanes(capsys, "show", "fake")["payload"]["lanes"]
        assert shown["facts"]["base_url"] == row["url"]
        assert shown["cold_start"]["first_token_s"] == up["target"]["cold_start_s"]
        assert "is up already" in says(capsys, "up", "fake", code=2)
    finally:
        down = lanes(capsys, "down", "fake")["payload"]["lanes"][0]
    assert down["teardown"]["port_free"]
    assert "is not up" in says(capsys, "down", "fake", code=2)
    assert lanes(capsys, "list")["payload"]["lanes"][0]["state"] == "stopped"


def test_a_container_lane(tmp_path, capsys, monkeypatch):
    state = install(tmp_path, monkeypatch)
    Path("plan.toml").write_text(
        f'[lanes.boxed]\ncontainer = {{ image = "{IMAGE}", args = ["1"], port = 80 }}\n'
        "env = { API_TOKEN = 'secret' }\n"
    )
    up = lanes(capsys, "up", "boxed")
    text = json.dumps(up)
    assert "secret" not in text
    name = up["target"]["container"]["name"]
    assert (state / f"{name}.json").exists()
    assert lanes(capsys, "list")["payload"]["orphans"] == []
    [row] = lanes(capsys, "down", "boxed")["payload"]["lanes"]
    assert row["teardown"]["container_gone"]
    assert not (state / f"{name}.json").exists()


def test_a_lane_of_another_plan_is_listed_and_ended_by_all(tmp_path, capsys):
    other = tmp_path / "other.toml"
    other.write_text(FAKE_LANE)
    lanes(capsys, "up", "fake", "--plan", str(other))
    [row] = lanes(capsys, "list")["payload"]["lanes"]
    assert (row["way"], row["plan"], row["state"]) == ("other plan", str(other), "up")
    assert len(lanes(capsys, "down", "--all")["payload"]["lanes"]) == 1
    assert records.every() == []


def test_what_an_earlier_run_left_is_named_and_left_alone(tmp_path, capsys):
    port = free_port()
    argv = (sys.executable, "-I", "-S", str(FAKE), str(port), "0")
    running = start(Recipe("x", "openai", argv, f"http://127.0.0.1:{port}"), tmp_path / "log", 30)
    running.detach()
    try:
        pid = running.child.pid
        [orphan] = [
            one for one in lanes(capsys, "list")["payload"]["orphans"] if pid in one["pids"]
        ]
        assert orphan["end_with"] == f"kill {pid}"
        Path("plan.toml").write_text(FAKE_LANE)
        warned = says(capsys, "up", "fake", code=0)
        assert f"end it with: kill {pid}" in warned
        assert running.alive() is None
        lanes(capsys, "down", "fake")
    finally:
        running.stop()


def test_a_lane_with_a_url(capsys):
    with reference_server("--persona", "vllm", "--model", "m") as url:
        stop = json.dumps([sys.executable, "-c", "pass"])
        Path("plan.toml").write_text(f'[lanes.there]\nurl = "{url}"\nstop = {stop}\n')
        [up] = lanes(capsys, "up", "there")["payload"]["lanes"]
        assert up["state"] == "attached"
        assert up["facts"]["engine"] == "vllm"
        assert up["facts"]["first_request_s"] > 0
        [row] = lanes(capsys, "list")["payload"]["lanes"]
        assert (row["state"], row["url"]) == ("attached", url)
        assert lanes(capsys, "diff", "there", url)["payload"]["unfair"] == []


def test_a_lane_whose_server_is_not_there(capsys):
    Path("plan.toml").write_text(
        f'[lanes.there]\nengine = "vllm"\nurl = "http://127.0.0.1:{free_port()}"\n'
    )
    assert "connection refused" in says(capsys, "up", "there", code=3)
    [shown] = lanes(capsys, "show", "there")["payload"]["lanes"]
    assert shown["live"] is False
    assert "connection refused" in shown["why_not"]
    lanes(capsys, "lint", "there")
    assert "was not started here" in says(capsys, "down", "there", code=2)


def test_lint_puts_gaps_into_the_doubts(capsys):
    Path("plan.toml").write_text(
        '[lanes.x]\ncommand = ["llama-server", "-m", "m", "--spec-synth-len", "3"]\n'
        'reference = "r.toml"\n'
    )
    Path("r.toml").write_text('engine = "llamacpp"\n[flags]\nparallel = 8\n')
    result = lanes(capsys, "lint", code=4)
    doubts = {doubt["message"]: (doubt["code"], doubt["severity"]) for doubt in result["doubts"]}
    assert doubts["x: r.toml: --parallel = 8 is missing"] == ("lane_incomplete", "warning")
    assert ("simulated_acceptance", "fatal") in doubts.values()


def test_diff_of_lanes_that_do_not_run(capsys):
    Path("plan.toml").write_text(
        '[lanes.a]\ncommand = ["vllm", "serve", "Q/M-27B-int4-AutoRound", "--max-model-len", '
        '"131072", "--max-num-seqs", "16"]\n'
        '[lanes.b]\ncommand = ["llama-server", "-m", "M-27B-Q5_K_M.gguf", '
        '"-c", "16384", "-np", "2"]\n'
    )
    payload = lanes(capsys, "diff", "a", "b")["payload"]
    assert payload["unfair"] == ["quantization", "context", "slots"]
    assert main(["lanes", "diff", "a", "b"]) == 0
    printed = capsys.readouterr().out
    assert "makes the comparison unfair" in printed
    assert "cannot be told" in printed
    assert "takes two lanes" in says(capsys, "diff", "a", code=2)


def test_a_swap_on_the_known_truth_server(capsys, monkeypatch):
    monkeypatch.setattr("concbench.serve.swap.UNLOAD_DEADLINE_S", 0.1)
    with reference_server("--persona", "llama-swap", "--model", "m") as url:
        payload = lanes(capsys, "swap", url, "m")["payload"]
        assert payload["kind"] == "llama-swap"
        assert payload["inflight_limit"] == 10
        [swap] = payload["swaps"]
        assert swap["first_token_s"] > 0
        assert swap["note"] == "m stayed listed as loaded"
    with reference_server("--persona", "vllm") as url:
        assert "with one model" in says(capsys, "swap", url, code=2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["up"], "name a lane"),
        (["up", "fak"], "did you mean fake?"),
        (["fly"], "invalid choice"),
        (["swap"], "takes a lane or a URL"),
        (["show", "fake", "--plan", "none.toml"], "cannot read the plan"),
    ],
)
def test_mistakes_say_what_is_right(capsys, words, told):
    Path("plan.toml").write_text(FAKE_LANE)
    assert told in says(capsys, *words, code=2)


def test_without_a_plan(capsys):
    assert "there is no plan.toml or concbench.toml here" in says(capsys, "show", "x", code=2)
    assert main(["lanes", "list"]) == 0
    assert "no lanes" in capsys.readouterr().out

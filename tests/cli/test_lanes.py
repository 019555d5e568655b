"""`concbench lanes` through its command line, with stand-ins; real engines are in tests/system."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from concbench.cli.main import main
from concbench.errors import TargetError
from concbench.measure.burst import cell_of
from concbench.measure.session import one_request
from concbench.serve import records
from concbench.serve.lane import Recipe, start
from concbench.serve.ports import free_port
from concbench.store.read import open_study
from tests.cli.reading import measured
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
    orphans = lanes(capsys, "list")["payload"]["orphans"]
    assert name not in [one["name"] for one in orphans]
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


def test_lint_knows_the_concurrency_that_is_meant(capsys):
    lane = '[lanes.x]\ncommand = ["llama-server", "-m", "m", "-np", "4", "--metrics"]\n'
    Path("plan.toml").write_text(lane)

    def found(*words: str) -> set[str]:
        payload = lanes(capsys, "lint", "x", *words)["payload"]
        return {one["code"] for one in payload["findings"]}

    assert "slots_below_concurrency" not in found()
    assert "slots_below_concurrency" in found("--concurrency", "5")
    Path("plan.toml").write_text(lane + "[sweep]\nconcurrency = [1, 8]\n")
    assert "slots_below_concurrency" in found()
    assert "slots_below_concurrency" not in found("--concurrency", "4")


def test_lint_of_lanes_started_by_flags_knows_that_counters_are_switched_on(capsys):
    Path("plan.toml").write_text('[lanes.x]\nengine = "llamacpp"\nmodel = "embedded"\n')
    found = {one["code"] for one in lanes(capsys, "lint", "x")["payload"]["findings"]}
    assert "no_metrics" not in found
    Path("plan.toml").write_text('[lanes.x]\ncommand = ["llama-server", "-m", "m"]\n')
    found = {one["code"] for one in lanes(capsys, "lint", "x")["payload"]["findings"]}
    assert "no_metrics" in found


def test_the_published_plans_read_as_their_reports_do(capsys):
    plan = str(Path(__file__).parents[2] / "examples" / "published.toml")
    found = lanes(capsys, "lint", "by-hand", "--plan", plan)
    missing = {
        one["evidence"]["name"]
        for one in found["payload"]["findings"]
        if one["code"] == "missing_flag"
    }
    assert missing == {"kv-cache-dtype", "speculative-config"}
    assert [one["code"] for one in found["doubts"]].count("lane_incomplete") == 2
    unlike = lanes(capsys, "diff", "int4", "q5", "--plan", plan)["payload"]
    assert unlike["unfair"] == ["quantization", "context", "slots"]
    values = {one["name"]: (one["a"], one["b"]) for one in unlike["differences"]}
    assert values["quantization"] == ("int4-AutoRound", "Q5_K_M")
    assert values["context"] == (131072, 8192)
    assert values["slots"] == (16, 2)


def test_the_example_with_three_lanes_is_a_plan(capsys):
    plan = Path(__file__).parents[2] / "examples" / "three-lanes.toml"
    rows = lanes(capsys, "list", "--plan", str(plan))["payload"]["lanes"]
    assert [(row["lane"], row["engine"]) for row in rows] == [
        ("f16", "llamacpp"),
        ("q8", "llamacpp"),
        ("vllm", "vllm"),
    ]
    unlike = lanes(capsys, "diff", "f16", "q8", "--plan", str(plan))["payload"]
    assert unlike["unfair"] == ["kv_cache_dtype", "context", "slots"]


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


def test_a_swap_on_the_known_truth_server(capsys):
    words = ("--persona", "llama-swap", "--model", "m", "--also-model", "n", "--swap-load-s", "0.2")
    with reference_server(*words) as url:
        payload = lanes(capsys, "swap", url, "n", "m")["payload"]
        assert payload["kind"] == "llama-swap"
        assert payload["inflight_limit"] == 10
        assert [(swap["model"], swap["before"]) for swap in payload["swaps"]] == [
            ("n", ["m"]),
            ("m", ["n"]),
        ]
        assert all(swap["load_s"] >= 0.2 for swap in payload["swaps"])
        assert all(swap["first_token_s"] > 0 for swap in payload["swaps"])
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


BURST = ("--levels", "2", "--rounds", "1", "--output-tokens", "4", "--prompt-tokens", "20")


def test_a_study_keeps_what_is_known_of_its_lane(capsys, tmp_path):
    with reference_server("--persona", "llama-swap", "--model", "m") as url:
        Path("r.toml").write_text('engine = "llama-swap"\n[flags]\nconfig = "swap.yaml"\n')
        Path("plan.toml").write_text(
            f'[lanes.there]\nurl = "{url}"\nreference = "r.toml"\nnotes = "as found"\n'
        )
        _, result = measured(capsys, "burst", "there", *BURST, "--out", "study")
    lane = result["lanes"]["there"]
    assert (lane["reference"], lane["notes"]) == ("r.toml", "as found")
    assert lane["extra"]["inflight_limit"] == 10
    assert result["target"]["facts_from"]["ttl_s"] == "endpoint"
    assert {"loading_state_sent", "concurrency_limit", "flags_unknown"} == {
        one["code"] for one in lane["findings"]
    }
    [doubt] = [one for one in result["doubts"] if one["code"] == "lane_incomplete"]
    assert "nothing tells with which flags: config cannot be confirmed" in doubt["message"]
    assert main(["report", "study", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["lanes"] == result["lanes"]
    page = Path("study/report.html").read_text()
    assert "concurrency_limit" in page
    assert "as found" in page


def test_a_burst_beyond_the_proxys_limit_names_it(capsys):
    with reference_server("--persona", "llama-swap", "--model", "m", "--ttft-ms", "400") as url:
        words = ("--levels", "14", "--rounds", "1", "--output-tokens", "4")
        code, result = measured(capsys, "burst", url, *words)
    assert code == 4
    [doubt] = [one for one in result["doubts"] if one["code"] == "concurrency_capped"]
    assert "at most 10 were let in at once (the proxy's default)" in doubt["message"]
    assert doubt["evidence"]["default_limit"] == 10


def test_how_a_started_lane_ended_is_in_the_study_also_after_an_error(capsys, monkeypatch):
    Path("plan.toml").write_text(FAKE_LANE)
    code, result = measured(capsys, "burst", "fake", *BURST, "--out", "good")
    assert code in (0, 4)
    assert result["target"]["teardown"]["port_free"]
    assert result["lanes"]["fake"]["cold_start"]["first_token_s"] > 0

    def broken(session, options, on_round, on_discard, on_say, on_look):
        made = one_request(session, "x", 1)
        on_round(msgspec.structs.replace(made, cell=cell_of(session, 2, 20), round_id="r1"))
        raise TargetError("the cable was pulled")

    monkeypatch.setattr("concbench.cli.burst.burst", broken)
    assert main(["burst", "fake", *BURST, "--out", "broken", "--quiet"]) == 3
    facts = open_study(Path("broken")).targets()["fake"]
    assert facts.teardown["port_free"]


def test_a_target_that_still_loads_is_waited_for_in_one_line(capsys):
    with reference_server("--model-load-s", "1.5") as url:
        code = main(["burst", url, *BURST, "--wait-s", "60", "--out", "study", "--json", "-"])
    errors = capsys.readouterr().err.splitlines()
    assert code in (0, 4)
    told = [line for line in errors if line.startswith("waiting up to 60 s for http://127.")]
    assert len(told) == 1
    assert "503" in told[0]


def test_one_that_refuses_connections_is_waited_for_where_that_was_asked(capsys):
    address = f"http://127.0.0.1:{free_port()}"
    assert main(["burst", address, *BURST, "--quiet", "--out", "a"]) == 3
    assert "connection refused" in capsys.readouterr().err
    assert main(["burst", address, *BURST, "--quiet", "--wait-s", "0.3", "--out", "b"]) == 3
    assert "was not ready after 0.3 s" in capsys.readouterr().err

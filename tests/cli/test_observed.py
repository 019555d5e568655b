"""What the observer brings into a result, end to end: proxies, logs, the machine, speculation."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from concbench.engines.registry import ENGINES
from concbench.measure.session import Inner
from concbench.serve.http import Access
from concbench.serve.probe import attach
from tests.cli.reading import measured
from tests.serve.server import Reply, models, serving
from tests.servers import reference_server

QUICK = ("-c", "2", "--output-tokens", "20", "--max-s", "2")


def sustained(
    capsys: pytest.CaptureFixture[str], target: str, folder: Path, *more: str
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Run a short loop; return its only cell, and the doubts by code."""
    words = ["sustain", target, *QUICK, *more, "--out", str(folder / "study")]
    _, result = measured(capsys, *words)
    (cell,) = result["cells"]
    return cell, {doubt["code"]: doubt for doubt in result["doubts"]}


def test_the_engine_behind_a_proxy_is_observed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with reference_server("--persona", "llama-swap", "--itl-ms", "10") as url:
        cell, doubts = sustained(capsys, url, tmp_path)
    assert cell["server"]["source"] == "metrics"
    assert cell["server"]["running_max"] == 2
    assert cell["ledger"]["generated"] == pytest.approx(cell["ledger"]["received"], abs=2)
    assert "log_unparsed" not in doubts


def test_where_the_engine_behind_a_router_tells_of_itself() -> None:
    listing = models("a/b c", "other")
    script = {
        "/v1/models": listing,
        "/models": listing,
        "/props": Reply(body={"role": "router", "max_instances": 2}),
    }
    with serving(script) as server:
        met = attach(server.url, Access(), "a/b c", "llamacpp")
    router = replace(met, extra={**met.extra, "router": True})
    assert Inner.of(router) == Inner(ENGINES["llamacpp"], query="?model=a%2Fb%20c&autoload=false")
    assert Inner.of(replace(met, extra={})) is None


def test_a_log_that_says_something_unknown_is_doubted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chatter = "import time\nwhile True: print('something else', flush=True); time.sleep(0.05)"
    plan = tmp_path / "plan.toml"
    with reference_server("--itl-ms", "10") as url:
        command = [sys.executable, "-c", chatter]
        plan.write_text(f'[lanes.box]\nengine = "vllm"\nurl = "{url}"\nlog = {command!r}\n')
        cell, doubts = sustained(capsys, "box", tmp_path, "--plan", str(plan))
    assert doubts["log_unparsed"]["severity"] == "warning"
    assert doubts["log_unparsed"]["evidence"]["lines"] > 0
    assert cell["server"]["source"] == "metrics"


def test_the_machine_is_in_every_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with reference_server("--itl-ms", "10") as url:
        cell, _ = sustained(capsys, url, tmp_path)
    host = cell["host"]
    assert host["cpu_cores"] >= 1
    assert 0 <= host["cpu_busy_cores"] <= host["cpu_cores"] + 0.5
    assert host["memory_available_min_bytes"] > 0
    # Who used the CPU is read less often on a crowded machine, perhaps never in two seconds.
    assert set(host["cpu_group_cores"]) <= {"engine", "client", "observer"}
    assert isinstance(host["gpus"], list)


def test_acceptance_comes_from_the_counters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drafting = ("--itl-ms", "10", "--tokens-per-chunk", "3", "--draft-tok", "4")
    with reference_server(*drafting) as url:
        words = ("--output-tokens", "60", "--max-s", "3")
        cell, doubts = sustained(capsys, url, tmp_path, *words)
    found = cell["server"]["acceptance"]
    assert found["mean_len"] == pytest.approx(3, abs=0.05)
    assert found["rate"] == pytest.approx(0.5, abs=0.02)
    assert found["per_position"] == pytest.approx([1, 1, 0, 0], abs=0.02)
    assert found["content"] == "prose"
    assert "depends on what is generated" in found["note"]
    assert cell["tokens"]["per_chunk"] == pytest.approx(3, abs=0.2)
    assert "simulated_acceptance" not in doubts


def test_simulated_acceptance_is_fatal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lying = ("--itl-ms", "10", "--draft-tok", "2", "--simulated-acceptance")
    with reference_server(*lying) as url:
        _, doubts = sustained(capsys, url, tmp_path)
    assert doubts["simulated_acceptance"]["severity"] == "fatal"
    assert "rejection_sample_method" in doubts["simulated_acceptance"]["message"]

"""The host's clock steps, or the engine dies and another is born on its port, during a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from concbench.cli.main import main
from concbench.clock import realtime_offset_ns
from tests.servers import reference_server

BURST = [
    "--levels",
    "2",
    "--rounds",
    "2",
    "--warmup",
    "0",
    "--procs",
    "1",
    "--quiet",
    "--json",
    "-",
]


def result_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_wall_clock_that_steps_voids_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = [0]

    def stepping() -> int:
        calls[0] += 1
        return realtime_offset_ns() + (5_000_000 if calls[0] % 2 else 0)

    monkeypatch.setattr("concbench.load.generator.realtime_offset_ns", stepping)
    with reference_server("--ttft-ms", "2", "--itl-ms", "2") as url:
        code = main(
            [
                "burst",
                url,
                *BURST,
                "--json",
                "-",
                "--output-tokens",
                "20",
                "--out",
                str(tmp_path / "s"),
            ]
        )
    assert code == 4
    doubts = {doubt["code"]: doubt for doubt in result_of(capsys)["doubts"]}
    assert doubts["clock_stepped"]["severity"] == "fatal"
    assert doubts["clock_stepped"]["evidence"]["step_ms"] == pytest.approx(5, abs=1.5)


@pytest.mark.parametrize("persona", ["vllm", "llamacpp"])
def test_an_engine_that_dies_and_comes_back_as_another_is_no_result(
    persona: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    death = ("--die-at-s", "3.5", "--reborn-after-s", "0.1", "--reborn-model", "another")
    with reference_server("--persona", persona, "--ttft-ms", "2", "--itl-ms", "10", *death) as url:
        code = main(
            [
                "burst",
                url,
                *BURST,
                "--json",
                "-",
                "--output-tokens",
                "300",
                "--out",
                str(tmp_path / "s"),
            ]
        )
    result = result_of(capsys)
    assert code == 4
    fatal = {doubt["code"] for doubt in result["doubts"] if doubt["severity"] == "fatal"}
    assert fatal & {"server_restarted", "requests_failed"}
    failed = [cell["requests"]["errors"] for cell in result["cells"]]
    assert any(failed)

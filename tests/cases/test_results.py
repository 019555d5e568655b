"""Cases R: what a result file holds, and what a strict reader makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from concbench.domain import Estimate
from concbench.observe import gpu
from tests.cases.play import DONE, Bench, Line, delta, error_page, playing, stream, usage
from tests.observe.test_gpu import FakeNvml


def strictly(text: str) -> Any:
    """Parse JSON that may hold neither NaN nor an infinity."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in {text[:200]}"))


def all_strict(folder: Path) -> int:
    """Parse every JSON document of a study; return how many there were."""
    found = 0
    for path in folder.rglob("*.json*"):
        text = path.read_text(encoding="utf-8")
        for part in text.splitlines() if path.suffix == ".jsonl" else [text]:
            strictly(part)
            found += 1
    return found


def test_r01_no_nan_and_no_infinity(bench: Bench) -> None:
    def broken(sock: object, number: int) -> bool:
        if number >= 2:
            error_page(sock, 500, "nan")  # type: ignore[arg-type]
        return number >= 2

    # All tokens at one instant: a rate over no time at all. Then a level where nothing succeeds.
    whole = usage(20, choices=[{"index": 0, "delta": {"content": "all"}}])
    lines = [(0.0, whole), (0.0, delta("", "length")), (0.0, DONE)]
    words = ["--levels", "2,3", "--rounds", "1", "--warmup", "0", "--output-tokens", "20"]
    with playing(lambda number: lines, answer=broken) as play:
        run = bench("burst", play.url, *words)
    assert all_strict(run.folder) > 5
    first, second = run.result["cells"]
    assert first["rate_rps"] is None
    assert first["client"]["tpot_ms"]["mean"] is None
    assert second["client"]["output_tok_per_s"] is None
    endless = Estimate(point=float("inf"), low=float("nan"), high=None, n=1, method="x")
    assert json.loads(msgspec.json.encode(endless))["point"] is None


def test_r04_the_conditions_are_stored(bench: Bench) -> None:
    def script(number: int) -> list[Line]:
        if number % 2:
            return stream([0.01 + 0.001 * k for k in range(30)])
        end = [delta("", "stop"), usage(12), DONE]
        return stream([0.01 + 0.001 * k for k in range(12)], end=end)

    with playing(script) as play:
        run = bench.burst(play.url, "--seed", "99", "--temperature", "0.7", n=4, out=30)
    workload = run.result["workload"]
    assert (workload["output_tokens"], workload["seed"]) == (30, 99)
    assert (workload["temperature"], workload["prompt_tokens"]) == (0.7, 50)
    assert {body["temperature"] for body in play.bodies} == {0.7}
    assert {body["max_tokens"] for body in play.bodies} == {30}
    assert run.cell["requests"]["finish"] == {"stop": 2, "length": 2}
    assert sorted(record.finish_reason or "" for record in run.requests()) == [
        "length", "length", "stop", "stop",
    ]  # fmt: skip
    assert run.result["machine"]
    assert run.result["tool_version"]
    record = strictly((run.folder / "study.json").read_text())
    assert record["seed"] == 99
    assert "--temperature" in record["argv"]


def test_r04_clocks_and_temperatures_are_read_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_namespace", lambda: gpu._FIRST_PID_NAMESPACE)
    read = {name: value for name, _, value in gpu.Gpus(FakeNvml()).read(())}
    assert read["gpu_clock_mhz"] == 1980
    assert read["gpu_temperature_c"] == 61
    assert read["gpu_throttle_reasons"] == 0x44

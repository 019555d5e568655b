"""The same burst five times on the embedded engine: spread of steady beside classic tok/s.

A fixed loop of arithmetic is timed before each run: the machine's own noise, as the control.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS, LEVEL = 5, 4


def fixed_loop_s() -> float:
    before = time.perf_counter()
    total = 0
    for number in range(6_000_000):
        total += number * number
    return time.perf_counter() - before


def spread_pct(values: list[float]) -> float:
    return 100 * statistics.stdev(values) / statistics.mean(values)


def burst() -> dict:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "concbench", "burst", "embedded", "--levels", str(LEVEL),
            "--rounds", "2", "--seed", "1", "--quiet", "--json", "-",
            "--out", str(Path(folder) / "study"),
        ]  # fmt: skip
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)["cells"][0]["client"]


def main() -> int:
    steady, classic, loop_s = [], [], []
    for number in range(RUNS):
        loop_s.append(fixed_loop_s())
        client = burst()
        steady.append(client["steady_output_tok_per_s"]["point"])
        classic.append(client["output_tok_per_s"]["point"])
        print(f"  run {number + 1}: steady {steady[-1]:.2f} classic {classic[-1]:.2f} tok/s")
    print(
        f"  coefficient of variation over {RUNS} runs at N = {LEVEL}: steady "
        f"{spread_pct(steady):.2f} %, classic {spread_pct(classic):.2f} %, "
        f"a fixed loop beside it {spread_pct(loop_s):.2f} %"
    )
    return 0

"""What is reported against what the known-truth server says happened, on the same cores.

Each level is one burst; the errors are those of the numbers a user would read.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.server import reference, reset, truth, verdict

LEVELS = (64, 256, 1024)
TOKENS, ITL_MS, TTFT_MS, REPEATS = 128, 20.0, 50.0, 3


def burst(url: str, streams: int) -> dict:
    """Run the command as a user would and return its result."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "concbench", "burst", url, "--levels", str(streams),
            "--rounds", "1", "--warmup", "0", "--output-tokens", str(TOKENS), "--quiet",
            "--out", str(Path(folder) / "study"), "--json", "-",
        ]  # fmt: skip
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


def errors(url: str, streams: int) -> dict[str, float]:
    """Return the relative errors in per cent (TTFT's mean in ms too) of one burst."""
    reset(url)
    cell = burst(url, streams)["cells"][0]
    told = [r for r in truth(url) if r["tokens"] == TOKENS][-streams:]
    assert len(told) == streams, len(told)
    ttft_ms = np.array([(r["first_ns"] - r["received_ns"]) / 1e6 for r in told])
    tpot_ms = np.array([(r["last_ns"] - r["first_ns"]) / 1e6 / (TOKENS - 1) for r in told])
    rate = (
        streams
        * TOKENS
        / ((max(r["last_ns"] for r in told) - min(r["received_ns"] for r in told)) / 1e9)
    )
    client = cell["client"]
    p99 = float(np.sort(ttft_ms)[int(np.ceil(0.99 * streams)) - 1])
    shown_p99 = client["ttft_ms"]["p99"] if streams >= 100 else client["ttft_ms"]["max"]
    true_p99 = p99 if streams >= 100 else float(ttft_ms.max())
    return {
        "ttft_mean_ms": abs(client["ttft_ms"]["mean"] - ttft_ms.mean()),
        "ttft_mean_pct": 100 * abs(client["ttft_ms"]["mean"] / ttft_ms.mean() - 1),
        "ttft_p99_pct": 100 * abs(shown_p99 / true_p99 - 1),
        "tpot_p50_pct": 100 * abs(client["tpot_ms"]["p50"] / np.median(tpot_ms) - 1),
        "rate_pct": 100 * abs(client["output_tok_per_s"]["point"] / rate - 1),
        "true_ttft_ms": float(ttft_ms.mean()),
        "true_rate": rate,
    }


def main() -> int:
    missed = 0
    with reference("--ttft-ms", str(TTFT_MS), "--itl-ms", str(ITL_MS)) as url:
        for streams in LEVELS:
            runs = [errors(url, streams) for _ in range(REPEATS)]
            middle = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
            print(
                f" {streams} streams, {middle['true_rate']:,.0f} tok/s, "
                f"mean TTFT {middle['true_ttft_ms']:.1f} ms; median of {REPEATS} runs"
            )
            close = middle["ttft_mean_ms"] <= 1
            missed += (
                verdict("mean TTFT, error", middle["ttft_mean_ms"], 1, "ms")
                if close
                else verdict("mean TTFT, error", middle["ttft_mean_pct"], 2, "%")
            )
            missed += verdict("p99 TTFT, error", middle["ttft_p99_pct"], 5, "%")
            missed += verdict("output tok/s, error", middle["rate_pct"], 0.5, "%")
            missed += verdict("median TPOT, error", middle["tpot_p50_pct"], 0.5, "%")
    return missed

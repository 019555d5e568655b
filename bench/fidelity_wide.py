"""Fidelity where it is hardest: 1,024 streams at 50 tok/s, and 4,096 at 10 tok/s.

As `fidelity`, with tighter limits: mean TTFT within 1 %, p99 within 3 %, tok/s within 0.3 %.
"""

from __future__ import annotations

import numpy as np

from bench.fidelity import TOKENS, TTFT_MS, errors
from bench.server import reference, verdict
from concbench.load.generator import ensure_files

LEVELS = ((1024, 20.0), (4096, 100.0))
REPEATS = 3


def main() -> int:
    missed = 0
    for streams, itl_ms in LEVELS:
        ensure_files(streams)
        with reference("--ttft-ms", str(TTFT_MS), "--itl-ms", str(itl_ms)) as url:
            runs = [errors(url, streams) for _ in range(REPEATS)]
        middle = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
        print(
            f" {streams} streams × {1000 / itl_ms:g} tok/s, {TOKENS} tokens each, mean TTFT "
            f"{middle['true_ttft_ms']:.1f} ms; median of {REPEATS} runs"
        )
        missed += verdict("mean TTFT, error", middle["ttft_mean_pct"], 1, "%")
        missed += verdict("p99 TTFT, error", middle["ttft_p99_pct"], 3, "%")
        missed += verdict("output tok/s, error", middle["rate_pct"], 0.3, "%")
    return missed

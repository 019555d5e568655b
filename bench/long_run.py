"""An hour at 256 streams: does lateness drift, do descriptors or memory grow?

Closed loops of a minute each in one process, every one digested as a round is; the first and the
last quarter are compared. `python -m bench.long_run MINUTES` runs it shorter.
"""

from __future__ import annotations

import gc
import itertools
import sys
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil

from bench.cpu_per_event import request
from bench.server import reference, reset, verdict
from concbench.domain import Cell, Workload
from concbench.load.generator import LoadPlan, resolve, run
from concbench.load.script import Outgoing, Refill
from concbench.measure.digest import digest

STREAMS, TOKENS, MINUTES, ROUND_S = 256, 128, 60, 60.0


def one_round(url: str, length_s: float) -> dict[str, float]:
    """Return lateness, descriptors and memory after a closed loop of that length."""
    parts = urlsplit(url)
    outgoing = itertools.repeat(Outgoing(request(url), TOKENS))
    plan = LoadPlan(
        resolve(parts.hostname or "", parts.port or 0, None),
        [Refill(outgoing) for _ in range(STREAMS)],
        stop_when=lambda progress: progress.elapsed_ns > length_s * 1e9,
    )
    round_ = digest(
        run(plan),
        round_id="long",
        cell=Cell(cell="long", lane="reference", concurrency=STREAMS, context_tok=50),
        index=0,
        phase="measured",
        workload=Workload(prompt_tokens=50, output_tokens=TOKENS, seed=0, arrival="closed"),
        prompts=[],
    )
    late_ms = np.array(round_.instrument.read_lateness_ns) / 1e6
    found = {
        "events": float(len(round_.events)),
        "failed": float(sum(r.outcome == "failed" for r in round_.requests)),
        "late_p50_ms": float(np.median(late_ms)),
        "late_p99_ms": float(np.quantile(late_ms, 0.99)),
    }
    del round_
    gc.collect()
    process = psutil.Process()
    return found | {
        "files": float(len(list(Path("/proc/self/fd").iterdir()))),
        "rss_mb": process.memory_info().rss / 1e6,
        "threads": float(process.num_threads()),
    }


def main(minutes: float = MINUTES) -> int:
    rounds = max(4, round(minutes * 60 / ROUND_S))
    length_s = minutes * 60 / rounds
    rows: list[dict[str, float]] = []
    with reference("--ttft-ms", "50", "--itl-ms", "20") as url:
        for number in range(rounds):
            rows.append(one_round(url, length_s))
            reset(url)
            row = rows[-1]
            print(
                f"  {(number + 1) * length_s / 60:6.1f} min  {row['events']:9,.0f} events  late "
                f"p50 {row['late_p50_ms']:.3f} p99 {row['late_p99_ms']:.3f} ms  "
                f"{row['files']:.0f} files  {row['rss_mb']:.1f} MB  {row['threads']:.0f} threads",
                flush=True,
            )
    quarter = max(1, rounds // 4)
    # The first round pays for what is imported and cached on the way.
    first, last = rows[1 : 1 + quarter], rows[-quarter:]

    def drift(key: str) -> float:
        return float(np.median([r[key] for r in last]) - np.median([r[key] for r in first]))

    missed = verdict("failed requests", sum(row["failed"] for row in rows), 0)
    missed += verdict("lateness p50, last − first quarter", drift("late_p50_ms"), 0.2, "ms")
    missed += verdict("lateness p99, last − first quarter", drift("late_p99_ms"), 2, "ms")
    missed += verdict("open files, last − first quarter", drift("files"), 0)
    return missed + verdict("memory, last − first quarter", drift("rss_mb"), 20, "MB")


if __name__ == "__main__":
    raise SystemExit(main(*map(float, sys.argv[1:2])))

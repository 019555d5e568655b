"""The client's loop is blocked on purpose: what do the kernel's stamps save, and what is said?

10 ms ten times a second: TTFT and ITL p99 by kernel stamps within 1 ms of the truth, by our own
stamps off by up to 10 ms, and `late_reads` raised. 50 ms ten times a second: stamps cannot save
that, and the result must say `client_bound`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from bench.cpu_per_event import request
from bench.server import reference, reset, truth, verdict
from concbench.analyse.streams import streams_of
from concbench.domain import Cell, Round, Workload
from concbench.load.generator import LoadPlan, resolve, run
from concbench.load.script import Once, Outgoing
from concbench.measure.digest import digest

STREAMS, TOKENS, APART_NS = 128, 128, 7_000_000
MS = 1_000_000
SERVER = ("--ttft-ms", "50", "--itl-ms", "20", "--jitter", "0.3", "--keep-token-times")


def stalled(url: str, stall: tuple[int, int] | None) -> Round:
    """Return a round of staggered requests, measured by a client that stalls."""
    parts = urlsplit(url)
    outgoing = Outgoing(request(url), TOKENS)
    plan = LoadPlan(
        resolve(parts.hostname or "", parts.port or 0, None),
        [Once(outgoing, k * APART_NS) for k in range(STREAMS)],
        stall=stall,
    )
    return digest(
        run(plan),
        round_id="stalls",
        cell=Cell(cell="stalls", lane="reference", concurrency=STREAMS, context_tok=50),
        index=0,
        phase="measured",
        workload=Workload(prompt_tokens=50, output_tokens=TOKENS, seed=0, arrival="constant"),
        prompts=[],
    )


def true_times(url: str) -> tuple[np.ndarray, np.ndarray]:
    """Return TTFT and ITL in ms as the server lived them."""
    ttft, itl = [], []
    for one in truth(url):
        with urllib.request.urlopen(f"{url}/truth/token_times?id={one['id']}") as answer:
            sent_ns = np.array(json.load(answer)["sent_ns"])
        ttft.append((sent_ns[0] - one["received_ns"]) / MS)
        itl.append(np.diff(sent_ns) / MS)
    return np.array(ttft), np.concatenate(itl)


def p99(values: np.ndarray) -> float:
    return float(np.sort(values)[int(np.ceil(0.99 * values.size)) - 1])


def measured(round_: Round, *, kernel: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return TTFT and ITL in ms by the kernel's stamps or by our own."""
    ttft, itl = [], []
    for stream in streams_of(round_):
        times = stream.times_ns if kernel else stream.user_ns
        ttft.append((times[0] - (stream.record.sent_ns or 0)) / MS)
        itl.append(np.diff(times) / MS)
    return np.array(ttft), np.concatenate(itl)


def doubts(url: str, stall: str) -> dict[str, dict]:
    """Return the doubts of a burst through the command line, its client stalling."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "concbench", "burst", url, "--levels", "64", "--rounds", "1",
            "--warmup", "0", "--output-tokens", str(TOKENS), "--quiet", "--procs", "1",
            "--out", str(Path(folder) / "study"), "--json", "-",
        ]  # fmt: skip
        env = {**os.environ, "CONCBENCH_TEST_STALL": stall}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
        assert done.stdout, done.stderr
        return {doubt["code"]: doubt for doubt in json.loads(done.stdout)["doubts"]}


def main() -> int:
    missed = 0
    with reference(*SERVER) as url:
        for name, stall in (("no stalls", None), ("10 ms in 100", (10 * MS, 100 * MS))):
            reset(url)
            round_ = stalled(url, stall)
            true, kernel = true_times(url), measured(round_, kernel=True)
            user = measured(round_, kernel=False)
            for what, t, k, u in zip(("TTFT", "ITL"), true, kernel, user, strict=True):
                print(
                    f"  {name}: {what} p99 true {p99(t):.2f}, by user stamps {p99(u):.2f} "
                    f"(off by up to {np.abs(u - k).max():.1f} ms in single values)"
                )
                error = abs(p99(k) - p99(t))
                missed += verdict(f"{name}: {what} p99, kernel stamps, error", error, 1, "ms")
        light, heavy = doubts(url, "10ms/100ms"), doubts(url, "50ms/100ms")
    missed += verdict("10 ms in 100: late_reads missing", int("late_reads" not in light), 0)
    missed += verdict("50 ms in 100: client_bound missing", int("client_bound" not in heavy), 0)
    for found in (light.get("late_reads"), heavy.get("client_bound")):
        print(f"  {found and found['message'].partition(':')[0]}")
    return missed

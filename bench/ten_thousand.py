"""10,000 streams × 1,000 tokens in one round, in two processes, within 2 GB.

The memory is that of the command and its load processes together, sampled four times a second;
the reference server's is not counted. It takes about ten minutes. `python -m bench.ten_thousand
STREAMS TOKENS` runs it smaller.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.server import reference, verdict
from concbench.load.generator import ensure_files

STREAMS, TOKENS, PROCS = 10_000, 1_000, 2
TOK_PER_S = 25_000
LIMIT_MB = 2_000


def memory_mb(root: psutil.Process) -> tuple[float, float]:
    """Return the resident memory of a process and of its children, in MB."""
    children = 0.0
    for child in root.children(recursive=True):
        try:
            children += child.memory_info().rss / 1e6
        except psutil.NoSuchProcess:
            continue
    return root.memory_info().rss / 1e6, children


def main(streams: int = STREAMS, tokens: int = TOKENS) -> int:
    ensure_files(streams)
    itl_ms = 1000 * streams / TOK_PER_S
    context = ("--context", str(tokens + 1000))
    with (
        tempfile.TemporaryDirectory() as folder,
        reference("--ttft-ms", "1000", "--itl-ms", str(itl_ms), *context) as url,
    ):
        result = Path(folder) / "result.json"
        command = [
            sys.executable, "-m", "concbench", "burst", url, "--levels", str(streams),
            "--rounds", "1", "--warmup", "0", "--output-tokens", str(tokens), "--quiet",
            "--procs", str(PROCS), "--out", str(Path(folder) / "study"), "--json", str(result),
        ]  # fmt: skip
        began, peak, peak_parent, peak_children = time.monotonic(), 0.0, 0.0, 0.0
        with subprocess.Popen(command) as child:
            root = psutil.Process(child.pid)
            while child.poll() is None:
                try:
                    parent, children = memory_mb(root)
                except psutil.NoSuchProcess:
                    break
                peak = max(peak, parent + children)
                peak_parent, peak_children = max(peak_parent, parent), max(peak_children, children)
                time.sleep(0.25)
        cell = json.loads(result.read_text())["cells"][0]
        size_mb = sum(p.stat().st_size for p in Path(folder).rglob("*.parquet")) / 1e6
    client, own = cell["client"], cell["instrument"]
    print(
        f"  {cell['requests']['ok']} of {streams} ok, {cell['tokens']['output']:,} tokens, "
        f"{client['output_tok_per_s']['point']:,.0f} tok/s, client CPU {own['client_cpu']:.2f}, "
        f"start spread {own['start_spread_ms']:.0f} ms\n"
        f"  {time.monotonic() - began:.0f} s in all; study {size_mb:.0f} MB; peaks: the command "
        f"{peak_parent:.0f} MB, its load processes {peak_children:.0f} MB"
    )
    missed = verdict("requests that were not ok", streams - cell["requests"]["ok"], 0)
    return missed + verdict("memory, all client processes", peak, LIMIT_MB, "MB")


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:3])))

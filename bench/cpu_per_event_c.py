"""CPU per received event at 1,024 streams: the generator against a bare C client.

The C client does nothing but epoll, recv and read the clock; it takes no kernel stamps, the
generator does. Pairs in the order A B B A … against the same server; the result is the median of
the pairs' ratios.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from bench.cpu_per_event import STREAMS, TOKENS, child, request
from bench.server import reference, verdict
from concbench.load.generator import ensure_files

PAIRS, LIMIT = 6, 1.5
SOURCE = Path(__file__).with_name("bare_client.c")


def bare_us(program: Path, url: str) -> float:
    """Return CPU microseconds per event of the C client."""
    parts = urlsplit(url)
    command = [program, parts.hostname, str(parts.port), str(STREAMS)]
    done = subprocess.run(command, input=request(url), check=True, capture_output=True)
    return int(done.stdout) / 1000 / (STREAMS * TOKENS)


def main() -> int:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("  no C compiler here: nothing to compare with")
        return 0
    ensure_files(STREAMS)
    ratios, ours_us, c_us = [], [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        reference("--ttft-ms", "50", "--itl-ms", "20") as url,
    ):
        program = Path(folder) / "bare_client"
        subprocess.run([compiler, "-O2", "-Wall", "-Werror", "-o", program, SOURCE], check=True)
        bare_us(program, url)
        for pair in range(PAIRS):
            order = ("ours", "c") if pair % 2 == 0 else ("c", "ours")
            took = {k: child(k, url) if k == "ours" else bare_us(program, url) for k in order}
            ours_us.append(took["ours"])
            c_us.append(took["c"])
            ratios.append(took["ours"] / took["c"])
    print(
        f"  ours {statistics.median(ours_us):.1f} µs/event with kernel stamps, "
        f"bare C {statistics.median(c_us):.1f} without"
    )
    spread = f"{min(ratios):.2f}–{max(ratios):.2f}, {PAIRS} pairs"
    return verdict(f"CPU per event, ratio ({spread})", statistics.median(ratios), LIMIT)

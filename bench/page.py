"""How long does a page take, how much memory, and how large is it? Ten million token stamps.

A made-up sweep of 5 lanes × 5 contexts × 8 levels × 3 rounds is stored, and
`concbench report --html` is run on it in a process of its own: once as the study lies there, once
more with what the first page has kept. `python -m bench.page FOLDER` keeps the study there and
uses it again.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.report.synthetic import Engine, study_rounds

from bench.many_cells import timed
from bench.server import verdict
from concbench.store.write import Study

LANES = [
    Engine("bf16", a=0.026, pool_tok=900_000),
    Engine("fp8", a=0.016),
    Engine("nvfp4", a=0.011, b=0.00042),
    Engine("q5_k_m", a=0.010, b=0.0012, slots=32),
    Engine("awq", a=0.012, b=0.0006),
]
CONTEXTS = (512, 1_024, 2_048, 4_096, 8_192)
LEVELS = (1, 2, 4, 8, 16, 32, 64, 128)
MOST_S, MOST_MB, MOST_PAGE_MB = 10.0, 1_500, 8.0


def store(folder: Path, output_tok: int = 525, rounds: int = 3) -> int:
    """Write the study; return how many token stamps it holds."""
    total = 0
    writer = Study.create(
        folder,
        name="sweep",
        command="sweep",
        argv=["sweep", "plan.toml"],
        machine={"cpu": "made up"},
        tool_version="0.1.0",
        seed=1,
        plan={},
        targets={lane.name: lane.facts() for lane in LANES},
    )
    # What a crash would lose is of no interest here, and a sync a file takes most of the time.
    real, os.fsync = os.fsync, lambda fd: None
    try:
        with writer:
            for each in study_rounds(LANES, CONTEXTS, LEVELS, rounds, output_tok):
                writer.write_round(each)
                total += len(each.events)
            writer.finish(interrupted=False)
    finally:
        os.fsync = real
    return total


def run(folder: Path) -> int:
    """Make the page twice; return how many limits were missed."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "page.html"
        missed = 0
        for name in ("page", "page, made before"):
            wall_s, cpu_s, peak_mb = timed("report", str(folder), "--html", str(page))
            missed += verdict(f"{name} (CPU {cpu_s:.2f} s)", wall_s, MOST_S, "s")
            missed += verdict(f"{name}, peak resident", peak_mb, MOST_MB, "MB")
        return missed + verdict("page's size", page.stat().st_size / 1e6, MOST_PAGE_MB, "MB")


def main(folder: str | None = None) -> int:
    if folder is not None and Path(folder).exists():
        return run(Path(folder))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "study" if folder is None else Path(folder)
        began = time.monotonic()
        total = store(path)
        took_s = time.monotonic() - began
        print(f"  {total:,} token stamps in 200 cells, made in {took_s:.0f} s", flush=True)
        return run(path)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:2]))

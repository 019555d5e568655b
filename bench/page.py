"""How long does a page take, how much memory, and how large is it? Ten million token stamps.

A made-up sweep of 5 lanes × 5 contexts × 8 levels × 3 rounds is stored, and
`concbench report --html` is run on it in a process of its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.report.synthetic import Engine, study_rounds

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
    with writer:
        for each in study_rounds(LANES, CONTEXTS, LEVELS, rounds, output_tok):
            writer.write_round(each)
            total += len(each.events)
        writer.finish(interrupted=False)
    return total


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        folder, page = Path(scratch) / "study", Path(scratch) / "page.html"
        total = store(folder)
        began = time.monotonic()
        command = [sys.executable, "-m", "concbench", "report", str(folder), "--html", str(page)]
        subprocess.run(command, check=True)
        took = time.monotonic() - began
        size = page.stat().st_size / 1e6
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    missed = 0
    rows = (("seconds", took, MOST_S), ("MB of memory", memory, MOST_MB),
            ("MB of page", size, MOST_PAGE_MB))  # fmt: skip
    print(f"  {total:,} token stamps, 200 cells")
    for name, value, most in rows:
        ok = value <= most
        missed += not ok
        print(f"  {name:<14} {value:8.2f} of {most:g} {'ok' if ok else 'MISSED'}")
    return missed

"""`python -m bench [NAME[:PART,…] …]`: run all benchmarks, or those named, or parts of them."""

from __future__ import annotations

import sys
from importlib import import_module

QUICK = (
    "startup",
    "cpu_per_event",
    "cpu_per_event_c",
    "fidelity",
    "fidelity_wide",
    "stalls",
    "tls",
    "repeatability",
    "coverage",
    "accounting",
    "many_cells",
    "page",
    "verdicts",
)
"""What runs when nothing is named."""

ALL = (*QUICK, "ten_thousand", "steady", "ab_real", "sweep_killed", "long_run", "first_plot")
"""The others take long, or need a browser."""


def main() -> int:
    names = sys.argv[1:] or QUICK
    missed = 0
    for name, _, parts in (given.partition(":") for given in names):
        if name not in ALL:
            print(f"no such benchmark: {name} (there are {', '.join(ALL)})")
            return 2
        print(f"\n== {name}", flush=True)
        missed += import_module(f"bench.{name}").main(*filter(None, parts.split(",")))
    print(f"\n{missed} target(s) missed" if missed else "\nall targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

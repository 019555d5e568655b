"""`python -m bench [NAME …]`: run all benchmarks, or those named."""

from __future__ import annotations

import sys
from importlib import import_module

ALL = (
    "startup",
    "cpu_per_event",
    "cpu_per_event_c",
    "fidelity",
    "fidelity_wide",
    "stalls",
    "tls",
    "repeatability",
    "coverage",
    "page",
    "ten_thousand",
    "long_run",
)
QUICK = ALL[:-2]
"""What runs when nothing is named; the others take long."""


def main() -> int:
    names = sys.argv[1:] or QUICK
    missed = 0
    for name in names:
        if name not in ALL:
            print(f"no such benchmark: {name} (there are {', '.join(ALL)})")
            return 2
        print(f"\n== {name}", flush=True)
        missed += import_module(f"bench.{name}").main()
    print(f"\n{missed} target(s) missed" if missed else "\nall targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

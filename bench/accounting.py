"""What comes of a server whose accounting goes wrong: each script played for real, with its doubt.

The same scripts are asserted in `tests/cli/test_accounting.py`; here they are shown.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.cli.scripts import SCRIPTS, play, told

EXPECTED = {
    "nothing wrong": None,
    "counters reset in mid-run": "counters_unusable",
    "server restarted": "server_restarted",
    "two workers behind one port": "counters_unusable",
    "foreign traffic": "foreign_traffic",
    "cache hits": "prompt_cache_hit",
    "a 5 s stall": "wide_interval",
    "preemptions": "preempted",
}


def main() -> int:
    missed = 0
    for script in SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            code, result = play(script, Path(folder))
        for line in told(script, code, result):
            print(f"  {line}", flush=True)
        wanted = EXPECTED[script.name]
        if wanted is not None and wanted not in {doubt["code"] for doubt in result["doubts"]}:
            print(f"    MISSED: no {wanted}")
            missed += 1
    return missed

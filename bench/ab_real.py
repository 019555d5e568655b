"""Comparisons of real engines whose outcome is known beforehand, or worth knowing.

    python -m bench.ab_real [PART …] [--quick] [--delta P%] [--out FOLDER]

Parts: `same` (one configuration against itself), `slots` (8 slots against 4 at N = 8), `kv` (f16
against q8_0 KV cache), `vllm` (vLLM on the CPU against llama.cpp at N = 1, 2, 4, 8 with short
answers: a crossover table). Each part runs alone and ends within six minutes: no pair is begun
after its limit. `--quick` only shows that a part runs through: one pair, few tokens, and no figure
of it means anything. `--delta` is the margin that counts as equal, 3 % unless the machine is less
steady than that: fix it before the run. Needs a quiet machine and, for the last, `make vllm`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / ".venv-vllm" / "bin" / "vllm"
MODEL = ROOT / ".cache-vllm" / "smollm2"
LEEWAY_S = 150
"""What a run in flight and its closing control may take after the limit."""

PLAN = """
[lanes.llamacpp]
engine = "llamacpp"
model = "embedded"
flags = {{ parallel = 8, ctx-size = 8192 }}

[lanes.vllm]
engine = "vllm"
model = "{model}"
env = {{ HF_HUB_OFFLINE = 1, VLLM_CPU_KVCACHE_SPACE = 2 }}
flags = {{ bin = "{program}", max-model-len = 1024, max-num-seqs = 8, enforce-eager = true }}
"""
UNLIKE = "quantization,kv_cache_dtype,context,slots,prompt_cache,sampling,eager,model"
QUICK = ("--pairs", "1", "--rounds", "1", "--output-tokens", "4", "--levels", "1")
QUICK_LEEWAY_S = 900
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Part:
    """One comparison: its words, its limit in s, and what must hold of the headline verdicts."""

    words: Sequence[str]
    max_s: int
    right: Callable[[Rows], bool]
    needs_vllm: bool = False


def undecided_or_equal(rows: Rows) -> bool:
    """Never a winner; where it is undecided, it says how many pairs would settle it."""
    return bool(rows) and all(
        row["verdict"] == "equivalent"
        or (row["verdict"] == "inconclusive" and row["pairs_needed"] is not None)
        for row in rows
    )


def more_slots_win(rows: Rows) -> bool:
    return bool(rows) and all(row["verdict"] == "a_faster" for row in rows)


def kv_is_named(rows: Rows) -> bool:
    judged = ("a_faster", "b_faster", "equivalent", "inconclusive")
    return bool(rows) and all(
        row["accepted"] == ["kv_cache_dtype"] and row["verdict"] in judged for row in rows
    )


def all_judged(rows: Rows) -> bool:
    judged = ("a_faster", "b_faster", "equivalent", "inconclusive")
    return bool(rows) and all(row["verdict"] in judged for row in rows)


PARTS = {
    "same": Part(
        ("embedded", "embedded", "--levels", "1,4,8", "--rounds", "2", "--output-tokens", "100"),
        200,
        undecided_or_equal,
    ),
    "slots": Part(
        ("embedded", "--vary", "parallel=8,4", "--levels", "8", "--rounds", "2",
         "--output-tokens", "100", "--accept", "slots"),
        200,
        more_slots_win,
    ),
    "kv": Part(
        ("embedded", "--vary", "cache-type-k=f16,q8_0", "--vary", "cache-type-v=f16,q8_0",
         "--levels", "1,8", "--rounds", "2", "--output-tokens", "100", "--accept",
         "kv_cache_dtype"),
        200,
        kv_is_named,
    ),
    "vllm": Part(
        ("plan.toml", "llamacpp", "vllm", "--both-up", "--accept", UNLIKE, "--levels", "1,2,4,8",
         "--rounds", "1", "--output-tokens", "32", "--pairs", "5"),
        200,
        all_judged,
        needs_vllm=True,
    ),
}  # fmt: skip


def run_part(name: str, out: Path, *, quick: bool, delta: str) -> int:
    """Run one part; print its table and whether it came out as it must. Return misses (0 or 1)."""
    part = PARTS[name]
    if part.needs_vllm and not (PROGRAM.is_file() and MODEL.is_dir()):
        print(f"  {name}: not run, needs `make vllm`")
        return 0
    study = out / name
    shutil.rmtree(study, ignore_errors=True)
    (out / "plan.toml").write_text(PLAN.format(model=MODEL, program=PROGRAM))
    limits = ["--max-s", str(20 if quick else part.max_s)]
    words = ["ab", *part.words, *(QUICK if quick else ()), *limits, "--delta", delta]
    limit_s = QUICK_LEEWAY_S if quick else part.max_s + LEEWAY_S
    command = [sys.executable, "-m", "concbench", *words, "--out", str(study)]
    print(f"  $ concbench {' '.join(words)}", flush=True)
    try:
        ended = subprocess.run(command, cwd=out, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        print(f"  {name}: not over after {limit_s} s  MISSED")
        return 1
    if ended.returncode not in (0, 4):
        print(f"  {name}: exit {ended.returncode}  MISSED")
        return 1
    rows = headlines(json.loads((study / "result.json").read_bytes()))
    for row in rows:
        settle = f", {row['pairs_needed']} pairs would settle it" if row["pairs_needed"] else ""
        print(f"  {name}: N = {row['concurrency']} {row['verdict']}{settle} ({row['why'] or 'ok'})")
    if quick:
        print(f"  {name}: ran through (quick: no verdict is meant)")
        return 0
    right = part.right(rows)
    print(f"  {name}: {'as it must be' if right else 'MISSED'}")
    return 0 if right else 1


def headlines(result: dict[str, Any]) -> Rows:
    """Return each level's first verdict, its rate."""
    first: dict[int, dict[str, Any]] = {}
    for row in result["verdicts"]:
        first.setdefault(row["concurrency"], row)
    return [first[level] for level in sorted(first)]


def main(words: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="bench.ab_real")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--delta", default="3%")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(list(words))
    if unknown := [name for name in args.parts if name not in PARTS]:
        parser.error(f"no such part: {unknown[0]} (there are {', '.join(PARTS)})")
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        out = (args.out or Path(folder)).resolve()
        out.mkdir(parents=True, exist_ok=True)
        for name in args.parts or PARTS:
            missed += run_part(name, out, quick=args.quick, delta=args.delta)
    return missed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

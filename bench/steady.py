"""Steady beside classic tok/s: against a known truth, over repeated runs, and how soon it is known.

Parts, each of which can be run alone (`python -m bench steady:truth,saved`):

- `truth`: the reference server with slots, jitter, prefill and answers cut at the end of the loop;
  steady within 0.5 % of what it serves in the long run, where the classic figure is 10 % off.
- `embedded`, `vllm`: the same loop five times on the embedded engine, three times on vLLM's CPU
  build; the coefficient of variation of the steady rate at most 1 %. A fixed loop of arithmetic is
  timed before each run: the machine's own noise, as the control.
- `saved`: the stop rule against a fixed 120 s: how much sooner the same interval is reached.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.repeatability import fixed_loop_s, spread_pct
from bench.server import reference, verdict

ROOT = Path(__file__).parents[1]
VLLM = ROOT / ".venv-vllm" / "bin" / "vllm"
VLLM_MODEL = ROOT / ".cache-vllm" / "smollm2"
VLLM_PLAN = f"""
[lanes.vllm]
engine = "vllm"
model = "{VLLM_MODEL}"
env = {{ HF_HUB_OFFLINE = 1, VLLM_CPU_KVCACHE_SPACE = 2 }}
flags = {{ bin = "{VLLM}", enforce-eager = true, max-model-len = 2048, max-num-seqs = 8 }}
"""
FIXED_S = 120.0
NEVER = "0.0001%"
"""A half-width that no loop reaches: it runs for its whole time."""

SLOTS, TTFT_MS, ITL_MS, PROMPT_TOK, PREFILL_TOK_PER_S = 8, 50.0, 15.0, 400, 2000.0
OUTPUT_TOK, LOOP_S = 800, 50.0
SERVER = (
    *("--ttft-ms", str(TTFT_MS), "--itl-ms", str(ITL_MS), "--jitter", "0.3"),
    *("--prefill-tok-per-s", str(PREFILL_TOK_PER_S), "--slots", str(SLOTS)),
)


def sustain(target: str, *words: str) -> tuple[dict[str, Any], float]:
    """Run the command as a user would; return its only cell and the seconds of its round."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "study"
        command = [sys.executable, "-m", "concbench", "sustain", target, *words, "--seed", "1"]
        command += ["--quiet", "--json", "-", "--out", str(out)]
        began = time.perf_counter()
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        took_s = time.perf_counter() - began
        assert done.stdout, done.stderr
        return json.loads(done.stdout)["cells"][0], took_s


def half_width(cell: dict[str, Any]) -> float:
    """Return the steady rate's relative half-width, as a share; infinite without an interval."""
    rate = cell["client"]["steady_output_tok_per_s"]
    if rate is None or rate["low"] is None:
        return float("inf")
    return (rate["high"] - rate["low"]) / 2 / rate["point"]


def off_pct(value: float, truth: float) -> float:
    return 100 * abs(value / truth - 1)


def truth_part() -> int:
    """A loop of twelve on eight slots: what a slot serves is known, and none is ever free."""
    service_s = (TTFT_MS + 1e3 * PROMPT_TOK / PREFILL_TOK_PER_S + (OUTPUT_TOK - 1) * ITL_MS) / 1e3
    truth = SLOTS * OUTPUT_TOK / service_s
    words = ["--prompt-tokens", str(PROMPT_TOK), "--output-tokens", str(OUTPUT_TOK)]
    words += ["--until", NEVER, "--max-s", str(LOOP_S)]
    missed = 0
    for n in (SLOTS, SLOTS + 4):
        with reference(*SERVER) as url:
            cell, _ = sustain(url, "-c", str(n), *words)
        steady = cell["client"]["steady_output_tok_per_s"]["point"]
        classic = cell["client"]["output_tok_per_s"]["point"]
        print(
            f"  {n} in flight on {SLOTS} slots, {OUTPUT_TOK} tokens an answer, {LOOP_S:.0f} s: "
            f"true {truth:.1f}, steady {steady:.1f}, classic {classic:.1f} tok/s "
            f"({100 * (classic / truth - 1):+.1f} %)"
        )
        missed += verdict(f"steady, error at N = {n}", off_pct(steady, truth), 0.5, "%")
        if off_pct(classic, truth) < 10:
            print("  the classic figure was less than 10 % off here: no hard case         MISSED")
            missed += 1
    return missed


def repeated(target: str, runs: int, *words: str) -> int:
    """Run the same loop several times; print every run and the spread over them."""
    steady, classic, loop_s = [], [], []
    for number in range(runs):
        loop_s.append(fixed_loop_s())
        cell, took_s = sustain(target, *words)
        client = cell["client"]
        steady.append(client["steady_output_tok_per_s"]["point"])
        classic.append(client["output_tok_per_s"]["point"])
        print(
            f"  run {number + 1}: steady {steady[-1]:.2f} ± {100 * half_width(cell):.2f} %, "
            f"classic {classic[-1]:.2f} tok/s, server agrees within {cell['agreement_pct']} %, "
            f"ended by {cell['ended_by']}, {took_s:.0f} s; fixed loop {1e3 * loop_s[-1]:.0f} ms",
            flush=True,
        )
    print(
        f"  {statistics.mean(steady):.1f} tok/s; coefficient of variation over {runs} runs: "
        f"classic {spread_pct(classic):.2f} %, a fixed loop beside it {spread_pct(loop_s):.2f} %"
    )
    return verdict("steady, coefficient of variation", spread_pct(steady), 1.0, "%")


def embedded_part() -> int:
    words = ("--output-tokens", "64", "--until", "0.5%", "--max-s", "180")
    return repeated("embedded", 5, "-c", "8", *words)


def vllm_part() -> int:
    if not VLLM.exists() or not VLLM_MODEL.exists():
        print("  left out: no vLLM here (`make vllm` builds it)")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.toml"
        plan.write_text(VLLM_PLAN, encoding="utf-8")
        words = ("--output-tokens", "64", "--until", "0.5%", "--max-s", "240")
        return repeated("vllm", 3, "-c", "4", "--plan", str(plan), *words)


def saved_part() -> int:
    """One loop of a fixed time, and one that may end as soon as it knows as much, or 1 %."""
    words = ("-c", "8", "--output-tokens", "64")
    fixed, fixed_s = sustain("embedded", *words, "--until", NEVER, "--max-s", f"{FIXED_S:.0f}")
    reached = half_width(fixed)
    for target in (reached, max(0.01, reached)):
        cell, took_s = sustain(
            "embedded", *words, "--until", f"{100 * target:.4f}%", "--max-s", "600"
        )
        print(
            f"  fixed {FIXED_S:.0f} s: ± {100 * reached:.2f} % in {fixed_s:.0f} s with start and "
            f"stop; --until {100 * target:.2f} %: ± {100 * half_width(cell):.2f} % in {took_s:.0f} "
            f"s, {100 * (1 - took_s / fixed_s):+.0f} % of the time saved, ended by "
            f"{cell['ended_by']}",
            flush=True,
        )
    return 0


PARTS = {
    "truth": truth_part,
    "embedded": embedded_part,
    "vllm": vllm_part,
    "saved": saved_part,
}


def main(*names: str) -> int:
    missed = 0
    for name in names or PARTS:
        print(f" {name}", flush=True)
        missed += PARTS[name]()
    return missed

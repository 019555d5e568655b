"""A sweep that is killed again and again ends as one that was left alone.

Two lanes of the embedded llama.cpp, three contexts, concurrencies to 1.5 times over the KV pool,
two rounds. The tool is killed with SIGKILL at three random moments and started again, the engine is
killed twice under it; cells, outcomes, rounds and requests must equal those of a sweep that nobody
disturbed, and every table of every round must be readable. Run: `python -m bench.sweep_killed`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from concbench.clock import now_ns, sleep_s
from concbench.store.read import open_study

PLAN = """
[study]
name = "killed"
seed = 11
rounds = 2

[lanes.f16]
engine = "llamacpp"
model = "embedded"
flags = { parallel = 3, ctx-size = 768, threads = 1 }

[lanes.q8]
engine = "llamacpp"
model = "embedded"
flags = { parallel = 3, ctx-size = 768, threads = 1, ctk = "q8_0", ctv = "q8_0", fa = "on" }

[workload]
output_tokens = 8

[sweep]
contexts = ["short", 110, 200]
concurrency = "auto"
"""
TOOL_KILLS, ENGINE_KILLS = 3, 2
LEAST_CELLS = 24
STEP_S = 0.05
GIVE_UP_S = 1800.0
CHILD = "concbench.serve.llamacpp_child"


def command(plan: Path, out: Path) -> list[str]:
    words = ["sweep", str(plan), "--out", str(out), "--quiet", "--ceiling"]
    words += ["--together", "no", "--warmup", "0"]
    return [sys.executable, "-m", "concbench", *words]


def rounds_on_record(out: Path) -> int:
    folder = out / "rounds"
    return sum(not p.name.startswith(".") for p in folder.iterdir()) if folder.is_dir() else 0


def engines(tool: int) -> list[psutil.Process]:
    """Return the engine processes that the tool has started, by their command line."""
    found = []
    try:
        for process in psutil.Process(tool).children(recursive=True):
            if CHILD in process.cmdline():
                found.append(process)
    except psutil.Error:
        pass
    return found


def run_until(child: subprocess.Popen[bytes], out: Path, rounds: int) -> bool:
    """Wait until so many rounds are on record; False where the tool ended before."""
    give_up_ns = now_ns() + int(GIVE_UP_S * 1e9)
    while child.poll() is None and rounds_on_record(out) < rounds:
        if now_ns() > give_up_ns:
            child.kill()
            raise SystemExit("the sweep does not get on")
        sleep_s(STEP_S)
    return child.poll() is None


def start(plan: Path, out: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(command(plan, out), stdout=file, stderr=file)


def disturbed(plan: Path, out: Path, log: Path, total: int, seed: int) -> list[str]:
    """Run the sweep to its end with kills in between; return what was done to it."""
    numbers = random.Random(seed)
    places = sorted(numbers.sample(range(4, max(10, int(0.85 * total))), TOOL_KILLS + ENGINE_KILLS))
    kinds = ["tool"] * TOOL_KILLS + ["engine"] * ENGINE_KILLS
    numbers.shuffle(kinds)
    told: list[str] = []
    child = start(plan, out, log)
    for place, kind in zip(places, kinds, strict=True):
        if not run_until(child, out, place):
            told.append(f"  the sweep had ended (code {child.returncode}) before round {place}")
            continue
        sleep_s(numbers.uniform(0.0, 0.8))
        if kind == "engine":
            for process in engines(child.pid):
                process.send_signal(signal.SIGKILL)
                told.append(f"  SIGKILL of the engine at {rounds_on_record(out)} rounds on record")
            continue
        child.send_signal(signal.SIGKILL)
        child.wait()
        told.append(f"  SIGKILL of the tool at {rounds_on_record(out)} rounds on record")
        child = start(plan, out, log)
    child.wait(GIVE_UP_S)
    told.append(f"  ended with exit code {child.returncode}")
    return told


def essence(out: Path) -> dict[str, tuple[str, int, int, int]]:
    """Return outcome, rounds, requests sent and answered of every cell."""
    result = json.loads((out / "result.json").read_bytes())
    return {
        cell["cell"]: (
            cell["outcome"],
            cell["rounds"],
            cell["requests"]["sent"],
            cell["requests"]["ok"],
        )
        for cell in result["cells"]
    }


def unreadable(out: Path) -> list[str]:
    """Read every table of every round; return what cannot be read."""
    reader = open_study(out)
    wrong = [*reader.unreadable, *reader.lost]
    for info in reader.rounds():
        loaded = reader.load_round(info.round_id)
        if len(loaded.requests) != info.requests or len(loaded.events) != info.events:
            wrong.append(info.round_id)
    return wrong


def show(out: Path) -> None:
    """Print the ceilings and what happened beyond the KV pool."""
    result = json.loads((out / "result.json").read_bytes())
    payload = result["payload"]["sweep"]
    for entry in payload["ceilings"]:
        print(
            f"  ceiling {entry['variant']}: {entry['accepted_tok']} tokens accepted, "
            f"{entry['rejected_tok']} rejected, {entry['tries']} tries; "
            f"the engine says {entry['declared_tok']}"
        )
    for entry in payload["cells"]:
        against = entry["against"]
        if against is not None:
            mark = "over-KV" if entry["over_kv"] else "over the slots"
            print(
                f"  {entry['cell']}: {mark}, {entry['demand_tok']} of {entry['pool_tok']} tokens, "
                f"{entry['failures']} failures, elapsed {against['elapsed_ratio']:.3f} x beside "
                f"concurrency {against['concurrency_ratio']:.3f} x, throughput "
                f"{against['throughput_ratio']:.3f} x"
            )


def undisturbed(plan: Path, out: Path, log: Path) -> int:
    """Run the sweep once with nobody near; return how many rounds it has on record.

    With KEEP a study of an earlier run is used again: it does not depend on the seed of the kills.
    """
    if not (out / "result.json").exists():
        began_ns = now_ns()
        child = start(plan, out, log)
        child.wait(GIVE_UP_S)
        took_s = (now_ns() - began_ns) / 1e9
        print(f"undisturbed: exit code {child.returncode}, {took_s:.0f} s", flush=True)
    total = rounds_on_record(out)
    print(f"undisturbed: {total} rounds on record", flush=True)
    return total


@contextmanager
def workplace() -> Iterator[Path]:
    """Yield the folder KEEP, which stays, or one that goes when the block ends."""
    kept = os.environ.get("KEEP")
    if kept:
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def main(seed: int | None = None) -> int:
    seed = int(os.environ.get("SEED", "20")) if seed is None else seed
    with workplace() as base:
        plan, log = base / "plan.toml", base / "log.txt"
        plan.write_text(PLAN)
        total = undisturbed(plan, base / "quiet", log)
        if not (base / "quiet" / "result.json").exists():
            print(log.read_text(errors="replace")[-2000:])
            return 1
        print(f"disturbed (seed {seed}):", flush=True)
        print(*disturbed(plan, base / "killed", log, total, seed), sep="\n", flush=True)
        before, after = essence(base / "quiet"), essence(base / "killed")
        wrong = unreadable(base / "killed")
        crashes = [
            each
            for each in json.loads((base / "killed" / "result.json").read_bytes())["payload"][
                "sweep"
            ]["failures"]
            if each["outcome"] == "crashed"
        ]
        print(f"cells: {len(before)} undisturbed, {len(after)} disturbed; equal: {before == after}")
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                print(f"  {name}: {before.get(name)} against {after.get(name)}")
        print(f"crashes written down: {len(crashes)}")
        for each in crashes:
            print(f"  {each['cell']}: {each['why'][:160]}; {len(each['log'])} lines of its log")
        print(f"parts that cannot be read: {wrong or 'none'}")
        show(base / "killed")
        good = before == after and not wrong and len(after) >= LEAST_CELLS
        print("as it should be" if good else "NOT as it should be")
        return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())

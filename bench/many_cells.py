"""A matrix of 2,000 cells: how long `report` and `query` take, and how much memory.

The study is synthetic: 5 lanes × 2 links × 20 contexts × 10 concurrencies, two rounds each, every
answer of 32 tokens. Targets: with the summary cache each command within 2 s and 500 MB; the cache
rebuilt within 20 s. `python -m bench.many_cells FOLDER` keeps the study there and uses it again.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

from bench.server import verdict
from concbench.domain import (
    Cell,
    Events,
    RequestRecord,
    Round,
    RoundInstrument,
    ServerSample,
    TargetFacts,
    Workload,
)
from concbench.store.write import Study

LANES, LINKS = [f"lane{i}" for i in range(5)], ["5g", "bond"]
CONTEXTS = [50, *range(1000, 20_000, 1000)]
LEVELS = [1, 2, 3, 4, 6, 8, 10, 12, 16, 24]
ROUNDS, TOKENS, POOL_TOK = 2, 32, 160_000
LIMIT_S, LIMIT_MB, REBUILD_S = 2.0, 500.0, 20.0


def a_round(number: int, cell: Cell, index: int, draw: random.Random) -> Round:
    """A burst in lockstep, its pace by concurrency and context, with noise."""
    start = 10**15 + number * 10**10
    n = cell.concurrency
    step_ns = round((15e6 + 0.4e6 * n + 200 * cell.context_tok) * draw.gauss(1, 0.004))
    first_ns = 20_000_000 + cell.context_tok * n * 500
    events, requests = Events(), []
    for k in range(n):
        times = array("q", (start + first_ns + i * step_ns + 900 * k for i in range(TOKENS)))
        events.request.extend([k] * TOKENS)
        events.read.extend(range(TOKENS))
        events.kernel_ns.extend(times)
        events.user_ns.extend(t + 20_000 for t in times)
        events.kind.extend([0] * TOKENS)
        events.tokens.extend([1.0] * TOKENS)
        requests.append(answered(k, start, times, cell.context_tok))
    end = start + first_ns + TOKENS * step_ns
    return Round(
        round_id=f"{number:05d}-{cell.cell}",
        cell=cell,
        index=index,
        phase="measured",
        workload=Workload(
            prompt_tokens=cell.context_tok, output_tokens=TOKENS, seed=number, arrival="burst"
        ),
        began_utc="2026-11-29T15:20:00Z",
        start_ns=start,
        end_ns=end,
        requests=requests,
        events=events,
        samples=[
            ServerSample(sent_ns=at, received_ns=at + 10**6, source="metrics", name=name, value=v)
            for at in range(start, end, max(1, (end - start) // 4))
            for name, v in (("running", float(n)), ("waiting", 0.0))
        ],
        instrument=RoundInstrument(
            stamp="kernel",
            reads=n * TOKENS,
            stamped_reads=n * TOKENS,
            read_lateness_ns=[20_000 + k for k in range(n * TOKENS)],
            loop_lag_ns=[10_000] * 50,
            min_rtt_ns=200_000,
            client_cpu=0.1,
        ),
    )


def answered(number: int, start: int, times: array[int], context: int) -> RequestRecord:
    return RequestRecord(
        index=number,
        worker=number,
        due_ns=start,
        sent_ns=start,
        outcome="ok",
        first_byte_ns=times[0],
        first_token_ns=times[0],
        first_visible_ns=times[0],
        last_token_ns=times[-1],
        end_ns=times[-1],
        http_status=200,
        finish_reason="length",
        asked_output_tok=TOKENS,
        asked_prompt_tok=context,
        prompt_tok=context,
        cached_tok=0,
        output_tok=TOKENS,
        token_source="usage",
        events=TOKENS,
        first_event_tok=1.0,
        reads=TOKENS,
        prompt_sha256=f"{start}-{number}",
    )


def make(folder: Path) -> None:
    draw = random.Random(1)
    cells = [
        Cell(
            cell=f"{lane}.{link}.{context}.c{n}",
            lane=lane,
            link=link,
            concurrency=n,
            context_tok=context,
            context_label="short" if context == 50 else str(context),
        )
        for lane, link, context, n in itertools.product(LANES, LINKS, CONTEXTS, LEVELS)
    ]
    targets = {
        lane: TargetFacts(
            lane=lane, engine="vllm", base_url="http://127.0.0.1:1", kv_capacity_tok=POOL_TOK
        )
        for lane in LANES
    }
    # What a crash would lose is of no interest here, and 40,000 syncs take minutes.
    real, os.fsync = os.fsync, lambda fd: None
    try:
        with Study.create(
            folder,
            name="many",
            command="sweep",
            argv=["sweep"],
            machine={},
            tool_version="0",
            seed=1,
            plan={},
            targets=targets,
        ) as writer:
            for index in range(ROUNDS):
                for place, cell in enumerate(cells):
                    writer.write_round(a_round(index * len(cells) + place, cell, index, draw))
            writer.finish()
    finally:
        os.fsync = real


def timed(*words: str) -> tuple[float, float, float]:
    """Run a command; return its wall and CPU seconds and its peak resident MB."""
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "concbench", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 4):
        raise SystemExit(f"concbench {' '.join(words)} ended with {child.returncode}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return time.monotonic() - began, cpu_s, usage.ru_maxrss / 1024


QUERIES = {
    "cells": "SELECT lane, count(*) AS cells, sum(measured_rounds) FROM cells GROUP BY ALL",
    "requests": "SELECT lane, context_tok, median(first_token_ns - sent_ns) / 1e6 AS ttft_ms "
    "FROM requests JOIN rounds USING (round_id) JOIN cells USING (cell) GROUP BY ALL LIMIT 5",
    "events": "SELECT count(*), sum(tokens) FROM events",
}


def run(folder: Path) -> int:
    shutil.rmtree(folder / "cache", ignore_errors=True)
    report, query = ["report", str(folder)], ["query", str(folder)]
    missed = shown("report, cache rebuilt", report, REBUILD_S)
    missed += shown("report", report, LIMIT_S)
    missed += shown("report --json", [*report, "--json", "-"], LIMIT_S)
    missed += shown("query, cache rebuilt", [*query, QUERIES["cells"]], REBUILD_S)
    for name, sql in QUERIES.items():
        missed += shown(f"query {name}", [*query, sql], LIMIT_S)
    return missed


def shown(name: str, words: list[str], limit_s: float) -> int:
    wall_s, cpu_s, peak_mb = timed(*words)
    missed = verdict(f"{name} (CPU {cpu_s:.2f} s)", wall_s, limit_s, "s")
    return missed + verdict(f"{name}, peak resident", peak_mb, LIMIT_MB, "MB")


def main(folder: str | None = None) -> int:
    if folder is not None and Path(folder).exists():
        return run(Path(folder))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "study" if folder is None else Path(folder)
        began = time.monotonic()
        make(path)
        print(f"  study of 2,000 cells made in {time.monotonic() - began:.0f} s", flush=True)
        return run(path)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:2]))

"""Rounds of a made-up engine, with every token's stamp, for pages of any size.

One step of B sequences that hold K tokens takes a + b·B + c·K seconds, a prompt token 1 ÷ P; what
is above the slots queues. Everything is drawn from a seed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

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

START_NS = 10**12


@dataclass(frozen=True)
class Engine:
    """A lane: its step's factors (s), prefill tok/s, slots, and KV pool in tokens."""

    name: str
    a: float = 0.012
    b: float = 0.00035
    c: float = 2.2e-8
    prefill_tok_per_s: float = 9_000.0
    slots: int = 256
    pool_tok: int = 2_000_000

    def facts(self) -> TargetFacts:
        return TargetFacts(
            lane=self.name,
            engine="vllm",
            engine_version="0.32.0",
            base_url="http://127.0.0.1:8000",
            model="synthetic-27B",
            quantization=self.name,
            kv_cache_dtype="fp8",
            max_context_tok=65_536,
            slots=self.slots,
            kv_capacity_tok=self.pool_tok,
            prefix_caching=True,
        )


def study_rounds(
    engines: Sequence[Engine],
    contexts: Sequence[int],
    levels: Sequence[int],
    rounds: int = 3,
    output_tok: int = 120,
) -> Iterator[Round]:
    """Yield every round of a sweep, one cell after the other."""
    number = 0
    for engine in engines:
        for context in contexts:
            for level in levels:
                for index in range(rounds):
                    yield one_round(engine, context, level, index, output_tok, number)
                    number += 1


def one_round(
    engine: Engine, context: int, level: int, index: int, output_tok: int, number: int
) -> Round:
    draw = np.random.default_rng(number)
    start = START_NS + number * 100 * 10**9
    fits = max(1, min(engine.slots, engine.pool_tok // (context + output_tok)))
    together = min(level, fits)
    step_s = (
        engine.a + engine.b * together + engine.c * together * (context + output_tok / 2)
    ) * draw.normal(1, 0.003)
    prefill_s = context / engine.prefill_tok_per_s
    free = np.zeros(together)
    firsts, times = [], []
    for _ in range(level):
        slot = int(free.argmin())
        busy = prefill_s * (1 + 0.2 * draw.random())
        free += np.where(np.arange(together) == slot, 0.0, 0.02 * busy)
        first = free[slot] + busy * (1 + 0.15 * (together - 1))
        steps = first + step_s * np.arange(output_tok) * (1 + 0.02 * draw.random(output_tok))
        steps = np.maximum.accumulate(steps)
        free[slot] = steps[-1]
        firsts.append(first)
        times.append(start + 300_000 + (steps * 1e9).astype(np.int64))
    stamps = np.concatenate(times)
    request = np.repeat(np.arange(level, dtype=np.int32), output_tok)
    read = np.tile(np.arange(output_tok, dtype=np.int32), level)
    cell = Cell(
        cell=f"{engine.name}.{context}.c{level}",
        lane=engine.name,
        concurrency=level,
        context_tok=context,
        context_label=f"{context // 1024}k" if context >= 1024 else "short",
    )
    end = int(stamps.max())
    return Round(
        round_id=f"{number:05d}-{cell.cell}",
        cell=cell,
        index=index,
        phase="measured",
        workload=Workload(
            prompt_tokens=context, output_tokens=output_tok, seed=number, arrival="burst"
        ),
        began_utc="2026-11-29T15:20:00Z",
        start_ns=start,
        end_ns=end + 1_000,
        requests=[_record(i, start, part, context, output_tok) for i, part in enumerate(times)],
        events=_events(request, read, stamps, draw),
        samples=_samples(start, times, context, engine, together),
        instrument=RoundInstrument(
            stamp="kernel",
            reads=stamps.size,
            stamped_reads=stamps.size,
            read_lateness_ns=[int(x) for x in draw.gamma(2, 20_000, 200)],
            loop_lag_ns=[int(x) for x in draw.gamma(2, 60_000, 100)],
            min_rtt_ns=180_000,
            client_cpu=0.1,
        ),
    )


def _record(
    index: int, start: int, times: np.ndarray, context: int, output_tok: int
) -> RequestRecord:
    sent = start + 200_000 + 1_000 * index
    return RequestRecord(
        index=index,
        worker=index,
        due_ns=start,
        sent_ns=sent,
        send_done_ns=sent + 20_000,
        first_byte_ns=int(times[0]),
        first_token_ns=int(times[0]),
        first_visible_ns=int(times[0]),
        last_token_ns=int(times[-1]),
        end_ns=int(times[-1]) + 500,
        outcome="ok",
        http_status=200,
        finish_reason="length",
        asked_output_tok=output_tok,
        asked_prompt_tok=context,
        prompt_tok=context,
        cached_tok=0,
        output_tok=output_tok,
        token_source="usage",
        events=output_tok,
        first_event_tok=1.0,
        reads=output_tok,
    )


def _events(
    request: np.ndarray, read: np.ndarray, stamps: np.ndarray, draw: np.random.Generator
) -> Events:
    order = np.argsort(stamps, kind="stable")
    late = draw.integers(5_000, 90_000, stamps.size)

    def column(code: str, values: np.ndarray, kind: str) -> array:
        made = array(code)
        made.frombytes(np.ascontiguousarray(values, dtype=kind).tobytes())
        return made

    return Events(
        request=column("i", request[order], "i4"),
        read=column("i", read[order], "i4"),
        kernel_ns=column("q", stamps[order], "i8"),
        user_ns=column("q", stamps[order] + late, "i8"),
        kind=column("b", np.zeros(stamps.size), "i1"),
        tokens=column("f", np.ones(stamps.size), "f4"),
    )


def _samples(
    start: int, times: list[np.ndarray], context: int, engine: Engine, together: int
) -> list[ServerSample]:
    stamps = np.sort(np.concatenate(times))
    ends = np.sort([part[-1] for part in times])
    found = []
    for at in np.linspace(start, int(stamps[-1]), 40).astype(int):
        made = int(stamps.searchsorted(at, side="right"))
        left = len(times) - int(ends.searchsorted(at, side="right"))
        running = min(left, together)
        usage = running * (context + made / len(times)) / engine.pool_tok
        values = {
            "generated_tok_live": made,
            "generated_tok": made,
            "running": running,
            "waiting": left - running,
            "kv_usage": min(1.0, usage),
        }
        found += [
            ServerSample(
                sent_ns=int(at) - 200_000,
                received_ns=int(at) + 200_000,
                source="metrics",
                name=name,
                value=float(value),
            )
            for name, value in values.items()
        ]
    return found

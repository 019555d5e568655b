"""Studies of bursts with a known truth, for the tests of what is judged from the disk."""

from __future__ import annotations

import random
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from concbench.domain import (
    Cell,
    Events,
    RequestRecord,
    Round,
    RoundInstrument,
    TargetFacts,
    Workload,
)
from concbench.store.write import Study, StudyWriter

STEPS = 120


def a_round(
    place: int,
    lane: str,
    tok_per_s: float,
    *,
    level: int = 4,
    context: int = 50,
    failed: int = 0,
    link: str | None = None,
) -> Round:
    """A burst whose streams all decode at the same pace: `tok_per_s` together, in lockstep."""
    step_ns = round(1e9 * level / tok_per_s)
    start = 10**15 + place * 10**11
    events, records = Events(), []
    for number in range(level):
        times = [start + 50_000_000 + k * step_ns + number * 1000 for k in range(STEPS)]
        events.request.extend(array("i", [number] * STEPS))
        events.read.extend(array("i", range(STEPS)))
        events.kernel_ns.extend(array("q", times))
        events.user_ns.extend(array("q", [t + 20_000 for t in times]))
        events.kind.extend(array("b", [0] * STEPS))
        events.tokens.extend(array("f", [1.0] * STEPS))
        bad = number < failed
        records.append(
            RequestRecord(
                index=number,
                worker=number,
                due_ns=start,
                sent_ns=start,
                outcome="failed" if bad else "ok",
                error="http_503" if bad else None,
                first_byte_ns=times[0],
                first_token_ns=times[0],
                first_visible_ns=times[0],
                last_token_ns=times[-1],
                end_ns=times[-1],
                http_status=503 if bad else 200,
                finish_reason="length",
                asked_output_tok=STEPS,
                asked_prompt_tok=context,
                prompt_tok=context,
                cached_tok=0,
                output_tok=STEPS,
                token_source="usage",
                events=STEPS,
                first_event_tok=1.0,
                reads=STEPS,
                prompt_sha256=f"{place}-{number}",
            )
        )
    cell = Cell(
        cell=f"{lane}.{context}.c{level}" + (f".{link}" if link else ""),
        lane=lane,
        concurrency=level,
        context_tok=context,
        context_label="short" if context <= 50 else str(context),
        link=link,
    )
    return Round(
        round_id=f"{place:05d}-{cell.cell}",
        cell=cell,
        index=place,
        phase="measured",
        workload=Workload(prompt_tokens=context, output_tokens=STEPS, seed=place, arrival="burst"),
        began_utc="2026-11-29T15:20:00Z",
        start_ns=start,
        end_ns=start + 50_000_000 + STEPS * step_ns,
        requests=records,
        events=events,
        instrument=RoundInstrument(
            stamp="kernel",
            reads=level * STEPS,
            stamped_reads=level * STEPS,
            read_lateness_ns=[20_000] * 100,
            loop_lag_ns=[10_000] * 10,
            min_rtt_ns=200_000,
            client_cpu=0.1,
        ),
    )


def facts(lane: str, **changes: Any) -> TargetFacts:
    known: dict[str, Any] = {
        "lane": lane,
        "engine": "vllm",
        "base_url": "http://127.0.0.1:8000",
        "model": "m",
        "quantization": "fp8",
        "slots": 64,
        "max_context_tok": 8192,
    }
    return TargetFacts(**{**known, **changes})


def create(folder: Path, lanes: Mapping[str, Mapping[str, Any]], **changes: Any) -> StudyWriter:
    fields: dict[str, Any] = {
        "name": "home",
        "command": "sweep",
        "argv": ["sweep"],
        "machine": {"fingerprint": "f"},
        "tool_version": "0.1.0",
        "seed": 1,
        "plan": {},
        "targets": {lane: facts(lane, **more) for lane, more in lanes.items()},
    }
    return Study.create(folder, **{**fields, **changes})


def interleaved(
    folder: Path,
    rates: Mapping[str, Mapping[int, float]],
    *,
    rounds: int = 5,
    noise: float = 0.004,
    more: Mapping[str, Mapping[str, Any]] | None = None,
    starts: int = 1,
    drift: float = 0.0,
) -> Path:
    """A B B A …: every lane at every level, rounds in turns. `rates` are tok/s by lane, level."""
    draw = random.Random(7)
    lanes = list(rates)
    with create(folder, {lane: (more or {}).get(lane, {}) for lane in lanes}) as writer:
        for lane in lanes:
            for _ in range(starts):
                writer.note("start", {"lane": lane})
        place = 0
        for number in range(rounds):
            for lane in lanes if number % 2 == 0 else reversed(lanes):
                for level, rate in rates[lane].items():
                    pace = rate * (1 + draw.gauss(0, noise)) * (1 + drift * number)
                    writer.write_round(a_round(place, lane, pace, level=level))
                    place += 1
        writer.finish()
    return folder


def alone(folder: Path, lane: str, rates: Sequence[float], **changes: Any) -> Path:
    """One lane at level 4, a round for each rate."""
    with create(folder, {lane: {}}, **changes) as writer:
        for place, rate in enumerate(rates):
            writer.write_round(a_round(place, lane, rate))
        writer.finish()
    return folder

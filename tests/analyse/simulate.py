"""Rounds with a known truth: built by hand, or by a small step-level engine in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from concbench.domain import (
    Arrival,
    Cell,
    Events,
    RequestRecord,
    Round,
    RoundInstrument,
    Workload,
)

MS = 1_000_000
S = 1_000_000_000


@dataclass
class Reply:
    """One request by hand: times in ns; `tokens` per event, one each by default."""

    times: Sequence[int] = ()
    tokens: Sequence[float] | None = None
    sent: int | None = 0
    due: int | None = None
    end: int | None = None
    worker: int = 0
    outcome: str = "ok"
    reads: Sequence[int] | None = None
    kernel: bool = True
    lateness: int = 0
    kinds: Sequence[int] | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def as_round(
    replies: Sequence[Reply],
    *,
    arrival: Arrival = "burst",
    concurrency: int | None = None,
    index: int = 0,
    start_ns: int = 0,
    end_ns: int | None = None,
    stream: bool = True,
    rate_rps: float | None = None,
    instrument: dict[str, Any] | None = None,
    **fields: Any,
) -> Round:
    """Put replies into a round; whatever is not given follows from the times."""
    events = Events()
    records = [_record(index, number, reply, events) for number, reply in enumerate(replies)]
    ends = [record.end_ns for record in records if record.end_ns is not None]
    total = len(events)
    return Round(
        round_id=f"r{index}",
        cell=Cell(
            cell="lane.short.c",
            lane="lane",
            concurrency=len(replies) if concurrency is None else concurrency,
            context_tok=50,
            rate_rps=rate_rps,
        ),
        index=index,
        phase=fields.pop("phase", "measured"),
        workload=Workload(
            prompt_tokens=50, output_tokens=128, seed=index, arrival=arrival, stream=stream
        ),
        began_utc="2026-11-29T12:00:00Z",
        start_ns=start_ns,
        end_ns=end_ns if end_ns is not None else max(ends, default=start_ns),
        requests=records,
        events=events,
        instrument=RoundInstrument(
            **{"stamp": "kernel", "reads": total, "stamped_reads": total, **(instrument or {})}
        ),
        **fields,
    )


def _record(index: int, number: int, reply: Reply, events: Events) -> RequestRecord:
    tokens = reply.tokens if reply.tokens is not None else [1.0] * len(reply.times)
    reads = reply.reads if reply.reads is not None else range(len(reply.times))
    kinds = reply.kinds if reply.kinds is not None else [0] * len(reply.times)
    for time, count, read, kind in zip(reply.times, tokens, reads, kinds, strict=True):
        events.request.append(number)
        events.read.append(read)
        events.kernel_ns.append(time if reply.kernel else 0)
        events.user_ns.append(time + reply.lateness)
        events.kind.append(kind)
        events.tokens.append(count)
    output = round(sum(tokens))
    known: dict[str, Any] = {
        "index": number,
        "worker": reply.worker or number,
        "due_ns": (reply.sent or 0) if reply.due is None else reply.due,
        "sent_ns": reply.sent,
        "outcome": reply.outcome,
        "first_token_ns": reply.times[0] if reply.times else None,
        "first_visible_ns": reply.times[0] if reply.times else None,
        "last_token_ns": reply.times[-1] if reply.times else None,
        "end_ns": reply.end if reply.end is not None else (reply.times or [None])[-1],
        "asked_output_tok": output,
        "asked_prompt_tok": 50,
        "prompt_tok": 50,
        "output_tok": output,
        "token_source": "usage",
        "finish_reason": "length" if reply.outcome == "ok" else None,
        "events": len(reply.times),
        "first_event_tok": tokens[0] if tokens else 0.0,
        "reads": len(set(reads)),
        "prompt_sha256": f"{index}-{number}",
        **reply.extra,
    }
    return msgspec.convert(known, RequestRecord)


@dataclass
class Engine:
    """Continuous batching in virtual time: a prefill blocks the batch, a decode step serves all.

    `step_ns(batch)` is the time of one decode step.
    """

    step_ns: Callable[[int], float]
    prefill_ns: int = 40 * MS
    slots: int = 1_000
    noise: float = 0.0
    seed: int = 0

    def run(
        self,
        arrivals: Sequence[tuple[int, int, int]],
        refill: Callable[[int, int], int | None] = lambda worker, now: None,
        cut_ns: int | None = None,
    ) -> list[Reply]:
        """Serve `(sent, output tokens, worker)`; `refill(worker, now)` gives the next length.

        At `cut_ns` everything in flight ends as incomplete.
        """
        rng = random.Random(self.seed)
        waiting = sorted(arrivals)
        running: list[tuple[Reply, int]] = []
        done: list[Reply] = []
        now = 0
        while (waiting or running) and (cut_ns is None or now < cut_ns):
            if waiting and waiting[0][0] <= now and len(running) < self.slots:
                sent, length, worker = waiting.pop(0)
                now += self._spent(rng, self.prefill_ns)
                running.append((Reply(times=[now], sent=sent, worker=worker), length))
            elif running:
                now += self._spent(rng, self.step_ns(len(running)))
                for reply, _ in running:
                    reply.times.append(now)  # type: ignore[attr-defined]
            else:
                now = waiting[0][0]
                continue
            for item in [item for item in running if len(item[0].times) >= item[1]]:
                running.remove(item)
                item[0].end = now
                done.append(item[0])
                if (following := refill(item[0].worker, now)) is not None:
                    waiting.append((now, following, item[0].worker))
                    waiting.sort()
        return done + self._cut(running, waiting, now)

    def _spent(self, rng: random.Random, ns: float) -> int:
        return int(ns * (1 + rng.gauss(0, self.noise))) if self.noise else int(ns)

    @staticmethod
    def _cut(
        running: list[tuple[Reply, int]], waiting: list[tuple[int, int, int]], now: int
    ) -> list[Reply]:
        cut = [reply for reply, _ in running]
        cut += [Reply(sent=sent, worker=worker) for sent, _, worker in waiting if sent < now]
        for reply in cut:
            reply.outcome, reply.end = "incomplete", now
        return cut


def burst(engine: Engine, n: int, output_tok: int, **fields: Any) -> Round:
    """N requests at once."""
    replies = engine.run([(0, output_tok, worker) for worker in range(n)])
    return as_round(replies, concurrency=n, **fields)


def closed_loop(
    engine: Engine, n: int, output_tok: int, issue_until_ns: int, **fields: Any
) -> Round:
    """N workers; each first request has a residual length, issuing ends at a given time."""
    rng = random.Random(engine.seed)
    firsts = [(0, max(1, int(rng.random() * output_tok)), worker) for worker in range(1, n + 1)]
    replies = engine.run(firsts, lambda _, now: output_tok if now < issue_until_ns else None)
    return as_round(replies, arrival="closed", concurrency=n, **fields)


def steady_stream(first: int, gap: int, count: int, **fields: Any) -> Reply:
    """A stream of `count` tokens, `gap` ns apart."""
    return Reply(times=[first + k * gap for k in range(count)], **fields)

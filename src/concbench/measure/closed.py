"""The sustained campaign: N in flight, refilled at once, until the steady rate is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from concbench.clock import now_ns
from concbench.domain import Cell, Round, Workload
from concbench.load.generator import Progress, RawRound
from concbench.load.loop import ClosedLoop
from concbench.measure.burst import FALLBACK_STEP_S, StartPace, start_pace
from concbench.measure.campaign import (
    WARMUP_OUTPUT_TOK,
    Asks,
    Campaign,
    OnRound,
    OnSay,
    Recorder,
    check_reset,
    context_label,
    until_signal,
)
from concbench.measure.companions import after_idle, half_round
from concbench.measure.observed import live
from concbench.measure.pool import Pool
from concbench.measure.session import Session
from concbench.measure.silence import STALL_FACTOR, STALL_S
from concbench.measure.watch import Limits, OnLook, Watch
from concbench.plan.prompts import Prompt

REQUEST_S = 8.0
"""How long a request of automatic length takes at the measured pace."""

REQUESTS_IN_MAX = 12
"""That many fit one after another into the longest loop: 8 for the interval, some for the ramp."""

LEAST_OUTPUT_TOK = 32
PREPARE_S = 20.0
SPARE = 1.3
TOP_UP_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class SustainOptions(Asks):
    """What a closed loop is to do. `output_tok` None means auto; `until` is a share."""

    concurrency: int
    prompt_tok: int
    output_tok: int | None
    content: str
    seed: int
    until: float = 0.01
    min_s: float = 30.0
    max_s: float = 300.0
    rounds: int = 1
    warmup: int = 1
    timeout_s: float | None = None
    inactivity_s: float | None = None
    same_prompt: bool = False
    file_prompts: Sequence[Prompt] = ()
    keep_text: bool = False
    idle_s: float | None = None
    reset_cache: bool = False


def cell_of(session: Session, options: SustainOptions) -> Cell:
    """Return the loop's cell."""
    label = context_label(options.prompt_tok)
    return Cell(
        cell=f"{session.lane}.{label}.s{options.concurrency}",
        lane=session.lane,
        concurrency=options.concurrency,
        context_tok=options.prompt_tok,
        context_label=label,
    )


def sustain(
    session: Session,
    options: SustainOptions,
    on_round: OnRound,
    on_look: OnLook = lambda _: None,
    on_say: OnSay = lambda _: None,
    *,
    done: int = 0,
) -> Campaign:
    """Run the loops; `on_round` is given each and must store it, `on_look` is called twice a s.

    `done` is how many rounds the study holds already: numbers and seeds go on from there.

    A signal ends the campaign early: what was measured is in the result, marked. Raises
    PromptTooLong and UsageError before anything is measured.
    """
    campaign = Campaign()
    recorder = Recorder(session, options.asking, campaign, on_round, done, on_look=on_look)
    recorder.check_context(options.output_tok)
    if options.reset_cache:
        check_reset(session)
    cell = campaign.add(cell_of(session, options))
    with until_signal(recorder):
        pace, stall_s = _warm_up(recorder, cell, options)
        campaign.output_tok = options.output_tok or auto_output_tok(session, options, pace)
        limits = Limits(options.until, options.min_s, options.max_s, stall_s)
        for _ in range(options.rounds):
            if campaign.interrupted:
                break
            loop = _loop(recorder, cell, limits, pace, on_look, on_say)
            if loop.outcome in ("crashed", "hung"):
                break
            if not campaign.interrupted:
                half_round(recorder, cell)
        if options.idle_s is not None and not campaign.interrupted:
            on_say(f"leaving the server idle for {options.idle_s:g} s")
            after_idle(recorder, cell, options.idle_s)
    if campaign.interrupted:
        campaign.ended_by[cell.cell] = "interrupt"
    return campaign


def auto_output_tok(session: Session, options: SustainOptions, pace: StartPace) -> int:
    """Return the output length with which a request takes about 8 s at the pace of N at once.

    Shorter where the longest loop would not hold 12 requests one after another, where the context
    ends, and where N such requests would not fit the KV pool.
    """
    facts = session.facts
    target_s = min(REQUEST_S, options.max_s / REQUESTS_IN_MAX)
    wanted = max(LEAST_OUTPUT_TOK, round(target_s / (pace.step_s or FALLBACK_STEP_S)))
    rooms = [wanted]
    if facts.max_context_tok is not None:
        rooms.append(facts.max_context_tok - options.prompt_tok)
    if facts.kv_capacity_tok is not None:
        room = facts.kv_capacity_tok // options.concurrency - options.prompt_tok
        rooms.append(max(LEAST_OUTPUT_TOK, room))
    return max(1, min(rooms))


def _warm_up(recorder: Recorder, cell: Cell, options: SustainOptions) -> tuple[StartPace, float]:
    """Run discarded waves of N; return the pace they show and how long a silence may be."""
    pace = StartPace(recorder.session.step_ns / 1e9, None)
    longest_ns = recorder.session.prefill_ns
    for _ in range(options.warmup):
        output_tok = min(WARMUP_OUTPUT_TOK, options.output_tok or WARMUP_OUTPUT_TOK)
        wave = recorder.burst(cell, "warmup", output_tok)
        if recorder.campaign.interrupted:
            raise KeyboardInterrupt
        pace = start_pace(wave) or pace
        waits = [
            record.first_token_ns - record.sent_ns
            for record in wave.requests
            if record.first_token_ns is not None and record.sent_ns is not None
        ]
        longest_ns = max([longest_ns, *waits])
    return pace, max(STALL_S, STALL_FACTOR * longest_ns / 1e9)


def _loop(
    recorder: Recorder,
    cell: Cell,
    limits: Limits,
    pace: StartPace,
    on_look: OnLook,
    on_say: OnSay,
) -> Round:
    """Run one loop: one round."""
    session, campaign = recorder.session, recorder.campaign
    seed, output_tok, n = recorder.next_seed(), campaign.output_tok, cell.concurrency
    step_s = pace.step_s or FALLBACK_STEP_S
    pool = Pool(recorder, n, output_tok, seed)
    on_say("preparing prompts")
    request_s = max(1e-3, session.prefill_ns / 1e9 + output_tok * step_s)
    pool.prepare(n + math.ceil(SPARE * n * limits.max_s / request_s), PREPARE_S)
    watch = Watch(n, limits, session.bytes_per_tok, lambda: live(session), on_look, cell.cell)
    loop = ClosedLoop(n, max(1, int(step_s * 1e9)), pool.take, pool.left, watch)

    def stop_when(progress: Progress) -> bool:
        loop.start_ns = now_ns() - progress.elapsed_ns
        pool.top_up(n, TOP_UP_NS)
        if loop.exhausted:  # only where other processes carry it, which cannot make prompts
            watch.ended_by = watch.ended_by or "max_s"
        return watch.tick(progress, loop.start_ns)

    def sent(raw: RawRound) -> tuple[Workload, Sequence[Prompt]]:
        issued = pool.prompts[: 1 + max((r.prompt for r in raw.requests), default=-1)]
        return recorder.workload("closed", output_tok, seed, issued), issued

    plan = replace(recorder.plan(loop.scripts()), loop=loop, stop_when=stop_when)
    on_say(f"{n} in flight, {output_tok} tokens an answer")
    done = recorder.record(cell, "measured", plan, sent, amend=lambda r: _amended(r, pool, watch))
    ended_by = "interrupt" if done.interrupted else watch.ended_by or "interrupt"
    before = campaign.ended_by.get(cell.cell, "interval")
    campaign.ended_by[cell.cell] = ended_by if before == "interval" else before
    return done


def _amended(parsed: Round, pool: Pool, watch: Watch) -> Round:
    """Note the requests that were rendered while the load was on, and a server that went silent."""
    if watch.hung is not None:
        parsed = msgspec.structs.replace(parsed, outcome="hung", outcome_detail=watch.hung)
    if not pool.late:
        return parsed
    records = [
        msgspec.structs.replace(record, notes=(*record.notes, "rendered_late"))
        if record.index in pool.late
        else record
        for record in parsed.requests
    ]
    return msgspec.structs.replace(parsed, requests=records)

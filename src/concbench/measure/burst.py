"""The burst campaign: for each level N requests at once, rounds interleaved over the levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from concbench.analyse.estimate import mean_estimate, relative_half_width
from concbench.domain import Cell, Round
from concbench.measure.campaign import (
    WARMUP_OUTPUT_TOK,
    Asks,
    Campaign,
    Kept,
    OnDiscard,
    OnRound,
    OnSay,
    Recorder,
    check_reset,
    context_label,
    until_signal,
)
from concbench.measure.companions import after_idle, half_cell, half_round
from concbench.measure.session import Session
from concbench.measure.watch import OnLook
from concbench.plan.output import auto_output_tokens
from concbench.plan.prompts import Prompt

HUNG_CELLS = 2
DISAGREE = 0.10
"""How much faster (log ratio) the second round must be for the first to count as cold."""

FALLBACK_STEP_S = 0.02
"""Taken where nothing showed the pace, as when answers are not streamed."""

EndedBy = Literal["interval", "rounds_max", "interrupt"]


@dataclass(frozen=True, slots=True)
class BurstOptions(Asks):
    """What a burst is to do. `output_tok` None means auto; `rounds_max` None means `rounds`.

    `idle_s` adds a request after that much silence at the end; `reset_cache` empties the engine's
    prompt cache before every round.
    """

    levels: Sequence[int]
    prompt_tok: int
    output_tok: int | None
    content: str
    seed: int
    rounds: int = 4
    rounds_max: int | None = None
    warmup: int = 1
    timeout_s: float | None = None
    inactivity_s: float | None = None
    same_prompt: bool = False
    file_prompts: Sequence[Prompt] = ()
    keep_text: bool = False
    temperature: float = 0.0
    target: float = 0.01
    idle_s: float | None = None
    reset_cache: bool = False


def cell_of(session: Session, level: int, prompt_tok: int) -> Cell:
    """Return the cell of one level."""
    label = context_label(prompt_tok)
    return Cell(
        cell=f"{session.lane}.{label}.c{level}",
        lane=session.lane,
        concurrency=level,
        context_tok=prompt_tok,
        context_label=label,
    )


def burst(
    session: Session,
    options: BurstOptions,
    on_round: OnRound,
    on_discard: OnDiscard,
    on_say: OnSay = lambda _: None,
    on_look: OnLook | None = None,
) -> Campaign:
    """Measure every level; `on_round` is given each finished round and must store it.

    `on_say` is told what begins, between rounds only; `on_look` twice a second how a round goes.

    A signal ends the campaign early: what was measured is in the result, marked. Raises
    PromptTooLong when prompt and answer are known not to fit the context, UsageError where the
    engine cannot empty its prompt cache and should.
    """
    campaign = Campaign()
    recorder = Recorder(session, options.asking, campaign, on_round, on_look=on_look)
    recorder.check_context(options.output_tok)
    if options.reset_cache:
        check_reset(session)
    for level in options.levels:
        campaign.add(cell_of(session, level, options.prompt_tok))
    with until_signal(recorder):
        _warm_up(recorder, options, on_say)
        if not campaign.interrupted:
            _measure(recorder, options, on_discard, on_say)
        if options.idle_s is not None and not campaign.interrupted:
            after_idle(recorder, next(iter(campaign.cells.values())), options.idle_s)
    for name in campaign.cells:
        campaign.ended_by.setdefault(name, "interrupt")
    return campaign


def _measure(
    recorder: Recorder, options: BurstOptions, on_discard: OnDiscard, on_say: OnSay
) -> None:
    """Go round the levels until each has enough rounds, its interval, or the engine is gone."""
    campaign = recorder.campaign
    rounds_max = max(options.rounds, options.rounds_max or options.rounds)
    rewarmed: set[str] = set()
    while not campaign.interrupted:
        todo = [c for c in campaign.cells.values() if c.cell not in campaign.ended_by]
        if not todo:
            return
        for cell in todo:
            number = len(campaign.rounds[cell.cell]) + 1
            on_say(f"N = {cell.concurrency}: round {number} of {options.rounds} is running")
            done = recorder.burst(cell, "measured", campaign.output_tok)
            if done.outcome == "crashed" or campaign.interrupted:
                return
            if done.outcome == "hung":
                if _gave_up(campaign, cell):
                    return
                continue
            half = half_round(recorder, cell)
            if campaign.interrupted:
                return
            warming = options.rounds > 2 and cell.cell not in rewarmed
            if warming and still_cold(campaign.rounds[cell.cell]):
                rewarmed.add(cell.cell)
                _discard(campaign, cell, half is not None, on_discard)
                recorder.burst(cell, "warmup", min(WARMUP_OUTPUT_TOK, campaign.output_tok))
                continue
            ended = _ended_by(
                campaign.rounds[cell.cell], options.rounds, rounds_max, options.target
            )
            if ended:
                campaign.ended_by[cell.cell] = ended


def _gave_up(campaign: Campaign, cell: Cell) -> bool:
    """End a cell that hung; at the second one all, since the others would only be waited for."""
    campaign.ended_by[cell.cell] = "timeout"
    if sum(ended == "timeout" for ended in campaign.ended_by.values()) < HUNG_CELLS:
        return False
    for name in campaign.cells:
        campaign.ended_by.setdefault(name, "timeout")
    return True


def _warm_up(recorder: Recorder, options: BurstOptions, on_say: OnSay) -> None:
    """One discarded wave a level, the largest first: it also shows how ragged a start is."""
    campaign, session = recorder.campaign, recorder.session
    largest = max(campaign.cells.values(), key=lambda cell: cell.concurrency)
    pace = StartPace(session.step_ns / 1e9, None)
    wave_tok = min(WARMUP_OUTPUT_TOK, options.output_tok or WARMUP_OUTPUT_TOK)
    cells = sorted(campaign.cells.values(), key=lambda c: -c.concurrency)
    for cell in [cell for cell in cells for _ in range(options.warmup)]:
        on_say(f"N = {cell.concurrency}: warming up")
        wave = recorder.burst(cell, "warmup", wave_tok)
        if campaign.interrupted:
            return
        if cell is largest:
            pace = start_pace(wave) or pace
        if wave.outcome in ("crashed", "hung"):
            break
    campaign.output_tok = options.output_tok or auto_output_tokens(
        largest.concurrency,
        pace.step_s or FALLBACK_STEP_S,
        first_spread_s=pace.first_spread_s,
        prompt_tok=options.prompt_tok,
        context_tok=session.facts.max_context_tok,
    )


@dataclass(frozen=True, slots=True)
class StartPace:
    """How long a decode step takes at some level, and how far apart first tokens come, in s."""

    step_s: float
    first_spread_s: float | None


def start_pace(wave: Round) -> StartPace | None:
    """Return the pace that a warm-up wave shows, or None where too little came back."""
    firsts = [r.first_token_ns for r in wave.requests if r.first_token_ns is not None]
    steps = sorted(
        (r.last_token_ns - r.first_token_ns) / (r.output_tok - 1)
        for r in wave.requests
        if r.first_token_ns is not None and r.last_token_ns is not None and r.output_tok > 1
    )
    if not firsts or not steps or steps[len(steps) // 2] <= 0:
        return None
    return StartPace(steps[len(steps) // 2] / 1e9, (max(firsts) - min(firsts)) / 1e9)


def still_cold(rounds: Sequence[Kept]) -> bool:
    """Whether exactly two rounds are there and the second was faster by more than a warm engine is.

    Warming up only ever makes an engine faster; a second round that is slower has other reasons,
    which more rounds will show and a warm-up would hide.
    """
    if len(rounds) != 2:
        return False
    first, second = (each.batch_tok_per_s for each in rounds)
    return bool(first and second and math.log(second / first) > DISAGREE)


def _discard(campaign: Campaign, cell: Cell, with_half: bool, on_discard: OnDiscard) -> None:  # noqa: FBT001
    names = [cell.cell, half_cell(cell).cell] if with_half else [cell.cell]
    for name in names:
        for old in campaign.rounds[name]:
            on_discard(old.round_id, "the first two rounds disagreed: the engine was not yet warm")
        campaign.rounds[name] = []


def _ended_by(rounds: Sequence[Kept], least: int, most: int, target: float) -> EndedBy | None:
    """Say whether the cell is done: narrow enough after the least, or at the most rounds."""
    if len(rounds) < least:
        return None
    rates = [each.headline_tok_per_s for each in rounds if each.headline_tok_per_s]
    width = relative_half_width(mean_estimate(rates))
    if width is not None and width <= target:
        return "interval"
    return "rounds_max" if len(rounds) >= most else None

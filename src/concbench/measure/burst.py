"""The burst campaign: for each level N requests at once, rounds interleaved over the levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from concbench.analyse.estimate import mean_estimate, relative_half_width
from concbench.analyse.prefill import MIN_UNCACHED_TOK
from concbench.analyse.rates import batch_tok_per_s, headline_tok_per_s
from concbench.domain import Cell, Round, RoundPhase, Workload
from concbench.errors import PromptTooLong
from concbench.measure.digest import digest
from concbench.measure.requests import render_all
from concbench.measure.session import Session
from concbench.plan.output import auto_output_tokens
from concbench.plan.prompts import Prompt, prompts_sha256
from concbench.plan.splitmix import derive

WARMUP_OUTPUT_TOK = 32
HALF_OUTPUT_TOK = 16
HALF = "half"
"""Label of the companion cell that gives the second prompt length of the prefill rate."""

DISAGREE = 0.10
"""How much faster (log ratio) the second round must be for the first to count as cold."""

FALLBACK_STEP_S = 0.02
"""Taken where nothing showed the pace, as when answers are not streamed."""

EndedBy = Literal["interval", "rounds_max", "interrupt"]


@dataclass(frozen=True, slots=True)
class BurstOptions:
    """What a burst is to do. `output_tok` None means auto; `rounds_max` None means `rounds`."""

    levels: Sequence[int]
    prompt_tok: int
    output_tok: int | None
    content: str
    seed: int
    rounds: int = 4
    rounds_max: int | None = None
    warmup: int = 1
    timeout_s: float | None = None
    same_prompt: bool = False
    file_prompts: Sequence[Prompt] = ()
    keep_text: bool = False
    temperature: float = 0.0
    target: float = 0.01


@dataclass(slots=True)
class Campaign:
    """What a campaign has measured: rounds by cell, and why each cell ended."""

    rounds: dict[str, list[Round]] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)
    ended_by: dict[str, str] = field(default_factory=dict)
    output_tok: int = 0
    interrupted: bool = False


OnRound = Callable[[Round], None]
OnDiscard = Callable[[str, str], None]


def cell_of(session: Session, level: int, prompt_tok: int) -> Cell:
    """Return the cell of one level."""
    label = "short" if prompt_tok <= 50 else str(prompt_tok)
    return Cell(
        cell=f"{session.lane}.{label}.c{level}",
        lane=session.lane,
        concurrency=level,
        context_tok=prompt_tok,
        context_label=label,
    )


def burst(
    session: Session, options: BurstOptions, on_round: OnRound, on_discard: OnDiscard
) -> Campaign:
    """Measure every level; `on_round` is given each finished round and must store it.

    A signal ends the campaign early: what was measured is in the result, marked. Raises
    PromptTooLong when prompt and answer are known not to fit the context.
    """
    campaign = Campaign()
    runner = _Runner(session, options, campaign, on_round)
    runner.check_context()
    for level in options.levels:
        cell = cell_of(session, level, options.prompt_tok)
        campaign.cells[cell.cell] = cell
        campaign.rounds[cell.cell] = []
    _warm_up(runner)
    if campaign.interrupted:
        return campaign
    rewarmed: set[str] = set()
    while not campaign.interrupted:
        todo = [c for c in campaign.cells.values() if c.cell not in campaign.ended_by]
        if not todo:
            break
        for cell in todo:
            _next_round(runner, cell, rewarmed, on_discard)
            if campaign.interrupted:
                break
    for name in campaign.cells:
        campaign.ended_by.setdefault(name, "interrupt")
    return campaign


def _next_round(runner: _Runner, cell: Cell, rewarmed: set[str], on_discard: OnDiscard) -> None:
    """Measure a cell once more, warm it up again where that was its first, or end it."""
    campaign, options = runner.campaign, runner.options
    runner.one_round(cell, "measured")
    if campaign.interrupted:
        return
    if options.rounds > 2 and cell.cell not in rewarmed and still_cold(campaign.rounds[cell.cell]):
        rewarmed.add(cell.cell)
        _discard(campaign, cell, on_discard)
        runner.one_round(cell, "warmup")
        return
    if wants_half(cell, options, stream=runner.session.ask.stream):
        runner.one_round(half_cell(cell), "measured")
    most = max(options.rounds, options.rounds_max or options.rounds)
    ended = _ended_by(campaign.rounds[cell.cell], options.rounds, most, options.target)
    if ended and not campaign.interrupted:
        campaign.ended_by[cell.cell] = ended


def wants_half(cell: Cell, options: BurstOptions, *, stream: bool) -> bool:
    """Whether a second prompt length beside this cell gives a prefill rate.

    One request at a time, streamed, with prompts of our own making and long enough.
    """
    made = not options.same_prompt and not options.file_prompts
    return cell.concurrency == 1 and stream and made and cell.context_tok >= MIN_UNCACHED_TOK


def half_cell(cell: Cell) -> Cell:
    """Return the companion whose prompts are half as long; it is not listed by itself."""
    return msgspec.structs.replace(
        cell, cell=f"{cell.cell}.{HALF}", context_tok=cell.context_tok // 2, context_label=HALF
    )


def _warm_up(runner: _Runner) -> None:
    """One discarded wave a level, the largest first: it also shows how ragged a start is."""
    campaign, options = runner.campaign, runner.options
    largest = max(campaign.cells.values(), key=lambda cell: cell.concurrency)
    pace = StartPace(runner.session.step_ns / 1e9, None)
    for cell in sorted(campaign.cells.values(), key=lambda c: -c.concurrency):
        for _ in range(options.warmup):
            wave = runner.one_round(cell, "warmup")
            if campaign.interrupted:
                return
            if cell is largest:
                pace = start_pace(wave) or pace
    campaign.output_tok = runner.choose_output_tok(largest.concurrency, pace)


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


def still_cold(rounds: Sequence[Round]) -> bool:
    """Whether exactly two rounds are there and the second was faster by more than a warm engine is.

    Warming up only ever makes an engine faster; a second round that is slower has other reasons,
    which more rounds will show and a warm-up would hide.
    """
    if len(rounds) != 2:
        return False
    first, second = (batch_tok_per_s(each) for each in rounds)
    return bool(first and second and math.log(second / first) > DISAGREE)


def _discard(campaign: Campaign, cell: Cell, on_discard: OnDiscard) -> None:
    for name in (cell.cell, half_cell(cell).cell):
        for old in campaign.rounds.get(name, ()):
            on_discard(old.round_id, "the first two rounds disagreed: the engine was not yet warm")
        campaign.rounds[name] = []


def _ended_by(rounds: Sequence[Round], least: int, most: int, target: float) -> EndedBy | None:
    """Say whether the cell is done: narrow enough after the least, or at the most rounds."""
    if len(rounds) < least:
        return None
    rates = [rate for rate in (headline_tok_per_s(r) for r in rounds) if rate]
    width = relative_half_width(mean_estimate(rates))
    if width is not None and width <= target:
        return "interval"
    return "rounds_max" if len(rounds) >= most else None


@dataclass(slots=True)
class _Runner:
    """Runs single rounds: prompts, bytes, load, digest, store."""

    session: Session
    options: BurstOptions
    campaign: Campaign
    on_round: OnRound
    count: int = 0

    def choose_output_tok(self, largest: int, pace: StartPace) -> int:
        """Return the answers' length; the same for all levels, so that they can be compared."""
        options, limit = self.options, self.session.facts.max_context_tok
        if options.output_tok is not None:
            return options.output_tok
        return auto_output_tokens(
            largest,
            pace.step_s or FALLBACK_STEP_S,
            first_spread_s=pace.first_spread_s,
            prompt_tok=options.prompt_tok,
            context_tok=limit,
        )

    def one_round(self, cell: Cell, phase: RoundPhase) -> Round:
        """Run one round or one warm-up wave and hand it on."""
        options, session = self.options, self.session
        output_tok = self.campaign.output_tok or options.output_tok or 0
        if phase == "warmup":
            output_tok = min(WARMUP_OUTPUT_TOK, output_tok or WARMUP_OUTPUT_TOK)
        elif cell.context_label == HALF:  # only its time to the first token counts
            output_tok = min(HALF_OUTPUT_TOK, output_tok)
        done = self.campaign.rounds.setdefault(cell.cell, [])
        seed = derive(options.seed, self.count)
        prompts = self._prompts(cell, seed)
        round_id = f"{self.count:05d}-{cell.cell}"
        lengths = [output_tok] * len(prompts)
        outgoing = render_all(session.ask, prompts, lengths, f"concbench-{self.count}")
        timeout_ns = None if options.timeout_s is None else int(options.timeout_s * 1e9)
        raw = session.load(outgoing, timeout_ns)
        parsed = digest(
            raw,
            round_id=round_id,
            cell=cell,
            index=len(done),
            phase=phase,
            workload=self._workload(cell, output_tok, seed, prompts),
            prompts=[(p.sha256, p.tok) for p in prompts],
            keep_text=options.keep_text,
        )
        self.count += 1
        if raw.interrupted:
            self.campaign.interrupted = True
        if phase == "measured":
            done.append(parsed)
        self.on_round(parsed)
        return parsed

    def check_context(self) -> None:
        """Raise PromptTooLong before anything is sent that cannot fit."""
        options, limit = self.options, self.session.facts.max_context_tok
        need = options.prompt_tok + (options.output_tok or 1)
        if limit is not None and need > limit:
            raise PromptTooLong(
                f"{options.prompt_tok} prompt + {options.output_tok or 1} output tokens exceed the "
                f"context of {limit} tokens a request: shorten one, or start the server with more "
                "context (or fewer slots)"
            )

    def _prompts(self, cell: Cell, seed: int) -> list[Prompt]:
        options, n = self.options, cell.concurrency
        if options.file_prompts:
            first = self.session.next_prompt
            self.session.next_prompt += n
            pool = options.file_prompts
            return [pool[(first + k) % len(pool)] for k in range(n)]
        run_seed = options.seed if options.same_prompt else seed
        return self.session.prompts(
            n, cell.context_tok, options.content, run_seed, same=options.same_prompt
        )

    def _workload(
        self, cell: Cell, output_tok: int, seed: int, prompts: Sequence[Prompt]
    ) -> Workload:
        ask = self.session.ask
        return Workload(
            prompt_tokens=cell.context_tok,
            output_tokens=output_tok,
            seed=seed,
            arrival="burst",
            distinct_prompts=len({p.sha256 for p in prompts}) == len(prompts),
            content="file" if self.options.file_prompts else self.options.content,
            endpoint=ask.endpoint,
            stream=ask.stream,
            temperature=ask.temperature,
            ignore_eos=bool(ask.engine_fields.get("ignore_eos", False)),
            extra_body=msgspec.json.decode(msgspec.json.encode(ask.extra_body)),
            prompts_sha256=prompts_sha256(prompts),
        )

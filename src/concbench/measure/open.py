"""The open-loop campaign: requests leave when they are due, whatever the server does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from concbench.domain import Cell, Workload
from concbench.errors import PromptTooLong, UsageError
from concbench.load.generator import Progress, RawRound
from concbench.load.script import Arrivals, Outgoing
from concbench.measure.burst import FALLBACK_STEP_S
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
from concbench.measure.observed import live
from concbench.measure.session import Session
from concbench.measure.signs import Signs
from concbench.measure.watch import SHOW_EVERY_NS, OnLook, Snapshot
from concbench.plan.prompts import Prompt
from concbench.plan.schedule import constant, poisson
from concbench.plan.trace_file import TraceRow

OUTPUT_TOK = 128
"""Length of an answer where none is asked for."""

SPARE = 2.0
LEAST_WORKERS, MOST_WORKERS = 4, 512
"""So many connections are opened beforehand; others are when they are needed."""

MOST_WARMUP = 32

ArrivalKind = Literal["constant", "poisson", "trace"]


@dataclass(frozen=True, slots=True)
class RateOptions(Asks):
    """What an open loop is to do. `rps` counts unless there is a `trace`.

    `output_tok` None means 128, or what the trace says. After the last arrival a round waits at
    most `drain_s` for answers.
    """

    arrival: ArrivalKind
    rps: float
    duration_s: float
    prompt_tok: int
    output_tok: int | None
    content: str
    seed: int
    trace: Sequence[TraceRow] = ()
    rounds: int = 4
    warmup: int = 1
    drain_s: float = 30.0
    timeout_s: float | None = None
    inactivity_s: float | None = None
    same_prompt: bool = False
    file_prompts: Sequence[Prompt] = ()
    keep_text: bool = False
    reset_cache: bool = False

    @property
    def asked_rps(self) -> float:
        """Requests a second; a trace's mean."""
        if self.arrival != "trace":
            return self.rps
        span_ns = self.trace[-1].due_ns
        return len(self.trace) / span_ns * 1e9 if span_ns else float(len(self.trace))


def cell_of(session: Session, options: RateOptions) -> Cell:
    """Return the cell of a rate. Its concurrency is 0: nothing bounds what is in flight."""
    label = context_label(options.prompt_tok)
    rps = float(f"{options.asked_rps:.6g}")
    name = f"{rps:g}".replace("+", "")
    return Cell(
        cell=f"{session.lane}.{label}.{options.arrival}{name}",
        lane=session.lane,
        concurrency=0,
        context_tok=options.prompt_tok,
        context_label=label,
        rate_rps=rps,
    )


def rate(
    session: Session,
    options: RateOptions,
    on_round: OnRound,
    on_look: OnLook = lambda _: None,
    on_say: OnSay = lambda _: None,
    *,
    done: int = 0,
) -> Campaign:
    """Run the rounds; `on_round` is given each and must store it, `on_look` is called twice a s.

    `done` is how many rounds the study holds already: numbers and seeds go on from there.

    A signal ends the campaign early: what was measured is in the result, marked. Raises
    PromptTooLong and UsageError before anything is measured.
    """
    campaign = Campaign(output_tok=options.output_tok or OUTPUT_TOK)
    recorder = Recorder(session, options.asking, campaign, on_round, done, on_look=on_look)
    _check(recorder, options)
    cell = campaign.add(cell_of(session, options))
    with until_signal(recorder):
        for _ in range(options.warmup):
            n = min(MOST_WARMUP, expected_in_flight(session, options))
            recorder.burst(cell, "warmup", min(WARMUP_OUTPUT_TOK, campaign.output_tok), n=n)
            if campaign.interrupted:
                raise KeyboardInterrupt
        for number in range(options.rounds):
            on_say(f"round {number + 1} of {options.rounds}: preparing requests")
            _round(recorder, cell, options, on_look)
            if campaign.interrupted or campaign.rounds[cell.cell][-1].outcome in (
                "crashed",
                "hung",
            ):
                break
    whole = len(campaign.rounds[cell.cell]) == options.rounds and not campaign.interrupted
    cut = bool(campaign.rounds[cell.cell]) and campaign.rounds[cell.cell][-1].outcome == "hung"
    campaign.ended_by[cell.cell] = "timeout" if cut else "rounds_max" if whole else "interrupt"
    return campaign


def expected_in_flight(session: Session, options: RateOptions) -> int:
    """Return about how many requests are in flight at once, by Little's law and the pace alone."""
    step_s = session.step_ns / 1e9 or FALLBACK_STEP_S
    e2e_s = session.prefill_ns / 1e9 + (options.output_tok or OUTPUT_TOK) * step_s
    return max(1, math.ceil(options.asked_rps * e2e_s))


def due_times(options: RateOptions, seed: int) -> list[int]:
    """Return when a round's requests are due, ns from its start. A Poisson process is seeded anew.

    Raises UsageError for a rate and duration in which nothing arrives.
    """
    if options.arrival == "trace":
        return [row.due_ns for row in options.trace]
    if options.arrival == "poisson":
        dues = poisson(options.rps, seed, duration_s=options.duration_s)
    else:
        dues = constant(options.rps, duration_s=options.duration_s)
    if not dues:
        raise UsageError(
            f"--rps {options.rps:g} for {options.duration_s:g} s makes no request: take more time"
        )
    return dues


def _check(recorder: Recorder, options: RateOptions) -> None:
    """Raise before anything is sent that cannot fit, or cannot be done."""
    if options.reset_cache:
        check_reset(recorder.session)
    recorder.check_context(recorder.campaign.output_tok)
    limit = recorder.session.facts.max_context_tok
    for number, row in enumerate(options.trace, start=1):
        prompt_tok, output_tok = _lengths(row, options)
        if limit is not None and prompt_tok + output_tok > limit:
            raise PromptTooLong(
                f"request {number} of the trace: {prompt_tok} prompt + {output_tok} output tokens "
                f"exceed the context of {limit} tokens a request"
            )


def _lengths(row: TraceRow, options: RateOptions) -> tuple[int, int]:
    """Return a trace's lengths; --output-tokens, where given, counts before the trace's."""
    output_tok = options.output_tok or row.output_tok or OUTPUT_TOK
    return row.prompt_tok or options.prompt_tok, output_tok


def _all_lengths(recorder: Recorder, options: RateOptions, n: int) -> list[tuple[int, int]]:
    """Return prompt and output tokens of each of a round's requests, in the order of the dues."""
    if options.trace:
        return [_lengths(row, options) for row in options.trace]
    return [(options.prompt_tok, recorder.campaign.output_tok)] * n


def _round(recorder: Recorder, cell: Cell, options: RateOptions, on_look: OnLook) -> None:
    """Run one schedule: one round."""
    session, campaign = recorder.session, recorder.campaign
    seed = recorder.next_seed()
    dues = due_times(options, seed)
    prompts, outgoing = _requests(recorder, options, seed, len(dues))
    arrivals = Arrivals(outgoing, dues)
    n = math.ceil(SPARE * expected_in_flight(session, options))
    pool = min(len(dues), max(LEAST_WORKERS, min(MOST_WORKERS, n)))
    end_ns = arrivals.last_due_ns + int(options.drain_s * 1e9)
    workload = recorder.workload(options.arrival, campaign.output_tok, seed, prompts)

    def sent(raw: RawRound) -> tuple[Workload, Sequence[Prompt]]:
        del raw
        return workload, prompts

    plan = replace(
        recorder.plan([arrivals.worker() for _ in range(pool)]),
        arrivals=arrivals,
        on_tick=_shown(session, cell.cell, end_ns, on_look),
        stop_when=lambda progress: progress.elapsed_ns >= end_ns,
    )
    lengths = _all_lengths(recorder, options, len(dues))
    guard = recorder.guard(
        expected_in_flight(session, options),
        max(prompt_tok for prompt_tok, _ in lengths),
        [output_tok for _, output_tok in lengths],
    )
    recorder.record(cell, "measured", plan, sent, guard=guard)


def _requests(
    recorder: Recorder, options: RateOptions, seed: int, n: int
) -> tuple[list[Prompt], list[Outgoing]]:
    """Make a round's prompts and requests in the order in which they are due."""
    ask, tag = recorder.session.ask, recorder.tag()
    lengths = _all_lengths(recorder, options, n)
    places: dict[int, list[int]] = {}
    for place, (prompt_tok, _) in enumerate(lengths):
        places.setdefault(prompt_tok, []).append(place)
    made: dict[int, Prompt] = {}
    for prompt_tok, where in places.items():
        made.update(zip(where, recorder.prompts(len(where), seed, prompt_tok), strict=True))
    prompts = [made[place] for place in range(n)]
    outgoing = [
        ask.render(prompt.messages or prompt.text, output_tok, number, tag)
        for number, (prompt, (_, output_tok)) in enumerate(zip(prompts, lengths, strict=True))
    ]
    return prompts, outgoing


def _shown(session: Session, cell: str, end_ns: int, on_look: OnLook) -> Callable[[Progress], None]:
    """Return what tells the display, twice a second."""
    shown_ns, signs = 0, Signs(None)

    def on_tick(progress: Progress) -> None:
        nonlocal shown_ns
        signs.tick(progress.elapsed_ns)
        if progress.elapsed_ns - shown_ns < SHOW_EVERY_NS:
            return
        shown_ns = progress.elapsed_ns
        view = live(session)
        on_look(
            Snapshot(
                elapsed_s=progress.elapsed_ns / 1e9,
                left_s=max(0.0, (end_ns - progress.elapsed_ns) / 1e9),
                in_flight=progress.in_flight,
                ended=progress.ended,
                running=None if view is None else view.running,
                waiting=None if view is None else view.waiting,
                client_tok_per_s=None,
                server_tok_per_s=None if view is None else view.generated_tok_per_s,
                half_width=None,
                steady=True,
                cell=cell,
                signs=signs.look(progress, view),
            )
        )

    return on_tick

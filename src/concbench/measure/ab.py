"""A controlled comparison: A B B A …, every run measured alike, until each level has a verdict.

A run is one start of a lane (or one turn at a lane that stays up): warm-up waves, then `rounds`
bursts of every cell. What comes next is decided by `concbench.analyse.driver`; what the runs come
to is asked of `AbHooks.look`, which judges what is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

import msgspec

from concbench.analyse.driver import Progress, headline_rows, hopeless, next_block, settled
from concbench.clock import now_ns
from concbench.domain import Cell, Round
from concbench.errors import PromptTooLong, TargetError
from concbench.measure.ab_parts import (
    AbEnd,
    AbHooks,
    AbOptions,
    AbOutcome,
    LaneDied,
    Side,
    lost,
)
from concbench.measure.burst import FALLBACK_STEP_S, StartPace, start_pace
from concbench.measure.campaign import (
    WARMUP_OUTPUT_TOK,
    Asking,
    Campaign,
    Recorder,
    check_reset,
    context_label,
)
from concbench.measure.interrupts import Insisted
from concbench.measure.session import Session
from concbench.plan.matrix import file_name
from concbench.plan.order import Letter, Run, cell_order, pair_seed
from concbench.plan.output import auto_output_tokens
from concbench.plan.splitmix import derive
from concbench.result import VerdictResult

MOST_CRASHES = 3
"""So many crashes end a comparison: a lane that keeps falling over has no speed."""

_SAME_SERVER_TAG = 0xAB


class _Stopped(KeyboardInterrupt):
    """A signal came while a round was being measured; that round is stored."""


def compare_lanes(a: Side, b: Side, options: AbOptions, hooks: AbHooks) -> AbOutcome:
    """Measure both sides in turns until every level has a verdict, or the last look is over.

    A signal ends it early and is told in the outcome, unless nothing was stored yet. Raises what
    reaching a side for the first time raises, PromptTooLong before anything is measured.
    """
    hooks.on_note(
        "ab",
        {
            "a": a.name,
            "b": b.name,
            "looks": list(options.looks),
            "levels": list(options.levels),
            "contexts": list(options.contexts),
            "contents": list(options.contents),
        },
    )
    duel = _Duel({"A": a, "B": b}, options, hooks)
    try:
        ended_by = duel.fight()
    except Insisted:
        raise
    except KeyboardInterrupt:
        if not duel.count:
            raise
        ended_by = "interrupt"
    finally:
        duel.close()
    hooks.on_note("ab_end", {"ended_by": ended_by})
    return AbOutcome(
        ended_by, duel.pairs, duel.crashes, duel.cell_ends(ended_by), ended_by == "interrupt"
    )


@dataclass(slots=True)
class _RunRecorder(Recorder):
    """Numbers its seeds within the run, so that both runs of a pair ask the same."""

    asked: int = 0

    def next_seed(self) -> int:
        """Return the workload seed of the next round of this run."""
        self.asked += 1
        return derive(self.asking.seed, self.asked)


@dataclass(slots=True)
class _Duel:
    """A comparison while it runs."""

    sides: Mapping[Letter, Side]
    options: AbOptions
    hooks: AbHooks
    campaign: Campaign = field(default_factory=Campaign)
    held: dict[Letter, tuple[ExitStack, Session]] = field(default_factory=dict)
    reached: set[Letter] = field(default_factory=set)
    verdicts: Sequence[VerdictResult] = ()
    output_tok: int = 0
    count: int = 0
    pairs: int = 0
    controls: int = 0
    crashes: int = 0

    def fight(self) -> AbEnd:
        """Measure block after block; return why it ended."""
        began_ns = now_ns()
        options = self.options
        self.output_tok = options.output_tok or self.pilot()
        state = Progress(looks=options.looks, until=options.until)
        while (block := next_block(state)) is not None:
            for number, run in enumerate(block):
                late = options.max_s is not None and now_ns() - began_ns > options.max_s * 1e9
                if late and number % 2 == 0 and self.pairs:
                    return "max_s"
                if not self.measured(run):
                    return "crashes"
                if run.pair is not None and number % 2:
                    self.pairs = run.pair + 1
                # The last pair of a block is told with the control that follows it.
                if (number % 2 and number < len(block) - 2) or run.pair is None:
                    self.verdicts = self.hooks.look()
                    self.hooks.on_pair(self.pairs, self.verdicts)
                if self.pairs == 1 and number == 1 and hopeless(self.verdicts):
                    return "not_comparable"
            state = msgspec.structs.replace(state, pairs=self.pairs, verdicts=self.verdicts)
        rows = headline_rows(self.verdicts)
        return "verdict" if all(settled(row, options.until) for row in rows) else "pairs"

    def measured(self, run: Run) -> bool:
        """Measure a run, again after a crash; return whether it came to its end."""
        side = self.sides[run.letter]
        place = self.options.looks[-1] + self.controls if run.pair is None else run.pair
        self.controls += run.pair is None
        while True:
            done: list[Round] = []
            try:
                with self.session(side) as session:
                    self.run(session, side, place, done)
            except TargetError as error:
                if run.letter not in self.reached:
                    raise
                if not self.crashed(side, done, error):
                    return False
                continue
            ids = [each.round_id for each in done]
            self.hooks.on_note("ab_run", {"letter": run.letter, "pair": run.pair, "rounds": ids})
            return True

    def crashed(self, side: Side, done: Sequence[Round], error: TargetError) -> bool:
        """Put a crash on record and take the run's rounds out; return whether to try again."""
        self.crashes += 1
        why = " ".join(str(error).split())
        self.drop(side.letter)
        for each in done:
            self.hooks.on_discard(each.round_id, f"its run was not completed: {why}")
            kept = self.campaign.rounds[each.cell.cell]
            kept[:] = [one for one in kept if one.round_id != each.round_id]
        cell = done[-1].cell.cell if done else self.cells(side)[0].cell
        self.hooks.on_failed(cell, why)
        again = self.crashes < MOST_CRASHES
        self.hooks.say(
            f"{side.name} crashed ({self.crashes} of {MOST_CRASHES}): {why}; "
            + ("the run is measured again" if again else "the comparison ends here")
        )
        return again

    def run(self, session: Session, side: Side, place: int, done: list[Round]) -> None:
        """Warm up and measure every cell; `done` is filled as rounds are finished."""
        options = self.options
        cells = self.cells(side)
        seed = pair_seed(options.seed, place)
        if options.same_server and side.letter == "B":
            seed = derive(seed, _SAME_SERVER_TAG) >> 1
        recorder = self.recorder(session, seed)
        recorder.check_context(self.output_tok)
        if options.reset_cache:
            check_reset(session)
        a_run = sum(cell.concurrency for cell in cells) * (options.rounds + options.warmup)
        # Prompts from a file go round the file; both runs of a pair begin at the same place.
        session.next_prompt = place * a_run
        self.warm_up(recorder, cells)
        for _, cell in cell_order(cells, options.rounds, seed, group=lambda one: one.context_tok):
            finished = self.burst(recorder, cell, "measured", self.output_tok, done)
            if (why := lost(finished)) is not None:
                raise LaneDied(why)

    def burst(
        self,
        recorder: Recorder,
        cell: Cell,
        phase: Literal["warmup", "measured"],
        output_tok: int,
        done: list[Round] | None = None,
    ) -> Round:
        """Measure one round. Raises KeyboardInterrupt where a signal came during it."""
        if self.options.contents:
            recorder.asking = replace(recorder.asking, content=cell.context_label)
        finished = recorder.burst(cell, phase, output_tok, prompt_tok=cell.context_tok)
        self.count = recorder.count
        if done is not None:
            done.append(finished)
        if self.campaign.interrupted:
            raise _Stopped
        return finished

    def warm_up(self, recorder: Recorder, cells: Sequence[Cell]) -> StartPace | None:
        """Send the discarded waves, the largest cell first; return the pace that one showed."""
        wave_tok = min(WARMUP_OUTPUT_TOK, self.output_tok or WARMUP_OUTPUT_TOK)
        largest = sorted(cells, key=lambda cell: (-cell.context_tok, -cell.concurrency))
        pace: StartPace | None = None
        for cell in largest:
            for _ in range(self.options.warmup):
                wave = self.burst(recorder, cell, "warmup", wave_tok)
                if (why := lost(wave)) is not None:
                    raise LaneDied(why)
                if cell is largest[0]:
                    pace = start_pace(wave) or pace
        return pace

    def pilot(self) -> int:
        """Return the output length that leaves both sides their window: each is warmed up once."""
        options, context = self.options, max(self.options.contexts)
        wanted: list[int] = []
        room: list[int] = []
        for side in self.sides.values():
            with self.session(side) as session:
                recorder = self.recorder(session, pair_seed(options.seed, -1 - len(wanted)))
                recorder.check_context(None)
                pace = self.warm_up(recorder, self.cells(side))
                pace = pace or StartPace(session.step_ns / 1e9 or FALLBACK_STEP_S, None)
                limit = session.facts.max_context_tok
                wanted.append(
                    auto_output_tokens(
                        max(options.levels),
                        pace.step_s,
                        first_spread_s=pace.first_spread_s,
                        prompt_tok=context,
                        context_tok=limit,
                    )
                )
                room += [] if limit is None else [limit - context]
        tok = min([max(wanted), *room])
        if tok < 1:
            raise PromptTooLong(f"a prompt of {context} tokens leaves no room for an answer")
        return tok

    def recorder(self, session: Session, seed: int) -> _RunRecorder:
        """Return a recorder that goes on with the study's numbers."""
        options = self.options
        asking = Asking(
            prompt_tok=max(options.contexts),
            content=options.content,
            seed=seed,
            timeout_s=options.timeout_s,
            inactivity_s=options.inactivity_s,
            same_prompt=options.same_prompt,
            file_prompts=options.file_prompts,
            reset_cache=options.reset_cache,
        )
        hooks = self.hooks
        return _RunRecorder(
            session, asking, self.campaign, hooks.on_round, self.count, hooks.on_look
        )

    def cells(self, side: Side) -> list[Cell]:
        """Return a side's cells, each known to the campaign."""
        options, found = self.options, list[Cell]()
        for context, content, level in product(
            options.contexts, options.contents or (None,), options.levels
        ):
            label = context_label(context)
            place = label if content is None else f"{content}.{label}"
            name = f"{file_name(side.name)}.{place}.c{level}"
            cell = self.campaign.cells.get(name) or self.campaign.add(
                Cell(
                    cell=name,
                    lane=side.name,
                    concurrency=level,
                    context_tok=context,
                    context_label=label if content is None else content,
                )
            )
            found.append(cell)
        return found

    def cell_ends(self, ended_by: AbEnd) -> dict[str, str]:
        """Return why each cell got no more rounds."""
        names = {"verdict": "interval", "pairs": "rounds_max", "max_s": "max_s"}
        word = names.get(ended_by, "interrupt" if ended_by == "interrupt" else None)
        return {} if word is None else dict.fromkeys(self.campaign.cells, word)

    @contextmanager
    def session(self, side: Side) -> Iterator[Session]:
        """Yield the side's session: one of its own where it is fresh, else the one that is held."""
        if side.upkeep == "fresh":
            with self.opened(side) as session:
                yield session
            return
        if side.letter not in self.held:
            stack = ExitStack()
            self.held[side.letter] = (stack, stack.enter_context(self.opened(side)))
        yield self.held[side.letter][1]

    @contextmanager
    def opened(self, side: Side) -> Iterator[Session]:
        """Yield a new session under the side's name, its facts put on record before and after."""
        with side.reach() as session:
            session.lane = side.name
            session.facts = msgspec.structs.replace(session.facts, lane=side.name)
            self.hooks.on_lane(session)
            if side.letter not in self.reached:
                data = {"lane": side.name, "extra": dict(session.extra), "flags": dict(side.flags)}
                self.hooks.on_note("lane_facts", data)
                self.reached.add(side.letter)
            if side.upkeep != "attached":
                self.hooks.on_note("start", {"lane": side.name})
            yield session
        if session.facts.teardown is not None:
            self.hooks.on_lane(session)

    def drop(self, letter: Letter) -> None:
        """End a held session, if there is one: the next run reaches the lane anew."""
        if letter in self.held:
            stack, _ = self.held.pop(letter)
            stack.close()

    def close(self) -> None:
        """End what is held."""
        for letter in tuple(self.held):
            self.drop(letter)

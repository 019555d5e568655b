"""The workbench of a sweep: one step at a time, whatever becomes of it, written down."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from concbench.analyse.lanes import NOTE as FACTS_NOTE
from concbench.analyse.rates import headline_tok_per_s
from concbench.domain import Round, RoundPhase, TargetFacts
from concbench.errors import OutputUnusable, TargetError, UsageError
from concbench.measure.campaign import WARMUP_OUTPUT_TOK, companion
from concbench.measure.companions import HALF_OUTPUT_TOK
from concbench.measure.sweep_identity import differences
from concbench.measure.sweep_options import Stopped, SweepOptions, Watching
from concbench.measure.sweep_outcomes import Outcomes
from concbench.measure.sweep_rig import LaneDown, Rig
from concbench.measure.sweep_round import SweepRecorder, asking_of, hang_s
from concbench.measure.sweep_rounds import RoundRule
from concbench.measure.sweep_state import (
    BEGUN_NOTE,
    CELLS_NOTE,
    CRASHES,
    LANE_NOTE,
    MOST_CRASHES,
    PROMPTS_NOTE,
    STARTS_NOTE,
    Standing,
    cells_data,
)
from concbench.plan.matrix import MatrixCell, Variant, cells_of
from concbench.plan.splitmix import derive
from concbench.plan.steps import Step, steps_of
from concbench.store.write import StudyWriter

NEVER_MEASURED = ("context_rejected", "skipped")
"""Outcomes that are known before the first measured round: those cells have no place in the order.
A cell that crashes later keeps its place."""

WARM_WAVE_S = 30.0
"""A warm-up wave of N is left out where its prompts alone would take longer."""


@dataclass(slots=True)
class Bench:
    """Runs steps on rigs. `alone_s` is the TTFT of one request by (lane, context)."""

    options: SweepOptions
    state: Standing
    writer: StudyWriter
    on_round: Callable[[Round], None]
    watching: Watching
    start_error: TargetError | None = None
    _alone_s: dict[tuple[str, int], float] = field(default_factory=dict)
    _warm: set[tuple[str, int, int, int]] = field(default_factory=set)
    _recorders: dict[str, tuple[int, SweepRecorder]] = field(default_factory=dict)

    @property
    def outcomes(self) -> Outcomes:
        """Where outcomes are put on record."""
        return Outcomes(self.state, self.writer)

    # -- lanes

    def rig(self, variant: Variant) -> Rig:
        """Return the rig of a variant, not started yet."""
        return Rig(variant, self.options.rig, self.state.first_prompt)

    def open(self, rig: Rig, link: str | None) -> SweepRecorder:
        """Start the lane where it is not up; put on record what is known of it.

        Raises LaneDown, and OutputUnusable where another lane answers than at its first start.
        """
        known = self._recorders.get(rig.name)
        if rig.session is not None and known is not None and known[0] == rig.starts:
            return known[1]
        self.watching.say(f"starting {rig.name}")
        session = rig.open()
        recorder = SweepRecorder.of(rig, session, self.on_round, self.watching.look)
        self._recorders[rig.name] = (rig.starts, recorder)
        self._met(rig)
        if (rig.name, link) not in self.state.listed:
            self.state.listed.add((rig.name, link))
            cells = self.cells(rig.variant, link)
            facts = self.state.facts[rig.name]
            self.writer.note(CELLS_NOTE, cells_data(rig.variant, link, cells, facts))
        return recorder

    def _met(self, rig: Rig) -> None:
        """Record a start; refuse a lane that is not what its finished cells were measured with."""
        assert rig.session is not None
        assert rig.running is not None
        facts, now, name = rig.session.facts, rig.identity(), rig.name
        before = self.state.identity.get(name)
        changed = differences(f"lane {name}", before, now) if before is not None else []
        if changed:
            raise OutputUnusable(
                "the finished cells of this study were measured with something else: "
                f"{'; '.join(changed)}. Undo that, or measure anew with another --out"
            )
        if before is None:
            told = msgspec.to_builtins(facts)
            self.writer.note(LANE_NOTE, {"variant": name, "facts": told, "identity": now})
            self.state.facts[name], self.state.identity[name] = facts, now
        self.writer.targets({name: facts})
        self.writer.note("lane", {"lane": name, "template_tok": rig.session.template_tok})
        self.writer.note(FACTS_NOTE, {**rig.session.dossier, "lane": name})
        self.writer.note(STARTS_NOTE, {"lane": name})

    def close(self, rig: Rig) -> None:
        """Stop the lane and put its end on record."""
        facts = rig.close()
        if facts is not None and facts.teardown is not None:
            self.writer.targets({rig.name: facts})

    def lane_down(self, rig: Rig, link: str | None, down: LaneDown) -> None:
        """Write down that a lane does not start: the outcome of all its cells that are left."""
        self.start_error = self.start_error or down.error
        self.watching.say(f"{rig.name} does not start: {down}")
        cells = self.cells(rig.variant, link)
        if rig.name not in self.state.facts and self.options.plan.sweep.concurrency == "auto":
            # Its pool is not known, so neither is its ladder: one cell a context stands for it.
            cells = [each for each in cells if each.cell.concurrency == 1]
        lacking = [each for each in cells if self._has_rounds_left(each, self.options.rounds)]
        for each in lacking:
            self.outcomes.end(each, down.outcome, str(down), down.log, start=True)
        for each in [] if lacking else [each for each in cells if self._has_rounds_left(each)][:1]:
            # All have the rounds that they must have: those stand, and the failed start is told.
            name, how = each.cell.cell, down.outcome
            self.outcomes.failed(name, each.cell, how, str(down), down.log, final=False, start=True)
        self.state.down.add((rig.name, link))

    # -- cells

    def cells(self, variant: Variant, link: str | None) -> list[MatrixCell]:
        """Return the variant's cells, from the pool that it had at its first start."""
        facts = self.state.facts.get(variant.name)
        return cells_of(
            self.options.plan,
            variant,
            self.options.output_tok,
            pool_tok=None if facts is None else facts.kv_capacity_tok,
            max_context_tok=None if facts is None else facts.max_context_tok,
            cap=None if facts is None else facts.slots,
            link=link,
        )

    def has_work(self, variant: Variant, link: str | None) -> bool:
        """Whether a variant has anything left to measure over a link."""
        if (variant.name, link) in self.state.down:
            return False
        if variant.name not in self.state.facts:
            return True
        if self.options.ceiling and (variant.name, link) not in self.state.ceilings:
            return True
        return bool(self.steps(self.cells(variant, link), link))

    def steps(self, cells: Sequence[MatrixCell], link: str | None) -> list[Step]:
        """Return the steps that are still to be run, in an order that a restart does not change."""
        out = {name for name, (how, _) in self.state.ended.items() if how in NEVER_MEASURED}
        served = [each for each in cells if each.cell.cell not in out]
        seed = self.options.seed ^ zlib.crc32((link or "").encode())
        wanted = {c.cell.cell: self.rule.wanted(self.state, c.cell.cell) for c in served}
        return [
            step
            for step in map(self._numbered, steps_of(served, max(wanted.values(), default=0), seed))
            if self.is_open(step)
            and (step.kind == "control" or step.index < wanted[step.cell.cell.cell])
            and not (step.kind == "half" and not self._has_halves())
            and not (step.kind == "control" and (step.cell.cell.lane, link) in self.state.controls)
        ]

    def _numbered(self, step: Step) -> Step:
        """Return a control with the number of its next round: each addition to a study has one."""
        if step.kind != "control":
            return step
        known = sum(name == step.cell_id for name, _ in self.state.done)
        return msgspec.structs.replace(step, index=known)

    def _has_halves(self) -> bool:
        """Whether half a prompt tells anything: streamed, and distinct prompts made here."""
        asked = self.options.plan.workload
        return asked.stream and not asked.same_prompt and not self.options.prompts

    def is_open(self, step: Step) -> bool:
        """Whether a step is still to be run."""
        ended, cell = self.state.ended, step.cell.cell
        if (cell.lane, cell.link) in self.state.down:
            return False
        if step.cell.cell.cell in ended or step.cell_id in ended:
            return False
        return (step.cell_id, step.index) not in self.state.done

    def _has_rounds_left(self, cell: MatrixCell, wanted: int | None = None) -> bool:
        wanted = wanted or self.rule.wanted(self.state, cell.cell.cell)
        return any(self.is_open(Step(cell=cell, index=index)) for index in range(wanted))

    @property
    def rule(self) -> RoundRule:
        """How many rounds each cell gets."""
        least = self.options.rounds
        return RoundRule(least, max(least, self.options.rounds_max or least))

    # -- steps

    def check_contexts(self, rig: Rig, cells: Sequence[MatrixCell]) -> None:
        """Send one request at each context, the shortest first: it warms, and tells a rejection."""
        first: dict[int, MatrixCell] = {}
        for each in cells:
            if self._has_rounds_left(each):
                first.setdefault(each.cell.context_tok, each)
        for context, each in sorted(first.items()):
            step = Step(cell=each, index=-1, kind="round")
            while each.cell.cell not in self.state.ended and (rig.name, context) not in (
                self._alone_s
            ):
                self.watching.say(f"{rig.name}: one request of {context:,} tokens first")
                if not self._attempt(rig, step, cells, "warmup", 1):
                    return

    def run_step(self, rig: Rig, step: Step) -> None:
        """Run a step until it is measured or its cell has ended."""
        cells = self.cells(step.cell.variant, step.cell.cell.link)
        while self.is_open(step):
            n = 1 if step.kind == "half" else step.cell.cell.concurrency
            if self._needs_wave(rig, step, n):
                self.watching.say(f"{step.cell.cell.cell}: warm-up of {n}")
                if not self._attempt(rig, step, cells, "warmup", n):
                    return
                if rig.session is None or not self.is_open(step):
                    continue  # the wave ended the engine or the cell
            if not self._attempt(rig, step, cells, "measured", n):
                return

    def _needs_wave(self, rig: Rig, step: Step, n: int) -> bool:
        """Whether a discarded wave of N comes first: once a start of the lane, where affordable."""
        context = step.cell.cell.context_tok
        if not self.options.warmup or step.kind == "half":
            return False
        if (rig.name, rig.starts, context, n) in self._warm and rig.session is not None:
            return False
        return n == 1 or n * self._alone_s.get((rig.name, context), 0.0) <= WARM_WAVE_S

    def _attempt(
        self, rig: Rig, step: Step, cells: Sequence[MatrixCell], phase: RoundPhase, n: int
    ) -> bool:
        """Run one round and settle what came of it; False where the lane cannot be had any more."""
        try:
            recorder = self.open(rig, step.cell.cell.link)
        except LaneDown as down:
            self.lane_down(rig, step.cell.cell.link, down)
            return False
        try:
            done = self._round(recorder, step, phase, n)
        except UsageError as error:
            if isinstance(error, OutputUnusable):
                raise
            self.outcomes.end(step.cell, "skipped", str(error), [])
            return True
        if recorder.campaign.interrupted:
            raise Stopped
        self._settle(rig, step, cells, done)
        return True

    def probe(self, rig: Rig, cell: MatrixCell, link: str | None) -> Round | None:
        """Send one request of a cell that is none of the matrix; None where it could not be sent.

        An engine that dies of it is started again by whoever needs it next.
        """
        if (rig.name, link) in self.state.down:
            return None
        try:
            recorder = self.open(rig, link)
            done = self._round(recorder, Step(cell=cell, index=-1), "warmup", 1, cell.output_tok)
        except LaneDown as down:
            self.lane_down(rig, link, down)
            return None
        except UsageError as error:
            if isinstance(error, OutputUnusable):
                raise
            return None
        if recorder.campaign.interrupted:
            raise Stopped
        if done.outcome in CRASHES:
            why = done.outcome_detail or done.outcome
            self.outcomes.failed(
                cell.cell.cell, cell.cell, done.outcome, why, rig.last_lines(), final=False
            )
            self.close(rig)
        return done

    def _round(
        self,
        recorder: SweepRecorder,
        step: Step,
        phase: RoundPhase,
        n: int,
        output_tok: int | None = None,
    ) -> Round:
        """Run a round of `n` requests with prompts that no other round has."""
        cell, session = step.cell.cell, recorder.session
        if step.kind != "round":
            cell = companion(cell, step.kind, step.prompt_tok)
            cell = msgspec.structs.replace(cell, concurrency=n)
        key = (step.cell_id, step.index)
        attempt = self.state.begun[key]
        if phase == "measured":
            self.state.begun[key] += 1
        # Lanes share a point's prompts, so that they do the same work; a repeated round does not.
        what = f"{cell.link}|{cell.context_tok}|{cell.concurrency}|{step.kind}|{phase}"
        recorder.seed = derive(
            self.options.seed, zlib.crc32(what.encode()), step.index + 1, attempt
        )
        asked = self.options
        recorder.asking = asking_of(asked.plan, step.prompt_tok, recorder.seed, asked.prompts)
        if asked.prompts:
            session.next_prompt = self._block(f"{what}|{step.index}|{attempt}", n)
        if phase == "measured":
            self.writer.note(BEGUN_NOTE, {"cell": key[0], "index": key[1], "attempt": attempt})
        alone_s = self._alone_s.get((session.lane, step.cell.cell.context_tok))
        limit_s = self.options.hang_s or hang_s(session, step.prompt_tok, n, alone_s)
        recorder.watch(limit_s)
        recorder.count = self.state.next_round
        if output_tok is None:
            limits = {"warmup": WARMUP_OUTPUT_TOK, "half": HALF_OUTPUT_TOK}
            limit = limits.get(phase) or limits.get(step.kind) or step.cell.output_tok
            output_tok = min(step.cell.output_tok, limit)
        done = recorder.burst(cell, phase, output_tok, n=n, index=max(0, step.index))
        self.state.next_round = recorder.count
        return done

    def _block(self, point: str, n: int) -> int:
        """Return the first of a round's prompts of a file. A block that is handed out, also to a
        warm-up, is put on record: after a restart nobody gets it again."""
        known = point in self.state.file_blocks
        first = self.state.block(point, n)
        if not known:
            self.writer.note(PROMPTS_NOTE, {"point": point, "first": first, "n": n})
        return first

    def _settle(self, rig: Rig, step: Step, cells: Sequence[MatrixCell], done: Round) -> None:
        """Write down what became of a round."""
        cell = step.cell.cell
        if done.outcome == "measured":
            self._keep(rig, step, done)
        elif done.outcome == "context_rejected":
            why = done.outcome_detail or "the server refused it as too long"
            if self._accepts(step.cell, cells):
                self.outcomes.refused(step, why)
            else:
                self.outcomes.too_long(step, filter(self._has_rounds_left, cells), why)
        elif done.outcome in CRASHES:
            self.state.crashes[step.cell_id] += 1
            times = self.state.crashes[step.cell_id]
            why = done.outcome_detail or done.outcome
            final = times >= MOST_CRASHES
            told = f"{why} (crash {times} of {MOST_CRASHES} in this cell)"
            self.outcomes.failed(
                step.cell_id, cell, done.outcome, told, rig.last_lines(), final=final
            )
            self.watching.say(f"{cell.cell}: {done.outcome}: {why}")
            self.close(rig)

    def _keep(self, rig: Rig, step: Step, done: Round) -> None:
        context = step.cell.cell.context_tok
        self._warm.add((rig.name, rig.starts, context, len(done.requests)))
        if done.phase == "measured":
            rate = None
            if step.kind == "round":
                rate = headline_tok_per_s(done, self.state.facts.get(rig.name))
            self.state.keep(step.cell_id, step.index, (done.end_ns - done.start_ns) / 1e9, rate)
            self.state.seen(step.cell.cell, is_control=step.kind == "control")
        if len(done.requests) == 1 and step.kind == "round":
            record = done.requests[0]
            first_ns = record.first_token_ns or record.end_ns
            if first_ns is not None and record.sent_ns is not None:
                self._alone_s[rig.name, context] = (first_ns - record.sent_ns) / 1e9
            else:
                self._alone_s.setdefault((rig.name, context), 0.0)

    def _accepts(self, cell: MatrixCell, cells: Sequence[MatrixCell]) -> bool:
        """Whether a request of this cell's length has been answered by its lane."""
        context = cell.cell.context_tok
        return (cell.cell.lane, context) in self._alone_s or any(
            each.cell.cell in self.state.took_s
            for each in cells
            if each.cell.context_tok == context and each.cell.lane == cell.cell.lane
        )

    def facts(self, variant: Variant) -> TargetFacts | None:
        """Return what was known of a variant at its first start."""
        return self.state.facts.get(variant.name)

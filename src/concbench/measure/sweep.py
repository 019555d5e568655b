"""The sweep: lanes, links, contexts and concurrencies, resumable, and on after a crash.

Everything that can happen to a cell is an outcome that is written down: the engine died, ran out of
memory, fell silent or refused the context. The lane is started again and the sweep goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from concbench.domain import Round
from concbench.errors import TargetError
from concbench.measure.interrupts import Insisted
from concbench.measure.sweep_ceiling import measure_ceiling
from concbench.measure.sweep_cells import Bench
from concbench.measure.sweep_options import LinkSwitch, Stopped, SweepOptions, Watching
from concbench.measure.sweep_rig import LaneDown, Rig, free_bytes
from concbench.measure.sweep_state import Standing
from concbench.plan.matrix import MatrixCell, Variant, variants
from concbench.plan.steps import Step
from concbench.store.write import StudyWriter

MEMORY_FACTOR = 1.5
"""Another lane is started beside those that are up while so many times their memory is free."""


class LinkDown(Exception):
    """A link's own command failed."""

    def __init__(self, error: TargetError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class SweepEnd:
    """How a sweep ended. `error` is that of the first lane that did not start, `link_error` that of
    a link that could not be taken or left: nothing more was measured then."""

    interrupted: bool = False
    error: TargetError | None = None
    link_error: TargetError | None = None
    ended_by: dict[str, str] = field(default_factory=dict)


def sweep(
    options: SweepOptions,
    state: Standing,
    writer: StudyWriter,
    links: LinkSwitch,
    on_round: Callable[[Round], None],
    watching: Watching,
) -> SweepEnd:
    """Measure what is left; `on_round` is given each finished round and must store it.

    A signal ends it early: what was measured is in the study. A second signal is raised.
    Raises UsageError for what no waiting mends, such as an engine that is not installed.
    """
    bench = Bench(options, state, writer, on_round, watching)
    end = SweepEnd()
    for round_id in state.stale:
        writer.discard(round_id, "a signal cut it short: it is measured again")
    try:
        names: list[str | None] = [*options.plan.sweep.links]
        for link in names or [None]:
            _over_link(bench, link, links)
    except Insisted:
        raise
    except (KeyboardInterrupt, Stopped):
        end.interrupted = True
    except LinkDown as down:
        end.link_error = down.error
    finally:
        try:
            links.close()
        except TargetError as error:
            end.link_error = end.link_error or error
    end.error = bench.start_error
    end.ended_by = bench.rule.ended_by(state)
    return end


def _over_link(bench: Bench, link: str | None, links: LinkSwitch) -> None:
    """Measure all lanes over one link, which is only set up where something is left to measure."""
    todo = [each for each in variants(bench.options.plan) if bench.has_work(each, link)]
    if not todo:
        return
    try:
        links.use(link)
    except TargetError as error:
        raise LinkDown(error) from None
    if _can_share(bench, todo) and _side_by_side(bench, link, todo):
        return
    for variant in todo:
        rig = bench.rig(variant)
        try:
            bench.open(rig, link)
            _measure(bench, link, [rig])
        except LaneDown as down:
            bench.lane_down(rig, link, down)
        finally:
            bench.close(rig)


def _can_share(bench: Bench, todo: Sequence[Variant]) -> bool:
    """Whether it is worth trying to have all these lanes up at once.

    Variants of one lane share its port, and engines that share a GPU share its memory and time;
    lanes with a URL are up anyway.
    """
    options = bench.options
    if options.together == "no" or len(todo) < 2 or len({v.lane for v in todo}) < len(todo):
        return False
    attached = all(options.plan.lanes[v.lane].way == "url" for v in todo)
    return options.together == "yes" or attached or not options.has_gpu


def _side_by_side(bench: Bench, link: str | None, todo: Sequence[Variant]) -> bool:
    """Measure with all lanes up; False where they cannot be, and nothing was measured then."""
    rigs: list[Rig] = []
    try:
        for variant in todo:
            if rigs and not _room_for_more(bench, rigs):
                return False
            rig = bench.rig(variant)
            try:
                bench.open(rig, link)
                rigs.append(rig)
            except LaneDown as down:
                if bench.options.together == "auto" and rigs:
                    bench.watching.say(f"{rig.name} does not start beside the others: one by one")
                    return False
                bench.lane_down(rig, link, down)
        _measure(bench, link, rigs)
        return True
    finally:
        for rig in rigs:
            bench.close(rig)


def _room_for_more(bench: Bench, rigs: Sequence[Rig]) -> bool:
    if bench.options.together == "yes":
        return True
    largest = max(rig.memory_bytes() for rig in rigs)
    return free_bytes() >= MEMORY_FACTOR * largest


def _measure(bench: Bench, link: str | None, rigs: Sequence[Rig]) -> None:
    """Check the contexts, find the ceilings, then run every round that is missing."""
    by_lane = {rig.name: rig for rig in rigs}
    cells: list[MatrixCell] = []
    for rig in rigs:
        own = bench.cells(rig.variant, link)
        bench.check_contexts(rig, own)
        if bench.options.ceiling:
            measure_ceiling(bench, rig, link, own)
        cells += own
    before: list[Step] = []
    # Rounds are added to a cell by what its last ones showed; the controls come after all of them.
    while (steps := bench.steps(cells, link)) and steps != before:
        before = steps
        _run(bench, by_lane, [step for step in steps if step.kind != "control"] or steps)


def _run(bench: Bench, rigs: Mapping[str, Rig], steps: Sequence[Step]) -> None:
    for place, step in enumerate(steps):
        if bench.is_open(step):
            bench.watching.begin(step, steps[place:])
            bench.run_step(rigs[step.cell.cell.lane], step)

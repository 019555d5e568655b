"""The plan's lanes: list, show, up, down, lint, diff A B, swap LANE MODEL…

`up` starts a lane and leaves it running; `down` ends it and checks that it is gone. `lint` compares
a lane with its recipe and names known traps; `diff` says what makes two lanes unlike. `swap` times
the change of models behind llama-swap or llama.cpp's router.
"""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from concbench import __version__
from concbench.analyse.severity import doubt
from concbench.analyse.unlike import unfair_names, unlike
from concbench.cli import lanes_view, options
from concbench.cli.lanes_find import (
    Side,
    attached_side,
    chosen_lanes,
    one_lane,
    plan_of,
    side_of,
)
from concbench.cli.lines import deliver_lines, terminate
from concbench.clock import folder_stamp, utc_stamp
from concbench.domain import Doubt, TargetFacts, to_builtins
from concbench.errors import TargetError, UsageError
from concbench.observe.host import machine
from concbench.plan.model import LanePlan, Plan
from concbench.result import Result
from concbench.serve import records
from concbench.serve.attached import attach_lane, stop_attached
from concbench.serve.http import Access
from concbench.serve.lane import start
from concbench.serve.launch import deadline_s, engine_of, recipe_of
from concbench.serve.lint import lint_lane
from concbench.serve.orphans import find_orphans
from concbench.serve.swap import LOAD_DEADLINE_S, inflight_limit, kind_of, loaded, swap_to


@dataclass(slots=True)
class Outcome:
    """What an action found: its payload, the words for a person, and what goes wrong at the end."""

    payload: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    targets: dict[str, TargetFacts] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)
    error: TargetError | None = None


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the lanes it is about, and how they are reached."""
    options.let_options_stand_between(parser)
    parser.add_argument("action", choices=list(ACTIONS), metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument(
        "names", nargs="*", metavar="LANE", help="lanes of the plan (diff and swap: or a URL)"
    )
    parser.add_argument("--all", action="store_true", help="up, down: every lane")
    parser.add_argument(
        "--wait-s",
        type=options.checked(options.seconds),
        metavar="S",
        help="how long a lane may take to its first token (default 600 to 3600, by engine)",
    )
    parser.add_argument(
        "--concurrency",
        type=options.checked(options.positive),
        metavar="N",
        help="lint: for so many at once (default: the most that the plan's [sweep] lists)",
    )
    options.add_target(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--json", metavar="FILE", help="result JSON, - for stdout")
    group.add_argument("--quiet", action="store_true", help="no table")


def run(args: Namespace) -> int:
    """Do it, show it, write the JSON; return the contract's exit code."""
    signal.signal(signal.SIGTERM, terminate)
    began = utc_stamp()
    outcome = ACTIONS[args.action](args)
    result = Result(
        tool_version=__version__,
        command="lanes",
        study=None,
        began_utc=began,
        target=next(iter(outcome.targets.values())) if len(outcome.targets) == 1 else None,
        targets=outcome.targets,
        machine=machine(__version__),
        doubts=outcome.doubts,
        payload={"action": args.action, **outcome.payload},
    )
    deliver_lines(args, result, outcome.lines)
    if outcome.error is not None:
        raise outcome.error
    return 4 if any(one.severity == "fatal" for one in outcome.doubts) else 0


def _list(args: Namespace) -> Outcome:
    plan = plan_of(args, needed=False)
    rows = [_row(lane, plan) for lane in (plan.lanes.values() if plan else ())]
    here = str(Path(plan.path).resolve()) if plan else None
    rows += [
        {"lane": record.lane, "engine": record.engine, "way": "other plan", "plan": record.plan}
        | lanes_view.state_of(record)
        for record in records.every()
        if record.plan != here
    ]
    orphans = find_orphans()
    payload = {
        "plan": plan.path if plan else None,
        "lanes": rows,
        "orphans": [lanes_view.orphan_row(one) for one in orphans],
    }
    lines = [*lanes_view.listing(rows), *lanes_view.warnings(orphans)]
    return Outcome(payload, lines)


def _row(lane: LanePlan, plan: Plan) -> dict[str, Any]:
    record = records.find(plan.path, lane.name)
    state = lanes_view.state_of(record)
    if lane.url is not None:
        state = {**state, "state": "attached", "url": lane.url}
    told = {"lane": lane.name, "engine": engine_of(lane), "way": lane.way, "model": lane.model}
    return {**told, **state, "notes": lane.notes}


def _show(args: Namespace) -> Outcome:
    plan = plan_of(args)
    found = [side_of(lane, plan, _access(args)) for lane in chosen_lanes(args, plan)]
    rows = [lanes_view.side_row(side) for side in found]
    lines = [line for side in found for line in lanes_view.shown(side)]
    return Outcome({"lanes": rows}, lines, {side.name: side.facts for side in found})


def _up(args: Namespace) -> Outcome:
    plan = plan_of(args)
    orphans = find_orphans()
    for warning in lanes_view.warnings(orphans):
        print(warning, file=sys.stderr)
    outcome = Outcome({"lanes": [], "orphans": [lanes_view.orphan_row(one) for one in orphans]})
    for lane in chosen_lanes(args, plan):
        try:
            side, row = _start(args, lane, plan)
        except TargetError as error:
            outcome.payload["lanes"].append({"lane": lane.name, "state": "failed"})
            outcome.error = error
            break
        outcome.payload["lanes"].append(row)
        outcome.targets[lane.name] = side.facts
        outcome.lines += [
            *lanes_view.shown(side),
            f"  left running: concbench lanes down {lane.name}",
        ]
    return outcome


def _start(args: Namespace, lane: LanePlan, plan: Plan) -> tuple[Side, dict[str, Any]]:
    """Bring one lane up and leave it so. Raises UsageError where it is up already."""
    record = records.find(plan.path, lane.name)
    if record is not None:
        raise UsageError(
            f"lane {lane.name} is up already at {record.url} since {record.began_utc}: "
            f"`concbench lanes down {lane.name}` ends it"
        )
    limit_s = args.wait_s or deadline_s(lane)
    log_path = records.log_folder() / f"{lane.name}-{folder_stamp()}.log"
    print(f"starting {lane.name}: log {log_path}", file=sys.stderr)
    if lane.url is not None:
        with attach_lane(lane, _access(args), log_path, limit_s) as met:
            side = attached_side(lane.name, met.attached, met.facts)
            return side, {**lanes_view.side_row(side), "state": "attached"}
    running = start(recipe_of(lane, Path(plan.path).parent), log_path, limit_s, _access(args))
    try:
        kept = records.save(running, plan.path)
    except BaseException:
        running.stop()
        raise
    running.detach()
    side = attached_side(lane.name, running.attached, running.facts, kept)
    return side, lanes_view.side_row(side)


def _down(args: Namespace) -> Outcome:
    plan = plan_of(args, needed=not args.all)
    outcome = Outcome({"lanes": []})
    if args.all:
        ended = [(one.lane, one.end()) for one in records.every()]
    else:
        assert plan is not None
        ended = [(lane.name, _end(args, lane, plan)) for lane in chosen_lanes(args, plan)]
    for name, teardown in ended:
        outcome.payload["lanes"].append({"lane": name, "teardown": teardown})
        outcome.lines.append(lanes_view.ended(name, teardown))
        if wrong := lanes_view.not_gone(teardown):
            outcome.error = TargetError(f"lane {name}: {wrong}")
    if not ended:
        outcome.lines.append("no lane is up")
    return outcome


def _end(args: Namespace, lane: LanePlan, plan: Plan) -> dict[str, Any]:
    record = records.find(plan.path, lane.name)
    if record is not None:
        return record.end()
    if lane.url is not None:
        return stop_attached(lane, _access(args), Path(plan.path).parent)
    raise UsageError(f"lane {lane.name} is not up: `concbench lanes list` shows what is")


def _lint(args: Namespace) -> Outcome:
    plan = plan_of(args)
    folder = Path(plan.path).parent
    outcome = Outcome({"findings": []})
    for lane in chosen_lanes(args, plan, default_all=True):
        side = side_of(lane, plan, _access(args), ask=lane.url is not None)
        found = lint_lane(
            lane,
            folder,
            known={**to_builtins(side.facts), **side.extra} if side.live else None,
            launch=side.spoken if side.live else None,
            concurrency=args.concurrency or _most_at_once(plan),
        )
        outcome.payload["findings"] += [to_builtins(one) for one in found]
        outcome.lines += lanes_view.findings(lane.name, found)
        outcome.doubts += [
            doubt(
                one.doubt, None, f"{lane.name}: {one.message}", {"lane": lane.name, **one.evidence}
            )
            for one in found
        ]
    return outcome


def _most_at_once(plan: Plan) -> int | None:
    levels = plan.sweep.concurrency
    return max(levels) if isinstance(levels, list) else None


def _diff(args: Namespace) -> Outcome:
    if len(args.names) != 2:
        raise UsageError("lanes diff takes two lanes: concbench lanes diff A B")
    a, b = (one_lane(args, name, _access(args)) for name in args.names)
    found = unlike(a.facts, b.facts, a.extra, b.extra, a.flags, b.flags)
    payload = {
        "a": a.name,
        "b": b.name,
        "unfair": unfair_names(found),
        "differences": [to_builtins(one) for one in found],
    }
    lines = lanes_view.differences(a.name, b.name, found)
    return Outcome(payload, lines, {a.name: a.facts, b.name: b.facts})


def _swap(args: Namespace) -> Outcome:
    if not args.names:
        raise UsageError("lanes swap takes a lane or a URL, and the models to load in turn")
    access = _access(args)
    side = one_lane(args, args.names[0], access, model=args.names[1] if args.names[1:] else None)
    attached = side.attached
    if attached is None:
        raise UsageError(f"lane {side.name} does not run: `concbench lanes up {side.name}` first")
    before = loaded(attached) if kind_of(attached) else []
    swaps = []
    for model in args.names[1:] or [attached.model]:
        attached, took = swap_to(attached, model, args.wait_s or LOAD_DEADLINE_S)
        swaps.append(took)
    limit = inflight_limit(attached)
    payload = {
        "target": side.facts.base_url,
        "kind": kind_of(attached),
        "loaded_before": before,
        "inflight_limit": limit.value if limit else None,
        "inflight_limit_from": limit.source if limit else None,
        "swaps": [to_builtins(one) for one in swaps],
    }
    return Outcome(payload, lanes_view.swaps(payload), {side.name: side.facts})


ACTIONS: dict[str, Callable[[Namespace], Outcome]] = {
    "list": _list,
    "show": _show,
    "up": _up,
    "down": _down,
    "lint": _lint,
    "diff": _diff,
    "swap": _swap,
}
"""The actions by the word that asks for each."""


def _access(args: Namespace) -> Access:
    return Access(api_key=options.api_key(args), ca=args.ca, insecure=args.insecure)

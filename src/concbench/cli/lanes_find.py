"""Lanes for `concbench lanes`: running ones are asked, others are read from the plan."""

from __future__ import annotations

import difflib
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from concbench.domain import TargetFacts
from concbench.engines.spec import Fact
from concbench.errors import TargetError, UsageError
from concbench.measure.target import DEFAULT_PLANS, find_lane
from concbench.plan.file import load_plan
from concbench.plan.model import LanePlan, Plan
from concbench.serve import records
from concbench.serve.attached import local_pids
from concbench.serve.enrich import enriched
from concbench.serve.http import Access
from concbench.serve.lint import static_lane
from concbench.serve.probe import Attached, attach, fill_facts
from concbench.serve.records import Record
from concbench.serve.words import flags_in


@dataclass(frozen=True, slots=True)
class Side:
    """A lane with all that is known of it. `live`: it was asked just now; `why_not`: why not."""

    name: str
    facts: TargetFacts
    extra: Mapping[str, Any]
    flags: Mapping[str, Any]
    live: bool
    spoken: Sequence[str] | None = None
    record: Record | None = None
    attached: Attached | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    why_not: str | None = None


def plan_of(args: Namespace, *, needed: bool = True) -> Any:  # noqa: ANN401 - Plan, or None
    """Return the plan, or None where there is none and none is needed. Raises UsageError."""
    path = args.plan or next((Path(one) for one in DEFAULT_PLANS if Path(one).is_file()), None)
    if path is not None:
        return load_plan(path)
    if needed:
        raise UsageError(f"there is no {' or '.join(DEFAULT_PLANS)} here: give --plan PLAN.toml")
    return None


def chosen_lanes(args: Namespace, plan: Plan, *, default_all: bool = False) -> list[LanePlan]:
    """Return the lanes that were named. Raises UsageError for an unknown one, or for none."""
    if args.all or (default_all and not args.names):
        return list(plan.lanes.values())
    if not args.names:
        raise UsageError(f"name a lane: {plan.path} has {', '.join(plan.lanes)}")
    for name in args.names:
        if name not in plan.lanes:
            near = difflib.get_close_matches(name, plan.lanes, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(plan.lanes)}"
            raise UsageError(f"{plan.path} has no lane {name!r}: {hint}")
    return [plan.lanes[name] for name in args.names]


def one_lane(args: Namespace, name: str, access: Access, model: str | None = None) -> Side:
    """Return a lane of the plan, or what answers at a URL. Raises UsageError and TargetError."""
    found = find_lane(name, args.plan)
    if found is not None:
        return side_of(*found, access)
    attached = attach(name, access, model or args.model, lane=name)
    attached = enriched(attached, local_pids(attached.root), None)
    return attached_side(name, attached, attached.facts)


def side_of(lane: LanePlan, plan: Plan, access: Access, *, ask: bool = True) -> Side:
    """Return a lane: asked where it runs, otherwise as its plan tells it."""
    record = records.find(plan.path, lane.name)
    why_not = None
    try:
        if record is not None:
            attached = record.attach(access)
            return attached_side(lane.name, attached, attached.facts, record)
        if lane.url is not None and ask:
            met = attach(lane.url, access, lane.model, lane.engine, lane=lane.name)
            met = enriched(met, local_pids(met.root), None)
            return attached_side(lane.name, met, met.facts)
    except TargetError as error:
        why_not = str(error)
    return _static_side(lane, plan, why_not)


def attached_side(
    name: str, attached: Attached, facts: TargetFacts, record: Record | None = None
) -> Side:
    """Return a lane that runs."""
    spoken: Any = record.spoken if record else attached.extra.get("upstream_launch")
    engine = attached.extra.get("upstream_engine") or facts.engine
    return Side(
        name,
        facts,
        attached.extra,
        flags_in(spoken or (), str(engine)),
        live=True,
        spoken=spoken,
        record=record,
        attached=attached,
        env=record.env if record else {},
    )


def _static_side(lane: LanePlan, plan: Plan, why_not: str | None) -> Side:
    told = static_lane(lane, Path(plan.path).parent)
    bare = TargetFacts(lane=lane.name, engine=told.engine, base_url=lane.url or "")
    found = {key: Fact(value, told.sources.get(key, "argv")) for key, value in told.known.items()}
    facts, extra = fill_facts(bare, found)
    return Side(
        lane.name,
        facts,
        extra,
        told.flags,
        live=False,
        spoken=told.argv,
        env=told.env,
        why_not=why_not,
    )

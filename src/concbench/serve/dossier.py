"""All that is known of a lane while it is measured, beyond its facts: for the study's record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from concbench.domain import TargetFacts, to_builtins
from concbench.engines.registry import ENGINES
from concbench.plan.model import LanePlan
from concbench.serve.lint import Finding, finding_of, lint_lane
from concbench.serve.probe import Attached
from concbench.serve.words import flags_in, masked, masked_env, masked_extra


@dataclass(frozen=True, slots=True)
class Origin:
    """How a lane came to run. `spoken` is its command line in the engine's own spelling.

    None: it was started elsewhere. `plan` is its table in the plan file of `folder`.
    """

    spoken: Sequence[str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cold_start: Mapping[str, float] = field(default_factory=dict)
    plan: LanePlan | None = None
    folder: Path = Path()


def dossier(attached: Attached, facts: TargetFacts, origin: Origin) -> dict[str, Any]:
    """Return what a study keeps of a lane, ready for JSON; secrets are hidden.

    Where it was started elsewhere, the command line counts that a proxy tells of the engine behind
    it. Keys: `lane`, and those of `concbench.result.LaneResult`. Raises PlanError for a recipe that
    cannot be read.
    """
    words = origin.spoken or attached.extra.get("upstream_launch")
    engine = str(attached.extra.get("upstream_engine") or facts.engine)
    plan = origin.plan
    return {
        "lane": facts.lane,
        "extra": to_builtins(masked_extra(attached.extra)),
        "flags": {} if words is None else flags_in(masked(words), engine),
        "argv": None if words is None else masked(words),
        "env": masked_env(origin.env),
        "reference": plan.reference if plan else None,
        "notes": plan.notes if plan else None,
        "cold_start": dict(origin.cold_start),
        "findings": [
            {key: value for key, value in to_builtins(one).items() if key != "lane"}
            for one in _findings(attached, facts, origin)
        ],
    }


def _findings(attached: Attached, facts: TargetFacts, origin: Origin) -> list[Finding]:
    """Return what lint finds on the running lane; without a plan the engine's traps alone."""
    known = {**to_builtins(facts), **attached.extra}
    if origin.plan is not None:
        return lint_lane(origin.plan, origin.folder, known=known, launch=origin.spoken)
    found = ENGINES[facts.engine].traps(known, origin.spoken, origin.env, None)
    return [finding_of(facts.lane, trap, facts.engine_version) for trap in found]

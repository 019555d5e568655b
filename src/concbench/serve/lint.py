"""What is wrong with a lane before it is measured: gaps against its recipe, and known traps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from concbench.engines.registry import ENGINES
from concbench.engines.spec import Trap
from concbench.errors import MissingExtra
from concbench.plan.model import LanePlan
from concbench.serve.embedded import find_model
from concbench.serve.enrich import static_facts
from concbench.serve.launch import EMBEDDED_MODEL, added_words, engine_of, flags_of, model_word
from concbench.serve.recipes import RecipeFile, gaps, load_recipe
from concbench.serve.words import flags_in

_DOUBTS = {"lane_incomplete": "lane_incomplete", "cap": "concurrency_capped"}
_FATAL = "simulated_acceptance"


class Finding(Struct, frozen=True, kw_only=True):
    """Something to know of a lane. `doubt` is the code that its results would carry."""

    lane: str
    kind: str
    code: str
    doubt: str
    message: str
    evidence: dict[str, Any] = {}


class Static(Struct, frozen=True, kw_only=True):
    """A lane as its plan tells it, without starting it. `argv` None: not known."""

    engine: str
    argv: list[str] | None
    flags: dict[str, Any]
    env: dict[str, str]
    known: dict[str, Any]
    sources: dict[str, str]


def static_lane(lane: LanePlan, folder: Path) -> Static:
    """Return what the plan alone tells of a lane; nothing is started or asked."""
    engine = engine_of(lane)
    env = {name: str(value) for name, value in lane.env.items()}
    argv, flags = _words(lane, engine, folder), flags_of(lane)
    image = lane.container.image if lane.container else None
    # A model's name alone is told for a lane with a URL; that is not the engine's own argv.
    facts, known = static_facts(engine, argv or [], lane.model, image) if argv else ({}, {})
    sources = {key: fact.source.partition(":")[0] for key, fact in facts.items()}
    return Static(engine=engine, argv=argv, flags=flags, env=env, known=known, sources=sources)


def lint_lane(
    lane: LanePlan,
    folder: Path,
    *,
    known: Mapping[str, Any] | None = None,
    launch: Sequence[str] | None = None,
    concurrency: int | None = None,
) -> list[Finding]:
    """Return the findings. `known` and `launch` are those of the running lane, where it runs.

    Raises PlanError for a recipe that cannot be read or is another engine's.
    """
    told = static_lane(lane, folder)
    if lane.engine is None and lane.url is not None and known is not None:
        # Which engine it is, only the server could tell.
        told = msgspec.structs.replace(told, engine=str(known.get("engine") or told.engine))
    argv = list(launch) if launch is not None else told.argv
    facts = {**told.known, **{k: v for k, v in (known or {}).items() if v is not None}}
    found: list[Finding] = []
    if lane.reference is not None:
        recipe = load_recipe(folder / lane.reference)
        flags = told.flags if launch is None else flags_in(launch, told.engine)
        found += _against(lane, told, recipe, flags, runs=argv is not None)
    for trap in ENGINES[told.engine].traps(facts, argv, told.env, concurrency):
        found.append(finding_of(lane.name, trap, facts.get("engine_version")))
    return found


def _against(
    lane: LanePlan, told: Static, recipe: RecipeFile, flags: Mapping[str, Any], *, runs: bool
) -> list[Finding]:
    def finding(code: str, message: str, evidence: dict[str, Any]) -> Finding:
        return Finding(
            lane=lane.name,
            kind="reference",
            code=code,
            doubt="lane_incomplete",
            message=f"{lane.reference}: {message}",
            evidence=evidence,
        )

    if recipe.engine != told.engine:
        evidence = {"wanted": recipe.engine, "got": told.engine}
        return [
            finding(
                "other_engine",
                f"the recipe is for {recipe.engine}, and the lane runs {told.engine}",
                evidence,
            )
        ]
    if not runs:
        return [
            finding(
                "flags_unknown",
                "the lane was started elsewhere, and nothing tells with which flags: "
                f"{', '.join(recipe.flags)} cannot be confirmed",
                {"wanted": dict(recipe.flags)},
            )
        ]
    return [
        finding(
            f"{gap.kind}_{gap.where}",
            gap.told,
            {"name": gap.name, "wanted": gap.wanted, "got": gap.got},
        )
        for gap in gaps(recipe, flags, told.env)
    ]


def finding_of(lane: str, trap: Trap, version: object) -> Finding:
    """Return a trap as a finding, with the doubt that it would raise."""
    doubt = _FATAL if trap.group == "fatal" else _DOUBTS.get(trap.group, "not_comparable")
    evidence: dict[str, Any] = {"group": trap.group}
    if version is not None:
        evidence["engine_version"] = version
    return Finding(
        lane=lane, kind="trap", code=trap.code, doubt=doubt, message=trap.message, evidence=evidence
    )


def _model_word(lane: LanePlan, engine: str, folder: Path) -> str:
    """Return the model's path where it is a file seen from here, else its name as it is."""
    if engine == "llamacpp" and lane.model in (None, EMBEDDED_MODEL):
        with suppress(MissingExtra):
            return str(find_model())
    return model_word(lane.model, folder) if lane.model else ""


def _words(lane: LanePlan, engine: str, folder: Path) -> list[str] | None:
    """Return the engine's words as far as the plan gives them; None for a lane with a URL."""
    if lane.url is not None:
        return None
    if lane.command is not None:
        return list(lane.command)
    if lane.container is not None:
        return list(lane.container.args)
    flags = {name: value for name, value in lane.flags.items() if name != "bin"}
    words = ENGINES[engine].to_argv(flags)
    model = _model_word(lane, engine, folder)
    head = {
        "llamacpp": ["llama-server", "--model", model],
        "vllm": ["vllm", "serve", model],
        "sglang": ["sglang", "serve", "--model-path", model],
    }.get(engine, [])
    return [*head, *words, *added_words(engine, words)]

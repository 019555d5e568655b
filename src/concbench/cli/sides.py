"""The two sides of a comparison, from what was typed: URLs, lanes, `embedded`, one flag varied."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from concbench.cli import baselines
from concbench.errors import UsageError
from concbench.measure.ab_parts import Upkeep
from concbench.measure.target import find_lane, is_embedded
from concbench.plan.file import load_plan
from concbench.plan.matrix import Variant
from concbench.plan.model import Plan
from concbench.serve import records
from concbench.serve.launch import flags_of, varied
from concbench.serve.urls import looks_like_url
from concbench.serve.words import named
from concbench.store.read import open_study

OWN_KEYS = {
    "prompt_tokens": "--prompt-tokens",
    "output_tokens": "--output-tokens",
    "temperature": "--temperature",
    "content": "--content",
    "same_prompt": "--same-prompt",
    "endpoint": "--endpoint",
    "stream": "--stream",
    "timeout_s": "--timeout-s",
    "inactivity_s": "--inactivity-s",
    "extra_body": "--extra-body",
}
"""Keys of a plan's [workload] that stand in for options which were not given."""


@dataclass(frozen=True, slots=True)
class SideSpec:
    """One side as it was asked for. `recipe` are the flags of its lane, `flags` those varied."""

    name: str
    target: str
    plan: Path | None
    upkeep: Upkeep
    flags: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)


def parse_vary(text: str) -> tuple[str, list[Any]]:
    """Return flag and its two values of `FLAG=A,B`; values are JSON where they can be.

    A value that has a comma itself is given in a JSON list: `FLAG=["a,b","c"]`. Raises UsageError.
    """
    flag, equals, rest = text.partition("=")
    flag = flag.strip().lstrip("-")
    values: object = [scalar(word.strip()) for word in rest.split(",")]
    if rest.lstrip().startswith("["):
        try:
            values = json.loads(rest)
        except ValueError as error:
            raise UsageError(f"--vary {flag}: not JSON: {error}") from None
    if not (flag and equals and isinstance(values, list) and len(values) == 2) or "" in values:
        raise UsageError(f"--vary {text!r}: expected FLAG=A,B, the values of either side")
    if values[0] == values[1]:
        raise UsageError(f"--vary {text!r}: both sides have the same value")
    return flag, values


def scalar(word: str) -> Any:  # noqa: ANN401 - a flag's value
    """Return a flag's value as it was typed: a truth, a number, else text."""
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def sides_of(args: Namespace) -> tuple[SideSpec, SideSpec]:
    """Return A and B. A plan file that stands first fills in what was not given on the line.

    Raises UsageError where these are not two sides, PlanError for a plan that is wrong.
    """
    words: list[str] = list(args.sides)
    plan = args.plan
    if words and words[0].endswith(".toml") and Path(words[0]).is_file():
        plan = Path(words.pop(0))
        loaded = load_plan(plan)
        from_plan(args, loaded)
        words = words or _lanes_of(loaded)
    if args.baseline:
        if len(words) != 1 or args.vary:
            raise UsageError("--baseline NAME is side A: give one more target, and no --vary")
        first = _baseline_side(args.baseline, args)
    elif args.vary:
        if len(words) != 1:
            raise UsageError("--vary makes both sides of one lane: name one, or `embedded`")
        pairs = dict(args.vary)
        first, second = (
            spec(words[0], plan, args, {flag: values[side] for flag, values in pairs.items()})
            for side in (0, 1)
        )
        return first, second
    elif len(words) != 2:
        raise UsageError(
            "concbench ab: name two sides (URLs, lanes, `embedded`), or one and --vary FLAG=A,B"
        )
    else:
        first = spec(words.pop(0), plan, args, {})
    second = spec(words[0], plan, args, {})
    if first.name == second.name:
        return replace(first, name=f"{first.name}~a"), replace(second, name=f"{second.name}~b")
    return first, second


def spec(target: str, plan: Path | None, args: Namespace, flags: Mapping[str, Any]) -> SideSpec:
    """Return one side: what it is called, and whether it is started here, and how often.

    Raises UsageError for flags on a lane that runs already.
    """
    started: Upkeep = "kept" if args.both_up else "fresh"
    if is_embedded(target):
        name = Variant(lane="embedded", flags=dict(flags)).name
        return SideSpec(name, target, plan, started, flags, named(flags, "llamacpp"))
    found = find_lane(target, plan)
    if found is None:
        if flags:
            raise UsageError(f"--vary: {target} runs already, its flags cannot be changed")
        return SideSpec(_host(target), target, plan, "attached")
    lane, loaded = found
    name = Variant(lane=lane.name, flags=dict(flags)).name
    chosen = varied(lane, flags) if flags else lane
    runs = records.find(loaded.path, lane.name) is not None
    if runs and flags:
        raise UsageError(
            f"--vary: lane {lane.name} runs already: `concbench lanes down {lane.name}` first"
        )
    upkeep: Upkeep = "attached" if runs or lane.way == "url" else started
    return SideSpec(name, target, Path(loaded.path), upkeep, flags, flags_of(chosen))


def _host(target: str) -> str:
    """Return a URL's host and port: what tells two servers apart in a sentence."""
    text = target if "://" in target else f"http://{target}"
    return urlsplit(text).netloc.rpartition("@")[2] or target


def _lanes_of(plan: Plan) -> list[str]:
    """Return the two lanes of a plan. Raises UsageError where there are more or fewer."""
    lanes = plan.sweep.lanes or list(plan.lanes)
    if len(lanes) != 2:
        raise UsageError(
            f"{plan.path} has {len(lanes)} lanes ({', '.join(lanes)}): name the two to compare, "
            f"as in `concbench ab {plan.path} {' '.join(lanes[:2])}`"
        )
    return lanes


def from_plan(args: Namespace, plan: Plan) -> None:
    """Take workload, levels, contexts, rounds and seed of a plan where no option says otherwise."""
    given = {word.partition("=")[0] for word in args.argv}
    for key, option in OWN_KEYS.items():
        value = getattr(plan.workload, key)
        if option in given or f"--no-{option[2:]}" in given or value is None:
            continue
        setattr(args, key, None if value == "auto" else value)
    if plan.workload.prompts is not None and "--prompts" not in given:
        args.prompts = Path(plan.path).parent / plan.workload.prompts
    if plan.sweep.concurrency != "auto" and "--levels" not in given:
        args.levels = sorted(set(plan.sweep.concurrency))
    if not given & {"--contexts", "--prompt-tokens"} and plan.workload.prompt_tokens is None:
        args.contexts = contexts_of(plan.sweep.contexts)
    if "--rounds" not in given:
        args.rounds = plan.study.rounds
    if "--seed" not in given and plan.study.seed:
        args.seed = plan.study.seed


def contexts_of(named: list[Any]) -> list[int]:
    """Return prompt lengths of a plan's contexts in rising order, each once."""
    from concbench.plan.model import context_tok

    return sorted({context_tok(one) for one in named})


def parse_contexts(text: str) -> list[int]:
    """Return prompt lengths of `short,5000`. Raises ValueError."""
    words = [word.strip() for word in text.split(",")]
    if not all(word == "short" or (word.isdigit() and int(word) > 0) for word in words):
        raise ValueError(f"{text!r}: expected prompt lengths in tokens, such as short,5000")
    return contexts_of([word if word == "short" else int(word) for word in words])


def _baseline_side(name: str, args: Namespace) -> SideSpec:
    """Return the side that a stored study measured: it is measured again now, as side A.

    Of a comparison that is its side B, which was found good enough to be kept. Raises UsageError
    where the study does not say how its target was reached.
    """
    reader = open_study(baselines.load(name))
    side = reader.plan.get("side_b") or {}
    told = reader.plan.get("options") or {}
    target = side.get("target") or told.get("target")
    if not target:
        raise UsageError(f"baseline {name}: its study names no target to measure again")
    plan = side.get("plan") or told.get("plan")
    made = spec(
        str(target), Path(plan) if plan not in (None, "None") else None, args,
        side.get("flags") or {},
    )  # fmt: skip
    return replace(made, name=f"{name}:{made.name}")


def is_same_server(a: SideSpec, b: SideSpec) -> bool:
    """Return whether both sides are one server that runs already, by what was typed."""
    both = a.upkeep == b.upkeep == "attached"
    urls = looks_like_url(a.target) and looks_like_url(b.target)
    return both and (_host(a.target) == _host(b.target) if urls else a.target == b.target)

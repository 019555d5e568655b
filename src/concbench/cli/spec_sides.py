"""The two sides of `concbench spec`: a lane without speculation (A), and the same lane with it."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from concbench.cli.sides import SideSpec, scalar, spec
from concbench.engines.spelling import canonical
from concbench.errors import UsageError
from concbench.measure.target import find_lane, is_embedded
from concbench.plan.model import LanePlan, Plan
from concbench.serve import records
from concbench.serve.launch import engine_of, flags_of
from concbench.serve.words import dialect

EMBEDDED_FLAGS: Mapping[str, Any] = {"spec-type": "ngram-simple"}
"""What the embedded engine speculates with unless told otherwise: it needs no draft model."""

SPECULATION = re.compile(
    r"(spec|speculative|speculation|speculate|draft)(-.*)?|model-draft|num-speculative-tokens|"
    r"md|hfd|sc"
)
"""Flags that switch speculation on or tune it, over all engines, without their dashes."""

OFF, ON = "~off", "~spec"


def parse_flag(text: str) -> tuple[str, Any]:
    """Return name and value of `FLAG=VALUE`; the value is JSON where it can be.

    A flag alone is a switch. Raises UsageError.
    """
    name, equals, value = text.partition("=")
    name = name.strip().lstrip("-")
    if not name or (equals and not value.strip()):
        raise UsageError(f"--with {text!r}: expected FLAG=VALUE, or a switch's FLAG alone")
    if not equals:
        return name, True
    if value.lstrip()[:1] in ("{", "["):
        try:
            return name, json.loads(value)
        except ValueError as error:
            raise UsageError(f"--with {name}: not JSON: {error}") from None
    return name, scalar(value.strip())


def spec_sides(args: Namespace) -> tuple[SideSpec, SideSpec]:
    """Return the lane without speculation and with it, or the two targets that were named.

    Raises UsageError where these are not two, or the flags of what runs already were to change.
    """
    words, wanted = list(args.sides), dict(args.with_flags)
    if len(words) == 2 and not wanted:
        off, on = (spec(word, args.plan, args, {}) for word in words)
        if off.name == on.name:
            return replace(off, name=f"{off.name}{OFF}"), replace(on, name=f"{on.name}{ON}")
        return off, on
    if len(words) != 1:
        raise UsageError(
            "concbench spec: name one lane, or two targets, the one without speculation first "
            "(--with is of one lane)"
        )
    target = words[0]
    without, wanted = _changes(target, args, wanted)
    off = spec(target, args.plan, args, without)
    on = spec(target, args.plan, args, wanted)
    base = "embedded" if is_embedded(target) else target
    return replace(off, name=f"{base}{OFF}"), replace(on, name=f"{base}{ON}")


def _changes(
    target: str, args: Namespace, wanted: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is changed of a lane's flags for either side; None takes a flag out."""
    if is_embedded(target):
        return {}, dict(wanted or EMBEDDED_FLAGS)
    lane, plan = _startable(target, args)
    own = _own(lane)
    if not own and not wanted:
        raise UsageError(
            f"lane {lane.name} of {plan.path} sets no flag of speculation: say with which, as in "
            "--with spec-type=ngram-simple (llama.cpp) or "
            '--with \'speculative-config={"method":"ngram","num_speculative_tokens":4}\' (vLLM)'
        )
    gone = dict.fromkeys(own)
    return gone, {**gone, **wanted} if wanted else {}


def _startable(target: str, args: Namespace) -> tuple[LanePlan, Plan]:
    """Return the lane and its plan. Raises UsageError for what runs already."""
    found = find_lane(target, args.plan)
    attached = found is None or found[0].way == "url"
    if attached or (found is not None and records.find(found[1].path, found[0].name) is not None):
        raise UsageError(
            f"concbench spec: {target} runs already, so its speculation cannot be switched: start "
            "it without and with, and name both, as in `concbench spec URL_OFF URL_ON`"
        )
    assert found is not None
    return found


def _own(lane: LanePlan) -> list[str]:
    """Return the lane's flags of speculation, as the plan spells them where it sets them itself."""
    flags = lane.flags if lane.command is None and lane.container is None else flags_of(lane)
    spelling = dialect(engine_of(lane))

    def speculates(name: str) -> bool:
        plain = name.lstrip("-").partition(".")[0].replace("_", "-")
        return any(SPECULATION.fullmatch(each) for each in (plain, canonical(plain, spelling)))

    return [name for name in flags if speculates(name)]

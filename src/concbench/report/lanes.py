"""What the report says of a lane beyond its facts: recipe, findings, settings, and its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from concbench.domain import TargetFacts
from concbench.report.inert import inert, without_secrets
from concbench.report.view import FactView
from concbench.result import LaneResult

VALUE_LIMIT = 400
_GIB = 1 << 30


def lane_line(facts: TargetFacts | None, lane: LaneResult | None) -> tuple[str, ...]:
    """Return the parts of the line on the lane: recipe, known traps, how it ended."""
    parts: list[str] = []
    if lane is not None:
        gaps = sum(one.get("kind") == "reference" for one in lane.findings)
        traps = len(lane.findings) - gaps
        if lane.reference:
            told = "carried in full" if not gaps else f"{gaps} of its settings missing or different"
            parts.append(f"recipe {inert(lane.reference, 80)}: {told}")
        if traps:
            parts.append(f"{traps} known trap{'s' if traps > 1 else ''} (listed on the page)")
    if facts is not None and facts.teardown:
        parts.append(teardown_text(facts.teardown))
    return tuple(parts)


def lane_details(facts: TargetFacts | None, lane: LaneResult | None) -> tuple[FactView, ...]:
    """Return the facts that only some engines have, flags, variables, findings and the teardown."""
    sources = facts.facts_from if facts is not None else {}
    found: list[FactView] = []
    if lane is not None:
        found += [
            FactView(inert(name, 60), _text(value), inert(sources.get(name, ""), 60))
            for name, value in sorted(lane.extra.items())
            if value is not None
        ]
        flags = [
            word
            for name, value in sorted(lane.flags.items())
            for word in (f"--{name}", _text(value))
        ]
        listed = {
            "flags": inert(" ".join(without_secrets(flags)), 4 * VALUE_LIMIT),
            "environment": _pairs(lane.env),
            "cold start, steps in s": _pairs({k: f"{v:.3f}" for k, v in lane.cold_start.items()}),
            "recipe": inert(lane.reference or ""),
            "notes": inert(lane.notes or ""),
        }
        found += [FactView(name, text) for name, text in listed.items() if text]
        found += [
            FactView(
                f"{inert(one.get('kind', ''), 20)}: {inert(one.get('code', ''), 60)}",
                inert(one.get("message", ""), 2 * VALUE_LIMIT),
            )
            for one in lane.findings
        ]
    if facts is not None and facts.teardown:
        found.append(FactView("how it ended", teardown_text(facts.teardown)))
    return tuple(found)


def teardown_text(teardown: Mapping[str, Any]) -> str:
    """Return how an engine that was started here ended, and whether all of it is gone."""
    signal = teardown.get("signal")
    parts = [f"stopped by {inert(signal, 20)}" if signal else "had ended already"]
    if teardown.get("left_pids"):
        parts.append(f"STILL RUNNING: pid {', '.join(map(str, teardown['left_pids']))}")
    if "container_gone" in teardown:
        parts.append("container gone" if teardown["container_gone"] else "CONTAINER STILL THERE")
    parts.append("port free" if teardown.get("port_free") else "PORT NOT FREE")
    if teardown.get("memory_back"):
        parts.append(f"{(teardown.get('rss_before_bytes') or 0) / _GIB:.2f} GiB back")
    else:
        parts.append("MEMORY NOT BACK")
    return ", ".join(parts)


def _pairs(values: Mapping[str, Any]) -> str:
    return inert(", ".join(f"{name} = {value}" for name, value in values.items()), 4 * VALUE_LIMIT)


def _text(value: object) -> str:
    """Return a value as JSON writes it, texts without quotes."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return inert(text, VALUE_LIMIT)

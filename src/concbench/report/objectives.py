"""Objectives of one level, as the cells of a table: what users and what rates have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from concbench.analyse.capacity import Objective
from concbench.plan.levels import Slo
from concbench.report.inert import inert

TEXT_LIMIT = 400
UNITS = {"_ms": "ms", "_pct": "%", "": "tok/s"}
STANDINGS = {
    "holds": "holds",
    "open": "open",
    "fails": "fails",
    "doubted": "nothing can be said",
    "unmeasured": "not measured",
}


def headings(slos: Sequence[Slo]) -> tuple[str, ...]:
    """Return two headings an objective: itself with its limit, and the bound of what was seen."""
    return tuple(text for slo in slos for text in (_named(slo), "95 % bound"))


def values(objectives: Sequence[Objective], slos: Sequence[Slo]) -> tuple[str, ...]:
    """Return the value and its bound for each objective that was asked for."""
    found = {each.slo: each for each in objectives}
    texts: list[str] = []
    for slo in slos:
        each = found.get(slo.key)
        texts += ["–", "–"] if each is None else [number(each.value), number(each.bound)]
    return tuple(texts)


def number(value: float | None) -> str:
    """Return a value in the unit of its objective."""
    return "unknown" if value is None else f"{value:.4g}"


def not_measured(levels: Iterable[tuple[str, str]]) -> str:
    """Return the end of an answer that names levels without a measurement, each with its reason."""
    by_reason: dict[str, list[str]] = {}
    for level, why in levels:
        by_reason.setdefault(why, []).append(level)
    return "".join(
        f"; not measured at {', '.join(found)} ({inert(why, TEXT_LIMIT)})"
        for why, found in by_reason.items()
    )


def _named(slo: Slo) -> str:
    """Return an objective with its limit and the unit of both."""
    unit = next(text for end, text in UNITS.items() if slo.metric.endswith(end))
    return f"{slo.key} {'≤' if slo.at_most else '≥'} {slo.limit:g} {unit}"

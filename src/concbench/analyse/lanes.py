"""What a study recorded of its lanes besides facts: for the result, for doubts, for cells. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from concbench.analyse.severity import doubt
from concbench.domain import Doubt
from concbench.engines.reading import positive
from concbench.engines.spec import Trap
from concbench.result import LaneResult

NOTE: Final = "lane_facts"
"""The kind of the study's notes that `lane_results` reads."""

_RAISED: Final = "lane_incomplete"


def lane_results(notes: Iterable[Mapping[str, Any]]) -> dict[str, LaneResult]:
    """Return what the notes say of each lane; of several notes on one lane the latest stands."""
    found: dict[str, LaneResult] = {}
    for note in notes:
        known = {key: value for key, value in note.items() if value is not None}
        found[str(note.get("lane"))] = msgspec.convert(known, LaneResult)
    return found


def traps_of(lane: LaneResult | None) -> list[Trap]:
    """Return the engine's traps that lint found on a lane."""
    found = lane.findings if lane is not None else []
    return [
        Trap(
            str(one.get("code")),
            one.get("evidence", {}).get("group", "unfair"),
            str(one.get("message")),
        )
        for one in found
        if one.get("kind") == "trap"
    ]


def inflight_limit(lane: LaneResult | None) -> int | None:
    """Return how many requests the proxy before a lane lets in by default, None where unknown."""
    return positive(lane.extra.get("inflight_limit")) if lane is not None else None


def lane_doubts(lanes: Mapping[str, LaneResult]) -> list[Doubt]:
    """Return `lane_incomplete` for all that a lane lacks against its recipe or its engine's books.

    What makes lanes unlike is a doubt of their comparison, not of the lane.
    """
    return [
        doubt(_RAISED, None, f"{name}: {one['message']}", {"lane": name, **one.get("evidence", {})})
        for name, lane in lanes.items()
        for one in lane.findings
        if one.get("doubt") == _RAISED
    ]

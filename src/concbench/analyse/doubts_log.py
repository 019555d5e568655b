"""Doubts about the engine's log and metrics page: what was there to be read and told us nothing."""

from __future__ import annotations

from collections.abc import Iterator

from concbench.analyse.evidence import Evidence
from concbench.analyse.severity import doubt
from concbench.domain import Doubt
from concbench.result import CellResult

MATCHED = "log_matched"
UNPARSED = "log_unparsed"
"""Names of the observer's rows: lines understood; and, as an event, that there were none."""


def log_unparsed(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Yield a doubt where a log says something and nothing of it was understood in any round."""
    samples = [sample for each in seen.rounds for sample in each.samples if sample.source == "log"]
    matched = sum(sample.value or 0.0 for sample in samples if sample.name == MATCHED)
    marks = [s.value or 0.0 for s in samples if s.name == "event" and s.labels == UNPARSED]
    if not marks or matched:
        return
    lines = int(sum(marks))
    yield doubt(
        "log_unparsed",
        result.cell,
        f"none of {lines} lines of the engine's log was understood: what only the log tells is "
        "missing here, which is not the same as zero. Check the engine's name and version.",
        {"lines": lines},
    )


def metrics_unparsed(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Yield a doubt where no page of metrics, in any round, held a name that is known."""
    samples = [s for each in seen.rounds for s in each.samples if s.source == "metrics"]
    marks = [s.value or 0.0 for s in samples if s.name == "event" and s.labels == UNPARSED]
    if not marks or any(sample.name != "event" for sample in samples):
        return
    lines = int(max(marks))
    yield doubt(
        "log_unparsed",
        result.cell,
        f"the server's metrics page has {lines} lines and none of them is known: its counters, "
        "queue and cache are missing here, which is not the same as zero. Check the engine's name "
        "and version, and that the address is the engine's own.",
        {"lines": lines, "page": "metrics"},
    )


CHECKS = (log_unparsed, metrics_unparsed)

"""Reading a round's samples: series, growth, histograms over a stretch, and what spoils them.

Samples carry canonical names. What is absent is None and never 0; a counter that fell has no
growth. A reading's time is the middle of its sending and its receipt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from concbench.domain import ServerSample
from concbench.engines.metrics import Histogram, over_window

EVENT: Final = "event"
TWO_WORKERS, RESET, RESTARTED = "two_workers", "reset", "restarted"
LOG_UNPARSED, OBSERVER_LOST, SCRAPE_FAILED = "log_unparsed", "observer_lost", "scrape_failed"
GENERATED: Final = "generated_tok"
GENERATED_AT_END: Final = "generated_tok_at_end"
GENERATED_LIVE: Final = "generated_tok_live"
SERVER_SOURCES: Final = ("metrics", "slots", "log")
"""Where the server tells of itself, the most exact first; other sources tell of the machine."""


@dataclass(frozen=True, slots=True)
class Point:
    """One reading of one quantity; the truth lies between `sent_ns` and `received_ns`."""

    sent_ns: int
    received_ns: int
    value: float

    @property
    def at_ns(self) -> int:
        """The middle of sending and receipt."""
        return (self.sent_ns + self.received_ns) // 2


def points(samples: Iterable[ServerSample], name: str) -> list[Point]:
    """Return a quantity's readings in order of time; labels (replicas) of one reading add up."""
    readings: dict[tuple[int, int], float] = {}
    for sample in samples:
        if sample.name == name and sample.value is not None:
            key = (sample.sent_ns, sample.received_ns)
            readings[key] = readings.get(key, 0.0) + sample.value
    found = [Point(sent, got, value) for (sent, got), value in readings.items()]
    return sorted(found, key=lambda point: (point.at_ns, point.received_ns))


def series(samples: Iterable[ServerSample], name: str) -> list[tuple[int, float]]:
    """Return (time in ns, value) of a quantity's readings in order of time."""
    return [(point.at_ns, point.value) for point in points(samples, name)]


def between(found: Sequence[Point], start_ns: int, end_ns: int) -> list[Point]:
    """Return the readings in a stretch of time, both ends included."""
    return [point for point in found if start_ns <= point.at_ns <= end_ns]


def growth(
    samples: Sequence[ServerSample], name: str, span: tuple[int, int] | None = None
) -> float | None:
    """Return how much a counter grew over the samples, or over those within `span` (ns).

    None without two readings, when it fell, or when something spoilt the counters.
    """
    found = points(samples, name)
    if fell(found) or not usable(samples):
        return None
    inside = found if span is None else between(found, *span)
    return inside[-1].value - inside[0].value if len(inside) > 1 else None


def growth_by_label(
    samples: Sequence[ServerSample], name: str, span: tuple[int, int] | None = None
) -> dict[str, float]:
    """Return the growth of each labelled part of a counter, by its label; empty where unusable."""
    parts: dict[str, list[ServerSample]] = {}
    for sample in samples:
        if sample.name == name:
            parts.setdefault(sample.labels, []).append(sample)
    if not usable(samples):
        return {}
    grown = {labels: growth(part, name, span) for labels, part in parts.items()}
    return {labels: value for labels, value in grown.items() if value is not None}


def fell(found: Sequence[Point]) -> Point | None:
    """Return the first reading that is below the one before it."""
    return next((new for old, new in pairwise(found) if new.value < old.value), None)


def events(samples: Iterable[ServerSample], *labels: str) -> list[ServerSample]:
    """Return the rows that mark one of these events."""
    return [sample for sample in samples if sample.name == EVENT and sample.labels in labels]


def usable(samples: Iterable[ServerSample]) -> bool:
    """Whether no event says that the counters are of several workers, or began anew."""
    return not events(samples, TWO_WORKERS, RESET, RESTARTED)


def source(samples: Iterable[ServerSample]) -> str:
    """Return where the server's own figures are from: `metrics`, `slots`, `log` or `none`."""
    told = {
        sample.source
        for sample in samples
        if sample.name not in (EVENT, "log_lines", "log_matched")
    }
    return next((name for name in SERVER_SOURCES if name in told), "none")


def observed(
    samples: Sequence[ServerSample], name: str, span: tuple[int, int] | None = None
) -> Histogram | None:
    """Return what a histogram observed over the samples or over `span` (ns).

    A histogram is repeated only where it changed, so the last one until a time is the one at that
    time. One that appears later than other rows of the same page began from nothing.
    """
    if not usable(samples):
        return None
    shown = _histograms(samples, name)
    if not shown:
        return None
    pages = (s.received_ns for s in samples if s.source == "metrics" and s.name != EVENT)
    first = min(pages, default=shown[0][0])
    start, end = span or (first, shown[-1][0])
    before = next((item for at, item in reversed(shown) if at <= start), None)
    if before is None and first >= shown[0][0]:
        before = shown[0][1]
    after = next((item for at, item in reversed(shown) if at <= end), None)
    return over_window(before, after)


def added(parts: Iterable[Histogram | None]) -> Histogram | None:
    """Return several histograms as one; None where there is none or their buckets differ."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    edges = [edge for edge, _ in known[0].buckets]
    if any([edge for edge, _ in part.buckets] != edges for part in known):
        return None
    counts = [sum(pair[1] for pair in row) for row in zip(*(p.buckets for p in known), strict=True)]
    totals = [part.total for part in known if part.total is not None]
    return Histogram(
        tuple(zip(edges, counts, strict=True)),
        sum(part.count for part in known),
        sum(totals) if len(totals) == len(known) else None,
    )


def _histograms(samples: Sequence[ServerSample], name: str) -> list[tuple[int, Histogram]]:
    """Return (received, histogram) in order of time."""
    pages: dict[int, tuple[dict[float, float], dict[str, float]]] = {}
    for sample in samples:
        if sample.value is None or not sample.name.startswith(name):
            continue
        suffix = sample.name.removeprefix(name)
        if suffix not in ("_bucket", "_count", "_sum"):
            continue
        buckets, rest = pages.setdefault(sample.received_ns, ({}, {}))
        if suffix == "_bucket":
            buckets[float(sample.labels.removeprefix("le="))] = sample.value
        else:
            rest[suffix] = sample.value
    return [
        (at, Histogram(tuple(sorted(b.items())), r.get("_count", max(b.values())), r.get("_sum")))
        for at, (b, r) in sorted(pages.items())
        if b
    ]

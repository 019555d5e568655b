"""What a page draws of a cell beyond its figures: distributions and one round's course in time.

Everything is thinned while it is made, so that a page of ten million token stamps stays small:
distributions become quantile curves, the gaps between token events a histogram of logarithmic
bins, a round at most `MOST_BARS` requests and curves of `CURVE_BINS` points. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from concbench.analyse.counters import GENERATED_LIVE, fell, points, usable
from concbench.analyse.evidence import Evidence
from concbench.analyse.flight import Steps, bin_means
from concbench.analyse.streams import Stream, times_of, tokens_of
from concbench.analyse.windows import NoWindow, Window, in_flight
from concbench.domain import Round, ServerSample

MOST_BARS = 48
CURVE_BINS = 120
QUANTILES = 60
BINS_PER_DECADE = 40
TOLD_PCT = (5, 25, 50, 75, 90, 95, 99)
"""Percentiles that a page tells of a distribution; thinning keeps the values that they are."""

_GAP_DECADES = (-2, 5)
Floats = NDArray[np.float64]
Curve = tuple[tuple[float, ...], tuple[float, ...]]
"""Times in seconds from the round's start, and values."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A cumulative distribution: `shares[i]` of `n` values are at most `values[i]` (ms)."""

    values: tuple[float, ...]
    shares: tuple[float, ...]
    n: int


@dataclass(frozen=True, slots=True)
class Bar:
    """One request in seconds from the round's start; what never came is None."""

    index: int
    due_s: float
    sent_s: float | None
    first_s: float | None
    end_s: float | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Course:
    """One round over time. `requests` counts all of them, `bars` holds those that are drawn.

    `rate` is the client's tok/s, `in_flight` its own count, the others are the server's gauges and
    the growth of its counter; an empty curve is not known.
    """

    round_id: str
    requests: int
    bars: tuple[Bar, ...]
    window_s: tuple[float, float] | None
    no_window: str | None
    length_s: float
    in_flight: Curve
    rate: Curve
    running: Curve
    waiting: Curve
    kv_usage: Curve
    server_rate: Curve


@dataclass(frozen=True, slots=True)
class Exhibit:
    """What there is to draw of one cell. A distribution without values is None."""

    cell: str
    ttft: Distribution | None
    e2e: Distribution | None
    gaps: Distribution | None
    course: Course | None
    elapsed_s: float | None


def exhibit_of(seen: Evidence) -> Exhibit:
    """Return what to draw of a cell; its last measured round is the one that is shown in time."""
    ttft = [felt.ttft_ms for felt in seen.felt]
    e2e = [felt.e2e_ms for felt in seen.felt]
    gaps = np.zeros(_edges().size + 1, dtype=np.int64)
    for felt in seen.felt:
        gaps += np.bincount(_edges().searchsorted(felt.icl_ms), minlength=gaps.size)
    course = None
    if seen.rounds:
        course = course_of(seen.rounds[-1], seen.streams[-1], seen.windows[-1])
    walls = [(each.end_ns - each.start_ns) / 1e9 for each in seen.rounds]
    return Exhibit(
        seen.cell.cell,
        quantile_curve(np.concatenate(ttft) if ttft else np.empty(0)),
        quantile_curve(np.concatenate(e2e) if e2e else np.empty(0)),
        _from_bins(gaps),
        course,
        float(np.median(walls)) if walls else None,
    )


def quantile_curve(values: Floats, most: int = QUANTILES) -> Distribution | None:
    """Return the empirical distribution: every value, or at most `most` of its order statistics.

    The least and the greatest value are always among them, and the nearest ranks of the percentiles
    that a page tells; None without a value.
    """
    ordered = np.sort(values[np.isfinite(values)])
    n = int(ordered.size)
    if not n:
        return None
    told = [-(-n * percent // 100) for percent in TOLD_PCT] if n > most else []
    even = np.linspace(1, n, min(n, most - len(told))).round().astype(int)
    ranks = np.unique(np.concatenate([even, told]).astype(int))
    return Distribution(
        tuple(round(float(value), 4) for value in ordered[ranks - 1]),
        tuple(round(float(rank) / n, 5) for rank in ranks),
        n,
    )


def _edges() -> Floats:
    """Return the bins' upper edges in ms."""
    low, high = _GAP_DECADES
    edges: Floats = np.logspace(low, high, (high - low) * BINS_PER_DECADE + 1)
    return edges


def _from_bins(counts: NDArray[np.int64]) -> Distribution | None:
    """Return the distribution of a histogram, at the upper edge of each bin that holds a value."""
    total = int(counts.sum())
    if not total:
        return None
    kept = np.flatnonzero(counts[:-1])
    shares = counts.cumsum()[kept] / total
    return Distribution(
        tuple(float(f"{edge:.4g}") for edge in _edges()[kept]),
        tuple(round(float(share), 6) for share in shares),
        total,
    )


def course_of(round_: Round, streams: Sequence[Stream], window: Window | NoWindow) -> Course:
    """Return one round over time."""
    start = round_.start_ns
    length_ns = max(1, round_.end_ns - start)
    edges = np.linspace(start, start + length_ns, _bins(streams, length_ns) + 1).astype(np.int64)
    samples = round_.samples if usable(round_.samples) else []
    shaded, reason = _shaded(window, start)
    ordered = sorted(streams, key=lambda stream: (stream.record.due_ns, stream.record.index))
    return Course(
        round_id=round_.round_id,
        requests=len(ordered),
        bars=tuple(_bar(stream, start) for stream in thinned(ordered, MOST_BARS)),
        window_s=shaded,
        no_window=reason,
        length_s=length_ns / 1e9,
        in_flight=_means(in_flight(round_), edges, start),
        rate=_rate(streams, edges, start),
        running=_gauge(samples, ("running", "log_running"), start, length_ns),
        waiting=_gauge(samples, ("waiting", "log_waiting"), start, length_ns),
        kv_usage=_gauge(samples, ("kv_usage", "log_kv_usage"), start, length_ns),
        server_rate=_server_rate(samples, edges, start),
    )


def thinned(items: Sequence[Stream], most: int) -> list[Stream]:
    """Return at most `most` of the items, evenly chosen, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    places = np.unique(np.linspace(0, len(items) - 1, most).round().astype(int))
    return [items[place] for place in places]


def _bins(streams: Sequence[Stream], length_ns: int) -> int:
    """Return how many bins: fine enough to see, coarse enough for several tokens in each."""
    events = sum(int(stream.times_ns.size) for stream in streams)
    slots = max(1, len(streams))
    per_stream = events / slots
    return int(min(CURVE_BINS, max(8, per_stream / 2), max(1, length_ns / 1e7)))


def _bar(stream: Stream, start: int) -> Bar:
    record = stream.record
    last = stream.last_ns if record.outcome == "ok" else record.end_ns
    return Bar(
        record.index,
        (record.due_ns - start) / 1e9,
        _since(record.sent_ns, start),
        _since(stream.first_ns, start),
        _since(last, start),
        record.outcome,
    )


def _since(stamp: int | None, start: int) -> float | None:
    return None if stamp is None else (stamp - start) / 1e9


def _shaded(window: Window | NoWindow, start: int) -> tuple[tuple[float, float] | None, str | None]:
    if isinstance(window, NoWindow):
        return None, window.reason
    return ((window.start_ns - start) / 1e9, (window.end_ns - start) / 1e9), None


def _middles(edges: NDArray[np.int64], start: int) -> tuple[float, ...]:
    middles = ((edges[:-1] + edges[1:]) / 2 - start) / 1e9
    return tuple(round(float(at), 4) for at in middles)


def _means(steps: Steps, edges: NDArray[np.int64], start: int) -> Curve:
    means = bin_means(steps, edges)
    return _middles(edges, start), tuple(round(float(value), 3) for value in means)


def _rate(streams: Sequence[Stream], edges: NDArray[np.int64], start: int) -> Curve:
    """Return the client's tok/s in each bin, by the tokens' own stamps."""
    totals = np.histogram(times_of(streams), edges, weights=tokens_of(streams))[0]
    if not totals.any():
        return (), ()
    rates = totals / (np.diff(edges) / 1e9)
    return _middles(edges, start), tuple(float(f"{value:.5g}") for value in rates)


def _gauge(
    samples: Sequence[ServerSample], names: Sequence[str], start: int, length_ns: int
) -> Curve:
    """Return a gauge's readings within the round, of the first name that has any."""
    for name in names:
        source = {sample.source for sample in samples if sample.name == name}
        # Two sources of one name (metrics and slots) must not be added up.
        chosen = [s for s in samples if s.name == name and s.source == min(source)]
        found = [p for p in points(chosen, name) if 0 <= p.at_ns - start <= length_ns]
        if found:
            places = np.unique(np.linspace(0, len(found) - 1, CURVE_BINS).round().astype(int))
            kept = [found[place] for place in places]
            return (
                tuple(round((point.at_ns - start) / 1e9, 4) for point in kept),
                tuple(round(point.value, 4) for point in kept),
            )
    return (), ()


def _server_rate(samples: Sequence[ServerSample], edges: NDArray[np.int64], start: int) -> Curve:
    """Return the server's tok/s from the counter that moves at every step; empty where none does.

    The counter is read at its own times and interpolated at the bins' edges.
    """
    found = points(samples, GENERATED_LIVE)
    if len(found) < 3 or fell(found) is not None:
        return (), ()
    times = np.array([point.at_ns for point in found], dtype=np.int64)
    counts = np.array([point.value for point in found])
    inside = edges[(edges >= times[0]) & (edges <= times[-1])]
    if inside.size < 3:
        return (), ()
    at = np.interp((inside - start).astype(float), (times - start).astype(float), counts)
    rates = np.diff(at) / (np.diff(inside) / 1e9)
    return _middles(inside, start), tuple(float(f"{value:.5g}") for value in rates)

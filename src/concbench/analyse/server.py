"""The server's own accounting beside the client's: its rate over the same stretch, its gauges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from concbench.analyse.acceptance import acceptance
from concbench.analyse.counters import (
    EVENT,
    GENERATED,
    GENERATED_LIVE,
    SCRAPE_FAILED,
    TWO_WORKERS,
    Point,
    added,
    between,
    events,
    growth,
    observed,
    points,
    source,
    usable,
)
from concbench.analyse.estimate import mean_estimate
from concbench.analyse.logwindows import LogWindow, log_windows, whole_windows
from concbench.analyse.streams import Stream
from concbench.analyse.windows import NoWindow, Window, in_flight, tokens_between
from concbench.domain import Estimate, Round
from concbench.engines.metrics import summary_ms
from concbench.result import Server

MIN_WINDOW_SHARE: Final = 0.5
SLOW_READING_NS: Final = 50_000_000
"""A reading that took longer, and four times the usual, is no good edge for a rate."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Client and server over the same stretch of one round, tok/s.

    `edge` is the relative error that N tokens at the edges, and the time that the readings at
    both ends took, may make.
    """

    client_tok_per_s: float
    server_tok_per_s: float
    edge: float


def agreement(
    round_: Round, streams: Sequence[Stream], window: Window | NoWindow
) -> Agreement | None:
    """Return both rates between the first and the last reading inside the steady window.

    Both sides are cut at the readings' times, so nothing is interpolated. None without a window,
    without a counter that moves at every step, or when the readings span less than half of it.
    """
    if isinstance(window, NoWindow) or not usable(round_.samples):
        return None
    inside = _live_points(round_, window)
    if len(inside) < 2:
        return None
    first, last = inside[0], inside[-1]
    length_ns, grown = last.at_ns - first.at_ns, last.value - first.value
    if length_ns < MIN_WINDOW_SHARE * (window.end_ns - window.start_ns) or grown <= 0:
        return None
    tokens, instants = tokens_between(streams, first.at_ns, last.at_ns)
    # A step may bring a stream several tokens, and the edge then costs all of them.
    step_tok = max(1.0, tokens / instants) if instants else 1.0
    took_ns = sum(point.received_ns - point.sent_ns for point in (first, last)) / 2
    return Agreement(
        tokens / length_ns * 1e9,
        grown / length_ns * 1e9,
        round_.cell.concurrency * step_tok / grown + took_ns / length_ns,
    )


def server_view(
    rounds: Sequence[Round],
    windows: Sequence[Window | NoWindow],
    agreed: Sequence[Agreement | None],
) -> Server:
    """Return the server's part of the result: what its samples told, inside the windows.

    Where two workers answer in turn no figure describes either, and none is given.
    """
    samples = [sample for each in rounds for sample in each.samples]
    told = source(samples)
    if told == "none":
        return Server()
    if events(samples, TWO_WORKERS):
        return Server(source=told, scrape_ms=scrape_ms(rounds))
    reports = [whole_windows(each.samples, each.cell.concurrency) for each in rounds]
    running = [value for pair in _spans(rounds, windows) for value in running_in(*pair)]
    return Server(
        source=told,
        output_tok_per_s=_rate(agreed, reports),
        running_mean=sum(running) / len(running) if running else None,
        running_max=_largest(rounds, "running", "log_running"),
        waiting_max=_largest(rounds, "waiting", "log_waiting"),
        queue_ms=_queue_ms(rounds, windows),
        preemptions=total(rounds, "preemptions"),
        cached_tok=_either(total(rounds, "cached_tok"), total(rounds, "prefix_hits_tok")),
        kv_usage_max=_largest(rounds, "kv_usage", "log_kv_usage"),
        acceptance=acceptance(rounds, windows),
        scrape_ms=scrape_ms(rounds),
        log_windows=_log_windows(reports),
    )


def total(rounds: Sequence[Round], name: str) -> int | None:
    """Return how much a counter grew over all rounds; None where one of them does not tell."""
    grown = [growth(each.samples, name) for each in rounds]
    known = [value for value in grown if value is not None]
    return round(sum(known)) if known and len(known) == len(grown) else None


def cache_use(rounds: Sequence[Round]) -> tuple[int | None, int | None]:
    """Return prompt tokens found in the cache and looked up in it over all rounds.

    Engines count differently: vLLM has a pair of counters; llama.cpp's and SGLang's live one of
    prompt tokens leave the cached ones out. None is what is not told.
    """
    hits, queries = total(rounds, "prefix_hits_tok"), total(rounds, "prefix_queries_tok")
    if hits is not None and queries is not None:
        return hits, queries
    cached, computed = total(rounds, "cached_tok"), total(rounds, "prompt_computed_tok")
    if cached is not None and computed is not None:
        return cached, cached + computed
    return _either(cached, hits), total(rounds, "prompt_tok")


def running_in(round_: Round, span: tuple[int, int]) -> list[float]:
    """Return how many requests the server ran, at its readings within a stretch (ns)."""
    found = between(points(round_.samples, "running"), *span)
    if found:
        return [point.value for point in found]
    reports = log_windows(round_.samples)
    return [report.running for report in reports if span[0] <= report.at_ns <= span[1]]


def loaded_span(round_: Round, window: Window | NoWindow) -> tuple[int, int]:
    """Return the stretch in which the server was loaded as the cell says (ns).

    The window where there is one; else the time in which more requests were under way than the
    server ever ran, which is when it was full; else all the time that requests were under way.
    """
    if isinstance(window, Window):
        return window.start_ns, window.end_ns
    flight = in_flight(round_)
    if not flight.times_ns.size:
        return round_.start_ns, round_.end_ns
    ran = max((point.value for point in points(round_.samples, "running")), default=None)
    full = flight.times_ns[:-1][flight.counts[:-1] > ran] if ran else flight.times_ns[:0]
    if ran and full.size:
        last = flight.times_ns[1:][flight.counts[:-1] > ran][-1]
        return int(full[0]), int(last)
    return int(flight.times_ns[0]), int(flight.times_ns[-1])


def scrape_ms(rounds: Sequence[Round]) -> dict[str, Any] | None:
    """Return how long the server took to answer the readings: n, failed, mean, p50 and max."""
    samples = [sample for each in rounds for sample in each.samples]
    took = sorted(
        (received - sent) / 1e6
        for sent, received in {
            (s.sent_ns, s.received_ns)
            for s in samples
            if s.name != EVENT and s.source in ("metrics", "slots", "activity")
        }
    )
    failed = len(events(samples, SCRAPE_FAILED))
    if not took:
        return None
    return {
        "n": len(took),
        "failed": failed,
        "mean": sum(took) / len(took),
        "p50": took[(len(took) - 1) // 2],
        "max": took[-1],
    }


def _live_points(round_: Round, window: Window) -> list[Point]:
    """Return the readings of a counter that moves at every step, slow ones left out.

    What polls of slots add up misses the end of every request, so it serves only where none ends.
    """
    names = (GENERATED, GENERATED_LIVE) if window.estimand == "decode" else (GENERATED,)
    for name in names:
        inside = between(points(round_.samples, name), window.start_ns, window.end_ns)
        if len(inside) < 2:
            continue
        usual = median(point.received_ns - point.sent_ns for point in inside)
        limit = max(SLOW_READING_NS, 4 * usual)
        return [point for point in inside if point.received_ns - point.sent_ns <= limit]
    return []


def _spans(
    rounds: Sequence[Round], windows: Sequence[Window | NoWindow]
) -> list[tuple[Round, tuple[int, int]]]:
    pairs = zip(rounds, windows, strict=True)
    return [(each, loaded_span(each, window)) for each, window in pairs]


def _rate(
    agreed: Sequence[Agreement | None], reports: Sequence[Sequence[LogWindow]]
) -> Estimate | None:
    """From counters; from the engine's own whole log windows where no counter moves live."""
    known = [item.server_tok_per_s for item in agreed if item is not None]
    if not known:
        known = [sum(w.tok_per_s for w in part) / len(part) for part in reports if part]
    return mean_estimate(known)


def _log_windows(reports: Sequence[Sequence[LogWindow]]) -> dict[str, Any] | None:
    rates = [window.tok_per_s for part in reports for window in part]
    if not rates:
        return None
    return {
        "n": len(rates),
        "tok_per_s": sum(rates) / len(rates),
        "min": min(rates),
        "max": max(rates),
    }


def _queue_ms(
    rounds: Sequence[Round], windows: Sequence[Window | NoWindow]
) -> dict[str, Any] | None:
    """Over the windows of loops; over whole rounds of bursts, whose requests end after theirs."""
    spans = [
        (window.start_ns, window.end_ns)
        if isinstance(window, Window) and window.estimand == "sustained"
        else None
        for window in windows
    ]
    parts = [observed(r.samples, "queue_s", span) for r, span in zip(rounds, spans, strict=True)]
    found = summary_ms(added(parts))
    if found is None and any(spans):
        found = summary_ms(added(observed(each.samples, "queue_s") for each in rounds))
    return None if found is None else dict(found)


def _largest(rounds: Sequence[Round], *names: str) -> float | None:
    """Return the largest reading of the first of these names that was read at all."""
    for name in names:
        values = [
            sample.value
            for each in rounds
            for sample in each.samples
            if sample.name == name and sample.value is not None
        ]
        if values:
            return max(values)
    return None


def _either(first: int | None, second: int | None) -> int | None:
    return second if first is None else first

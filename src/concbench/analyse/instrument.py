"""The client's own error: how late it read and sent, and what of that stamping did not rescue.

A kernel stamp rescues a late *stamp* of one event. What remains is the error of events that
lay unread until others joined them, of reads without a kernel stamp, and of late sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from concbench.analyse.bundling import Bundling
from concbench.analyse.estimate import summary
from concbench.analyse.streams import Floats, Samples, Stream
from concbench.domain import Round
from concbench.result import Instrument

LATE_EVENT_SHARE = 0.01
REMAINING_SHARE = 0.10
CEILING_SHARE = 0.80
FLOOR_MS = 1.0
"""Errors under this are what a timer or a scheduler does anyway: no reason for a doubt."""

CLOCK_STEP_NS = 1_000_000
FULLY_STAMPED_PCT = 99.0


@dataclass(frozen=True, slots=True)
class ClientError:
    """What remains of the client's error. `events_ms` has one entry a token event.

    `late_events` are those whose remaining error is no less than half a TPOT (1 ms where TPOT is
    unknown); p99s in milliseconds, None where there is nothing to take them of.
    """

    events_ms: Floats
    late_events: int
    remaining_p99_ms: float | None
    read_lateness_p99_ms: float | None
    send_delay_p99_ms: float | None
    tpot_ms: float | None
    ttft_ms: float | None
    client_limit: int

    @property
    def late_share(self) -> float:
        """Late events as a share of all token events."""
        return self.late_events / self.events_ms.size if self.events_ms.size else 0.0


def instrument(
    rounds: Sequence[Round], error: ClientError, ceiling_tok_per_s: float | None = None
) -> Instrument:
    """Return the instrument's part of the result, pooled over the rounds."""
    reads = sum(each.instrument.reads for each in rounds)
    stamped = sum(each.instrument.stamped_reads for each in rounds)
    rtts = [each.instrument.min_rtt_ns for each in rounds]
    cpus = [each.instrument.client_cpu for each in rounds if each.instrument.client_cpu is not None]
    clocks = [each.instrument.clock_bound_ns for each in rounds]
    bounds = [bound for bound in clocks if bound is not None]
    known_rtts = [rtt for rtt in rtts if rtt is not None]
    kernel = bool(rounds) and all(each.instrument.stamp == "kernel" for each in rounds)
    return Instrument(
        stamp="kernel" if kernel else "user",
        stamped_pct=100 * stamped / reads if reads else None,
        read_lateness_ms=summary(read_lateness_ms(rounds)),
        late_after_stamp_ms=summary(error.events_ms),
        loop_lag_ms=summary(loop_lag_ms(rounds)),
        min_rtt_ms=min(known_rtts) / 1e6 if known_rtts else None,
        client_cpu=max(cpus) if cpus else None,
        ceiling_tok_per_s=ceiling_tok_per_s,
        start_spread_ms=start_spread_ms(rounds),
        clock_bound_ms=max(bounds) / 1e6 if bounds else None,
    )


def start_spread_ms(rounds: Sequence[Round]) -> float | None:
    """Return the widest last − first sent of the bursts: how much at once "at once" was, in ms.

    None where no round is a burst.
    """
    spreads = []
    for each in rounds:
        sent = [record.sent_ns for record in each.requests if record.sent_ns is not None]
        if each.workload.arrival == "burst" and sent:
            spreads.append((max(sent) - min(sent)) / 1e6)
    return max(spreads, default=None)


def read_lateness_ms(rounds: Sequence[Round]) -> Floats:
    """Return user − kernel stamp of the stamped reads of all rounds, in ms."""
    return _pool([each.instrument.read_lateness_ns for each in rounds])


def loop_lag_ms(rounds: Sequence[Round]) -> Floats:
    """Return the event loop's lateness at each tick of all rounds, in ms."""
    return _pool([each.instrument.loop_lag_ns for each in rounds])


def p99(values: Floats) -> float | None:
    """Return the nearest-rank 99th percentile; the maximum of fewer than 100, None of none.

    A threshold must not be escaped by a small sample, so unlike a summary's this always exists.
    """
    if not values.size:
        return None
    ordered = np.sort(values)
    return float(ordered[-(-ordered.size * 99 // 100) - 1])


def client_error(
    rounds: Sequence[Round],
    streams: Sequence[Stream],
    found: Bundling,
    felt: Samples,
) -> ClientError:
    """Return what remains of the client's error over the rounds' token events.

    `streams`, `found` (their bundling) and `felt` (their samples) belong to the same rounds.
    """
    total = sum(stream.times_ns.size for stream in streams)
    unstamped = sum(int(np.count_nonzero(~stream.stamped)) for stream in streams)
    coalesced = found.late_error_ns / 1e6
    lag = loop_lag_ms(rounds)
    # Unstamped events were late by what the loop was late: its quantiles are spread over them.
    guessed = np.zeros(unstamped)
    if lag.size and unstamped:
        guessed = np.quantile(lag, (np.arange(unstamped) + 0.5) / unstamped)
    clean = np.zeros(max(0, total - unstamped - coalesced.size))
    events_ms = np.concatenate((clean, guessed, coalesced))
    tpot_ms = None if found.tpot_ns is None else found.tpot_ns / 1e6
    floor = FLOOR_MS if tpot_ms is None else max(FLOOR_MS, tpot_ms / 2)
    # Coalesced events were told apart by lateness ≥ TPOT/2 already; no second threshold.
    late = int(np.count_nonzero(guessed >= floor)) + int(coalesced.size)
    return ClientError(
        events_ms=events_ms,
        late_events=late,
        remaining_p99_ms=p99(events_ms),
        read_lateness_p99_ms=p99(read_lateness_ms(rounds)),
        send_delay_p99_ms=p99(felt.send_delay_ms),
        tpot_ms=tpot_ms,
        ttft_ms=float(np.median(felt.ttft_ms)) if felt.ttft_ms.size else None,
        client_limit=sum(
            record.error == "client_limit" for each in rounds for record in each.requests
        ),
    )


def client_bound_by(
    error: ClientError, rate_tok_per_s: float | None, ceiling_tok_per_s: float | None
) -> dict[str, Any]:
    """Return the figures that say the client was the bottleneck; empty if there are none."""
    found: dict[str, Any] = {}
    if error.late_share > LATE_EVENT_SHARE:
        found["late_events_pct"] = 100 * error.late_share
    if _exceeds(error.remaining_p99_ms, error.tpot_ms, REMAINING_SHARE):
        found["remaining_p99_ms"] = error.remaining_p99_ms
        found["tpot_ms"] = error.tpot_ms
    if _exceeds(error.send_delay_p99_ms, error.ttft_ms, REMAINING_SHARE):
        found["send_delay_p99_ms"] = error.send_delay_p99_ms
        found["ttft_ms"] = error.ttft_ms
    if rate_tok_per_s is not None and ceiling_tok_per_s:
        share = rate_tok_per_s / ceiling_tok_per_s
        if share > CEILING_SHARE:
            found["ceiling_used_pct"] = 100 * share
            found["ceiling_tok_per_s"] = ceiling_tok_per_s
    if error.client_limit:
        found["client_limit_errors"] = error.client_limit
    return found


def late_reads_by(error: ClientError) -> dict[str, Any]:
    """Return the figures that make reads late before stamping is counted in; empty if none."""
    found: dict[str, Any] = {}
    if _exceeds(error.read_lateness_p99_ms, error.tpot_ms, REMAINING_SHARE):
        found["read_lateness_p99_ms"] = error.read_lateness_p99_ms
        found["tpot_ms"] = error.tpot_ms
    if error.late_share > LATE_EVENT_SHARE / 10:
        found["late_events_pct"] = 100 * error.late_share
    return found


def late_sends_by(error: ClientError) -> dict[str, Any]:
    """Return the figures that make sends late; empty if none. 1 ms or 1 % of the median TTFT."""
    if _exceeds(error.send_delay_p99_ms, error.ttft_ms, REMAINING_SHARE / 10):
        return {"send_delay_p99_ms": error.send_delay_p99_ms, "ttft_ms": error.ttft_ms}
    return {}


def _exceeds(value: float | None, scale: float | None, share: float) -> bool:
    """Whether a value is above a share of its scale, and above the floor."""
    return value is not None and scale is not None and value > max(FLOOR_MS, share * scale)


def _pool(parts: Sequence[Sequence[int]]) -> Floats:
    arrays = [np.asarray(part, dtype=np.float64) for part in parts]
    return np.concatenate(arrays) / 1e6 if arrays else np.empty(0)

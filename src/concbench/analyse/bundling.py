"""Events that came together: bundled before they reached us, or read late by us.

A read with several events whose lateness is at least half a TPOT is the client's fault: it let
data lie until more had come. Otherwise somebody upstream put them together: a buffering proxy,
or an engine that sends the tokens of one speculative step as several events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from concbench.analyse.streams import Ints, Stream, icl_ns, tpot_ns

BUFFERED_SHARE = 0.7
"""Share of events with no gap to the one before: 0.7 is more than three events an instant."""

SPECULATION_EVENTS = 20
"""Known speculation explains this many events an instant (drafts end at about 16)."""


@dataclass(frozen=True, slots=True)
class Bundling:
    """Counts over token events. `tpot_ns` is the median over the `ok` requests.

    `late` came in client-fault reads before their last event, `bundled` with no gap for a cause
    upstream; `whole` of `streams` came with all their events at one instant. `late_error_ns`
    bounds how far each of the `late` stamps may be off.
    """

    events: int
    streams: int
    bundled: int
    late: int
    whole: int
    tpot_ns: float | None
    late_error_ns: Ints

    @property
    def bundled_share(self) -> float:
        """Events without a gap to their predecessor, as a share of those that have one."""
        gaps = self.events - self.streams
        return self.bundled / gaps if gaps > 0 else 0.0

    @property
    def events_per_instant(self) -> float:
        """Mean number of events that arrived together for a cause upstream."""
        instants = self.events - self.bundled
        return self.events / instants if instants else 0.0

    def buffered(self, *, speculation: bool) -> bool:
        """Whether the gaps tell of a buffer upstream rather than of the engine."""
        if self.streams == 0:
            return False
        if 2 * self.whole >= self.streams:
            return True
        if speculation and self.events_per_instant <= SPECULATION_EVENTS:
            return False
        return self.bundled_share > BUFFERED_SHARE


def bundling(streams: Sequence[Stream], loop_lag_ns: float = 0.0) -> Bundling:
    """Return how the events of the `ok` streams with at least two events arrived.

    `loop_lag_ns` (its p99) stands for the lateness of reads without a kernel stamp.
    """
    chosen = [s for s in streams if s.record.outcome == "ok" and s.times_ns.size >= 2]
    tpots = [value for value in map(tpot_ns, chosen) if value is not None]
    tpot = float(np.median(tpots)) if tpots else None
    errors: list[Ints] = []
    events = sum(int(stream.times_ns.size) for stream in chosen)
    whole = sum(int(stream.times_ns[0] == stream.times_ns[-1]) for stream in chosen)
    bundled = late = 0
    for stream in chosen if not np.all(icl_ns(*chosen)) else ():
        joined = np.flatnonzero(np.diff(stream.times_ns) == 0)
        if not joined.size:
            continue
        lateness = np.where(stream.stamped, stream.lateness_ns, int(loop_lag_ns))
        fault = np.zeros(joined.size, dtype=bool)
        if tpot is not None:
            fault = lateness[joined] >= tpot / 2
            errors.append(_late_errors(stream, joined[fault], tpot))
        late += int(fault.sum())
        bundled += int(joined.size - fault.sum())
    joined_errors = np.concatenate(errors) if errors else np.empty(0, dtype=np.int64)
    return Bundling(events, len(chosen), bundled, late, whole, tpot, joined_errors)


def _late_errors(stream: Stream, late: Ints, tpot: float) -> Ints:
    """How far the stamps of late events may be off, in ns.

    The kernel stamps a read with its last byte's time. The k-th event before the last came about
    k·TPOT earlier, but not before the previous read, which had drained the socket.
    """
    if not late.size:
        return late.astype(np.int64)
    times = stream.times_ns
    begin = np.searchsorted(times, times[late], side="left")
    last = np.searchsorted(times, times[late], side="right") - 1
    guess = (last - late) * tpot
    drained = np.where(begin > 0, stream.user_ns[np.maximum(begin - 1, 0)], stream.user_ns[0])
    room = np.where(begin > 0, times[late] - drained, guess)
    bounded: Ints = np.maximum(0, np.minimum(guess, room)).astype(np.int64)
    return bounded

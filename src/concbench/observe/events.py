"""What makes a server's counters unusable: resets, restarts, two workers behind one port.

Rows named `event` whose label says which. Two workers that answer in turns look like a counter
that falls and comes back; a reset falls and stays down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from concbench.domain import ServerSample
from concbench.observe.page import Page

EVENT: Final = "event"
RESET: Final = "reset"
TWO_WORKERS: Final = "two_workers"
RESTARTED: Final = "restarted"
LOG_UNPARSED: Final = "log_unparsed"
LOG_ENDED: Final = "log_ended"
OBSERVER_RESTARTED: Final = "observer_restarted"
OBSERVER_LOST: Final = "observer_lost"
NOT_POLLED: Final = "not_polled"
SCRAPE_FAILED: Final = "scrape_failed"

_WATCHED = ("generated_tok", "generated_tok_at_end", "requests_ok", "prompt_computed_tok")

Reading = tuple[int, int, Page]
"""sent_ns, received_ns, page."""


def event(
    label: str, sent_ns: int, received_ns: int, value: float | None = None, source: str = "metrics"
) -> ServerSample:
    """Return an event's row; its value is explained where it is made."""
    return ServerSample(
        sent_ns=sent_ns,
        received_ns=received_ns,
        source=source,
        name=EVENT,
        labels=label,
        value=value,
    )


def counter_events(readings: Sequence[Reading]) -> Iterator[ServerSample]:
    """Yield what the pages of one stretch of time show.

    The value of `reset` is what the counter fell by, of `restarted` None, of `two_workers` how
    often the answering worker changed. Two workers hide resets and restarts: only they are told.
    """
    lives = [reading for reading in readings if reading[2].identity]
    turns = [new for old, new in pairwise(lives) if old[2].identity != new[2].identity]
    if _comes_back([reading[2].identity for reading in lives]):
        yield event(TWO_WORKERS, turns[0][0], turns[0][1], float(len(turns)))
        return
    counted = _counted(readings)
    falls = [(old, new) for old, new in pairwise(counted) if new[2] < old[2]]
    if len(falls) > 1 and not turns and two_series([value for _, _, value in counted]):
        first = falls[0][1]
        switches = 2 * len(falls)
        yield event(TWO_WORKERS, first[0], first[1], float(switches))
        return
    for sent_ns, received_ns, _ in turns:
        yield event(RESTARTED, sent_ns, received_ns)
    if not turns:
        for old, new in falls:
            yield event(RESET, new[0], new[1], new[2] - old[2])


def _comes_back(identities: Sequence[tuple[float, ...]]) -> bool:
    """Whether a life that had been left is met again."""
    left: set[tuple[float, ...]] = set()
    for old, new in pairwise(identities):
        if old != new:
            left.add(old)
            if new in left:
                return True
    return False


def _counted(readings: Sequence[Reading]) -> list[tuple[int, int, float]]:
    """Return the readings of the first counter that the pages have."""
    for name in _WATCHED:
        found = [
            (sent_ns, received_ns, page.scalars[name])
            for sent_ns, received_ns, page in readings
            if name in page.scalars
        ]
        if found:
            return found
    return []


def two_series(values: Sequence[float]) -> bool:
    """Whether the values are two counters, neither of which ever falls, told in turns.

    Each value goes to the counter that is nearest below it. A counter that starts again and
    again from 0 is no pair: sooner or later a value is below both.
    """
    lasts: list[float] = []
    for value in values:
        below = [last for last in lasts if last <= value]
        if below:
            lasts[lasts.index(max(below))] = value
        elif len(lasts) < 2:
            lasts.append(value)
        else:
            return False
    return len(lasts) == 2

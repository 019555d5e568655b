"""Doubts about the server's own accounting, and what it says of others and of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from concbench.analyse.agree import disagrees, edge_pct
from concbench.analyse.counters import (
    EVENT,
    GENERATED,
    GENERATED_AT_END,
    OBSERVER_LOST,
    RESET,
    RESTARTED,
    TWO_WORKERS,
    Point,
    events,
    fell,
    points,
)
from concbench.analyse.doubts_tokens import ESTIMATED
from concbench.analyse.evidence import Evidence
from concbench.analyse.severity import doubt
from concbench.analyse.windows import in_flight
from concbench.domain import Doubt, Round
from concbench.result import CellResult

BEYOND_SHARE: Final = 0.20
MIN_BEYOND: Final = 3
"""Readings with more requests running than we had under way before others must be there."""


def counters(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Counters that began anew, or are of several workers; a restart where that was the cause."""
    restarted = [each.round_id for each in seen.rounds if _restarted(each)]
    if restarted:
        yield doubt(
            "server_restarted",
            result.cell,
            f"the server restarted in {len(restarted)} rounds: part of the time it served nothing, "
            "and its counters began anew. Find out why (its log, memory), and measure again.",
            {"rounds": restarted},
        )
    causes = {
        cause: rounds
        for cause, chosen in _CAUSES.items()
        if (rounds := [r.round_id for r in seen.rounds if chosen(r) and not _restarted(r)])
    }
    if not causes:
        return
    needed = _needs_counters(result)
    effect = "the headline rests on them" if needed else "the headline is the client's own count"
    yield doubt(
        "counters_unusable",
        result.cell,
        f"{'; '.join(causes)}: no figure of the server's is used, and {effect}. See that one "
        "engine alone answers at the metrics address, and measure again.",
        {"causes": causes, "headline_needs_them": needed},
        needed=needed,
    )


def foreign(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Others were served at the same time: by tokens, or by requests running."""
    books, book = seen.books, result.ledger
    surplus = book.foreign is not None and book.foreign > books.slack_tok + books.unread_tok
    beyond = max((_beyond(each) for each in seen.rounds), default=0.0)
    if not surplus and not beyond:
        return
    told = (
        f"the server generated {book.generated} tokens and {book.received} arrived here"
        if surplus
        else f"the server ran up to {beyond:.0f} requests more than were sent from here"
    )
    yield doubt(
        "foreign_traffic",
        result.cell,
        f"{told}: somebody else was served, so rates are too low and latencies too long; the "
        "server's rate is not used. Keep other users away, and measure again.",
        {
            "generated": book.generated,
            "received": book.received,
            "foreign": book.foreign,
            "requests_beyond": beyond,
        },
    )


def disagree(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Client and server that count differently: in total, or over the same stretch."""
    books, book = seen.books, result.ledger
    if book.foreign is not None and book.foreign < -books.slack_tok:
        yield doubt(
            "client_server_disagree",
            result.cell,
            f"the server generated {book.generated} tokens and {book.received} arrived here: one "
            "of the two counts wrongly, and the server's rate is not used. Look at the token "
            "source, and whether all of the engine's workers are on that metrics page.",
            {"generated": book.generated, "received": book.received, "foreign": book.foreign},
        )
    off = result.agreement_pct
    if off is None or not disagrees(seen, off):
        return
    yield doubt(
        "client_server_disagree",
        result.cell,
        f"over the same stretch client and server differ by {off:+.1f} % though all tokens "
        "arrived: the client times wrongly, so the server's rate is the headline. Look at the "
        "client's lateness, and at proxies that hold tokens back.",
        {"agreement_pct": off, "edge_pct": edge_pct(seen)},
    )


def preempted(_: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Requests that the engine threw out and computed again."""
    if not result.server.preemptions:
        return
    yield doubt(
        "preempted",
        result.cell,
        f"the engine preempted {result.server.preemptions} requests: part of the work was done "
        "twice, so rates are below what fits would give. Lower N or give it more KV cache.",
        {"preemptions": result.server.preemptions},
    )


def simulated(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Speculation that accepts tokens unseen."""
    if seen.simulated is None:
        return
    yield doubt(
        "simulated_acceptance",
        result.cell,
        f"speculation only pretends to accept ({seen.simulated}): rates are higher than any real "
        "use reaches. Remove the setting, and measure again.",
        {"told": seen.simulated},
    )


CHECKS = (counters, foreign, disagree, preempted, simulated)


def _fell_at(round_: Round) -> Point | None:
    found = (fell(points(round_.samples, name)) for name in (GENERATED, GENERATED_AT_END))
    return next((point for point in found if point is not None), None)


def _two_workers(round_: Round) -> bool:
    return bool(events(round_.samples, TWO_WORKERS))


def _reset(round_: Round) -> bool:
    return not _two_workers(round_) and (
        bool(events(round_.samples, RESET, RESTARTED)) or _fell_at(round_) is not None
    )


def _lost(round_: Round) -> bool:
    return bool(events(round_.samples, OBSERVER_LOST))


_CAUSES = {
    "two workers answer in turn, each with counters of its own": _two_workers,
    "the counters began anew while requests went on": _reset,
    "the observer died, so the server was not read to the end": _lost,
}


def _restarted(round_: Round) -> bool:
    """Whether another process answered, or a counter fell, and requests under way failed then.

    A request that lived through it shows that the server which carries it did not restart, only
    its books. Another process that came while nothing was under way is a restart.
    """
    if _two_workers(round_):
        return False
    told = next(iter(events(round_.samples, RESTARTED)), None)
    point = _fell_at(round_) if told is None else Point(told.sent_ns, told.received_ns, 0.0)
    if point is None:
        return False
    # It happened between two readings, and so did what it did to the requests.
    before = max(
        (
            sample.sent_ns
            for sample in round_.samples
            if sample.source == "metrics"
            and sample.name != EVENT
            and sample.received_ns < point.sent_ns
        ),
        default=point.sent_ns,
    )
    under_way = [
        record
        for record in round_.requests
        if record.sent_ns is not None
        and record.sent_ns <= point.received_ns
        and (record.end_ns is None or record.end_ns >= before)
    ]
    failed = any(record.outcome == "failed" for record in under_way)
    went_on = any(
        record.outcome != "failed"
        and (record.sent_ns or 0) <= before
        and (record.end_ns is None or record.end_ns > point.received_ns)
        for record in under_way
    )
    return not went_on and (failed or (told is not None and not under_way))


def _needs_counters(result: CellResult) -> bool:
    """Whether the client's own figure cannot stand alone: it did not count its tokens itself."""
    return result.steady.headline == "server" or result.tokens.source in ESTIMATED


def _beyond(round_: Round) -> float:
    """Return by how many requests the server's count exceeded ours for a good part of the round.

    Gauges lag, so the most that were ever under way is what they are held against, and a sticky
    one at the beginning alone is not enough.
    """
    if _two_workers(round_):
        return 0.0
    flight = in_flight(round_)
    if not flight.times_ns.size:
        return 0.0
    start, end = int(flight.times_ns[0]), int(flight.times_ns[-1])
    found = [p.value for p in points(round_.samples, "running") if start <= p.at_ns <= end]
    above = [value - flight.peak for value in found if value > flight.peak]
    if len(above) < max(MIN_BEYOND, BEYOND_SHARE * len(found)):
        return 0.0
    return max(above)

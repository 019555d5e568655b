"""Doubts about the instrument and the way to the server: lateness, clocks, buffers."""

from __future__ import annotations

from collections.abc import Iterator

from concbench.analyse.evidence import Evidence
from concbench.analyse.instrument import (
    CLOCK_STEP_NS,
    FULLY_STAMPED_PCT,
    client_bound_by,
    late_reads_by,
    late_sends_by,
)
from concbench.analyse.severity import doubt
from concbench.domain import Doubt
from concbench.result import CellResult


def client_bound(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """The client, not the server, was the limit."""
    rate = result.client.steady_output_tok_per_s or result.client.output_tok_per_s
    found = client_bound_by(seen.error, rate.point if rate else None, seen.ceiling_tok_per_s)
    if not found:
        return
    yield doubt(
        "client_bound",
        result.cell,
        f"the client was the bottleneck ({_listed(found)}): latencies are too long and rates too "
        "low by an unknown amount. Use a faster or idle machine, more --procs, or a lower load.",
        found,
    )


def late(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Reads and sends that were late, whether or not stamping rescued them."""
    reads = late_reads_by(seen.error)
    if reads:
        yield doubt(
            "late_reads",
            result.cell,
            f"the client read late ({_listed(reads)}): kernel stamps correct single events, what "
            "remains is in late_after_stamp_ms. Quieten the machine or use more --procs.",
            reads,
        )
    sends = late_sends_by(seen.error)
    if sends:
        yield doubt(
            "late_sends",
            result.cell,
            f"requests left late ({_listed(sends)}): the load was not the one asked for; "
            "latencies from due include the delay, those from sent do not. Quieten the machine.",
            sends,
        )


def worker_lost(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """A process or node that carried a part of the load died."""
    lost = sum("worker_lost" in record.notes for record in seen.records)
    if not lost:
        return
    yield doubt(
        "worker_lost",
        result.cell,
        f"a part of the load generator died with {lost} of {len(seen.records)} requests: they are "
        "incomplete and the load was lower than asked for, so rates are too low. Find out what "
        "ended it (memory, a node), and measure again.",
        {"requests": lost, "of": len(seen.records)},
    )


def user_stamps(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Times that were taken after the read rather than by the kernel."""
    stamped = result.instrument.stamped_pct
    partly = stamped is not None and stamped < FULLY_STAMPED_PCT
    if not seen.rounds or (result.instrument.stamp == "kernel" and not partly):
        return
    yield doubt(
        "user_stamps",
        result.cell,
        "the kernel did not stamp every read: times include the client's own lateness, which "
        "loop_lag_ms bounds. Nothing to do where the platform or TLS has no stamps.",
        {"stamp": result.instrument.stamp, "stamped_pct": stamped},
    )


def clock_stepped(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """A clock that jumped, or stamps that no clock without a jump could give."""
    step = max((each.instrument.offset_step_ns for each in seen.rounds), default=0)
    impossible = sum(part.impossible for part in seen.felt)
    if step <= CLOCK_STEP_NS and not impossible:
        return
    yield doubt(
        "clock_stepped",
        result.cell,
        f"the wall clock moved against the monotonic one by {step / 1e6:.2f} ms and {impossible} "
        "requests have events stamped before they were sent: kernel stamps cannot be converted. "
        "Stop time synchronisation from stepping the clock and measure again.",
        {"step_ms": step / 1e6, "impossible": impossible},
    )


def buffered(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Tokens that somebody upstream held back and sent in lumps."""
    whole = sum("not_streamed" in record.notes for record in seen.ok)
    if not any(each.workload.stream for each in seen.rounds) or not (seen.buffered or whole):
        return
    found = seen.bundled
    yield doubt(
        "buffered_stream",
        result.cell,
        f"events came in lumps of {found.events_per_instant:.1f} and {found.whole + whole} answers "
        "all at once: something upstream buffers, so TTFT is late and ICL, ITL and TPOT are "
        "withheld. Measure the engine directly, or switch the proxy's buffering off.",
        {
            "zero_gap_pct": 100 * found.bundled_share,
            "events_per_instant": found.events_per_instant,
            "answers_at_once": found.whole + whole,
        },
    )


def compressed(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Answers that came compressed although identity was asked for."""
    count = sum(any("compress" in note for note in record.notes) for record in seen.records)
    if not count:
        return
    yield doubt(
        "compressed_response",
        result.cell,
        f"{count} answers came compressed although identity was asked for: the compressor holds "
        "tokens back, so times inside the stream are not the engine's. Switch it off.",
        {"requests": count},
    )


def unparsed(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Streams with events that could not be read: pings of a proxy, or tokens that are missing."""
    count = sum("unparsed_events" in record.notes for record in seen.records)
    if not count:
        return
    source = result.tokens.source
    held = "counts come from the server's usage" if source == "usage" else "a count may miss tokens"
    yield doubt(
        "unparsed_events",
        result.cell,
        f"{count} of {result.requests.sent} answers held events that are no JSON object; they were "
        f"skipped and the streams went on ({held}). A proxy's pings do no harm: look at one answer "
        "with curl, and measure the engine directly where they are anything else.",
        {"requests": count, "sent": result.requests.sent, "token_source": source},
    )


CHECKS = (
    client_bound,
    late,
    worker_lost,
    user_stamps,
    clock_stepped,
    buffered,
    compressed,
    unparsed,
)


def _listed(found: dict[str, float | None]) -> str:
    return ", ".join(
        f"{name} {value:.3g}" for name, value in found.items() if isinstance(value, (int, float))
    )

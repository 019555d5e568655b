"""A round's rates: the classic batch figure, and the steady one where there is a window."""

from __future__ import annotations

from collections.abc import Sequence

from concbench.analyse.openloop import judge, open_window
from concbench.analyse.streams import Stream, streams_of
from concbench.analyse.windows import NoWindow, Window, burst_window, closed_window
from concbench.domain import Round, TargetFacts


def batch_tok_per_s(round_: Round) -> float | None:
    """Return all output tokens of completed requests ÷ (last end − first sent); None without one.

    The classic figure: ramp and drain are in it, so it is always shown and never the headline
    where there is a steady window.
    """
    done = [r for r in round_.requests if r.outcome == "ok" and r.end_ns is not None]
    sent = [r.sent_ns for r in round_.requests if r.sent_ns is not None]
    if not done or not sent:
        return None
    length_ns = max(r.end_ns or 0 for r in done) - min(sent)
    return sum(r.output_tok for r in done) / length_ns * 1e9 if length_ns > 0 else None


def steady_window(
    round_: Round, streams: Sequence[Stream], facts: TargetFacts | None = None
) -> Window | NoWindow:
    """Return the round's steady window by the rule of its way of arrival."""
    if round_.workload.arrival == "burst":
        return burst_window(round_, streams, facts)
    if round_.workload.arrival == "closed":
        return closed_window(round_, streams)
    state = judge(round_, streams)
    if state is None:
        return NoWindow("fewer than two arrivals")
    return open_window(round_, streams, state)


def headline_tok_per_s(round_: Round, facts: TargetFacts | None = None) -> float | None:
    """Return the steady rate where the round has a window, else the batch rate."""
    window = steady_window(round_, streams_of(round_), facts)
    return window.tok_per_s if isinstance(window, Window) else batch_tok_per_s(round_)


def burst_wall_ns(round_: Round) -> int | None:
    """Return the wall time of a burst, first sent to last token event; None if one failed."""
    ends = [
        r.last_token_ns if round_.workload.stream else r.end_ns
        for r in round_.requests
        if r.outcome == "ok"
    ]
    sent = [r.sent_ns for r in round_.requests if r.sent_ns is not None]
    known = [end for end in ends if end is not None]
    if not known or len(known) != len(round_.requests):
        return None
    return max(known) - min(sent)

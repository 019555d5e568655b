"""Open loop: warm-up cut, stability, and the window in which the offered load was held.

Below saturation throughput is the offered load, so what counts is whether there is a steady
state at all. The warm-up is cut by MSER-5 on the in-flight count and at least twice the p95 of
E2E; saturation shows as a queue that grows, given with its slope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from concbench.analyse.flight import Steps, bin_means, kendall_p, mser5, slope_per_s, within
from concbench.analyse.streams import Stream, e2e_ns
from concbench.analyse.windows import NoWindow, Window, decoding, in_flight, tokens_between
from concbench.domain import Cell, RequestRecord, Round

GRID = 1000
BATCHES = 8
GROWTH, GROWTH_P = 1.3, 0.05
UNSTABLE_SHARE, UNDETERMINED_SHARE = 0.8, 0.95
MIN_ARRIVALS = 20
MAX_CUT_SHARE = 0.75

GIVEN_UP = ("timeout", "inactive")
"""Errors of requests that the client gave up (too long in all, too long without a byte): the
server still owed an answer."""

OPEN = frozenset({"constant", "poisson", "trace"})
"""Arrivals that do not wait for answers."""

_STATES = {"stable": "stable", "undetermined": "undetermined", "unstable": "saturated"}
_WORSE = {"stable": 0, "undetermined": 1, "saturated": 2}


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """How an open-loop round went between `cut_ns` and `end_ns`, the last arrival.

    `growth` is mean in flight of the last quarter ÷ that of the whole, `growth_p` Kendall's p
    over 8 batch means, `kept` departures ÷ arrivals, `slope_per_s` the in-flight count's slope.
    A failed answer is a departure too; what the client gave up waiting for is none.
    """

    verdict: Literal["stable", "unstable", "undetermined"]
    cut_ns: int
    end_ns: int
    growth: float
    growth_p: float
    kept: float
    slope_per_s: float
    arrivals: int


def judge(round_: Round, streams: Sequence[Stream]) -> OpenLoop | None:
    """Return whether the round reached a steady state; None without two arrivals."""
    due = [record.due_ns for record in round_.requests]
    if len(due) < 2 or max(due) <= min(due):
        return None
    curve = in_flight(round_)
    start, end = min(due), max(due)
    cut = warm_up_ns(round_, streams, curve)
    too_short = cut - start > MAX_CUT_SHARE * (end - start)
    if too_short:
        cut = start
    growth, growth_p = _growth(curve, cut, end)
    arrivals = sum(cut < at <= end for at in due)
    left = sum(
        _left(record) and record.end_ns is not None and cut < record.end_ns <= end
        for record in round_.requests
    )
    kept = left / arrivals if arrivals else 0.0
    verdict: Literal["stable", "unstable", "undetermined"] = "stable"
    if kept < UNSTABLE_SHARE or (growth >= GROWTH and growth_p < GROWTH_P):
        verdict = "unstable"
    elif too_short or kept < UNDETERMINED_SHARE or arrivals < MIN_ARRIVALS:
        verdict = "undetermined"
    slope = slope_per_s(curve, cut, end) or 0.0
    return OpenLoop(verdict, cut, end, growth, growth_p, kept, slope, arrivals)


def _left(record: RequestRecord) -> bool:
    """Return whether the server was done with a request, well or not."""
    return record.outcome == "ok" or (record.outcome == "failed" and record.error not in GIVEN_UP)


def saturation(
    cell: Cell, rounds: Sequence[Round], loops: Sequence[OpenLoop | None]
) -> dict[str, Any] | None:
    """Return whether the rate was held: state, queue slope, completions, asked and sent rates.

    `state` is `stable`, `undetermined` or `saturated`, that of most rounds and of two as frequent
    ones the worse. `scheduled_rps` is what the drawn schedule came to, `sent_rps` what left. None
    for bursts and closed loops.
    """
    known = [loop for loop in loops if loop is not None]
    if not known:
        return None
    scheduled = [_rate([r.due_ns for r in each.requests]) for each in rounds]
    sent = [_rate([r.sent_ns for r in each.requests if r.sent_ns is not None]) for each in rounds]
    planned_rps = _mean(scheduled)
    return {
        "state": _state(known),
        "queue_slope_per_s": sum(loop.slope_per_s for loop in known) / len(known),
        "completions_per_arrival": sum(loop.kept for loop in known) / len(known),
        "asked_rps": planned_rps if cell.rate_rps is None else cell.rate_rps,
        "scheduled_rps": planned_rps,
        "sent_rps": _mean(sent),
        "arrivals": sum(loop.arrivals for loop in known),
    }


def warm_up_ns(round_: Round, streams: Sequence[Stream], curve: Steps) -> int:
    """Return where the warm-up ends: MSER-5 on the in-flight count, at least 2 × p95 E2E."""
    due = [record.due_ns for record in round_.requests]
    start, end = min(due), max(due)
    edges = start + np.linspace(0, end - start, GRID + 1).astype(np.int64)
    cut = int(edges[mser5(bin_means(curve, edges))])
    times = [
        e2e_ns(stream, streaming=round_.workload.stream)
        for stream in streams
        if stream.record.outcome == "ok"
    ]
    known = sorted(time for time in times if time is not None)
    p95 = known[-(-len(known) * 95 // 100) - 1] if known else 0
    return max(cut, start + 2 * p95)


def saturated(loops: Sequence[OpenLoop]) -> bool:
    """Return whether most rounds, or as many as not, had a growing queue."""
    return _state(loops) == "saturated"


def _state(loops: Sequence[OpenLoop]) -> str:
    states = [_STATES[loop.verdict] for loop in loops]
    return max(_STATES.values(), key=lambda name: (states.count(name), _WORSE[name]))


def queue_reason(loops: Sequence[OpenLoop]) -> str:
    """Return why rounds above capacity have no steady state, in their means as `saturation` has."""
    slope = sum(loop.slope_per_s for loop in loops) / len(loops)
    ended = f"{sum(100 * loop.kept for loop in loops) / len(loops):.0f} % of arrivals ended"
    grown = [loop.slope_per_s * (loop.end_ns - loop.cut_ns) / 1e9 for loop in loops]
    if sum(grown) < len(loops):
        return f"only {ended}: the rate is above capacity"
    return f"the queue grew by {slope:.3g} requests/s ({ended}): the rate is above capacity"


def open_window(round_: Round, streams: Sequence[Stream], state: OpenLoop) -> Window | NoWindow:
    """Return the window after the warm-up, or why there is no steady state."""
    curve = decoding(streams)
    inside = within(curve, state.cut_ns, state.end_ns)
    mean = inside[1] if inside else None
    if state.verdict == "unstable":
        return NoWindow(queue_reason([state]), mean)
    if state.verdict == "undetermined":
        return NoWindow(
            f"too short to tell ({state.arrivals} arrivals after the warm-up, "
            f"{100 * state.kept:.0f} % ended): run longer",
            mean,
        )
    tokens, instants = tokens_between(streams, state.cut_ns, state.end_ns)
    steps = min(tokens, instants) / max(1.0, mean or 0.0)
    if steps < 1:
        return NoWindow("no token arrived after the warm-up", mean)
    return Window(
        start_ns=state.cut_ns,
        end_ns=state.end_ns,
        tokens=tokens,
        steps=steps,
        estimand="sustained",
        method="open loop after MSER-5 on in-flight (≥ 2 × p95 E2E) to the last arrival",
        running=within(in_flight(round_), state.cut_ns, state.end_ns) or (0.0, 0.0, 0.0),
        decoding_mean=mean or 0.0,
    )


def _growth(curve: Steps, start_ns: int, end_ns: int) -> tuple[float, float]:
    length = end_ns - start_ns
    edges = start_ns + np.linspace(0, length, BATCHES + 1).astype(np.int64)
    means = bin_means(curve, edges)
    whole = float(means.mean())
    tau, p = kendall_p(means)
    last_quarter = float(means[-BATCHES // 4 :].mean())
    return (last_quarter / whole if whole > 0 else 1.0), (p if tau > 0 else 1.0)


def _rate(times_ns: Sequence[int]) -> float | None:
    """Return events per second between the first and the last of them."""
    if len(times_ns) < 2 or max(times_ns) <= min(times_ns):
        return None
    return (len(times_ns) - 1) / (max(times_ns) - min(times_ns)) * 1e9


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

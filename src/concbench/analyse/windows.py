"""Steady windows of bursts and closed loops, found from events and never from a rate.

Burst: (max f, min l], in which all N decode, f and l being a stream's first and last token
event: decode@N. Closed loop: from the moment every worker has finished twice until the last
issue, tokens counted by arrival: sustained@N. A window chosen by the metric that it reports
would be biased towards it, so no level detector is used.

Why twice: all first requests start together, so the wave after them is one too, and a window that
begins when every worker has finished once begins at the same point of that wave in every round.
Where half of a request is prefill its rate is 0.26 % too high, small beside one round's own spread
and yet enough for intervals over four rounds to hold the truth in 84 % instead of 95 % of studies;
from the second finish on it is 0.06 % and 97 % (`bench.coverage`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from concbench.analyse.batches import Spread, wave_spread
from concbench.analyse.flight import Steps, count_at_once, segments_at, within
from concbench.analyse.streams import Stream, e2e_ns, starts_of, times_of, tokens_of
from concbench.domain import Round, TargetFacts

MIN_STEPS = 50
MIN_SEGMENT_NS = 250_000_000
RAGGED_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Window:
    """A steady window. `steps` is how many decode steps each stream took inside.

    `running` is requests in flight (min, mean, max), `spread` how far a closed loop's rate may be
    from its long-run rate, where the window is long enough for at least 8 batches.
    """

    start_ns: int
    end_ns: int
    tokens: float
    steps: float
    estimand: Literal["decode", "sustained"]
    method: str
    running: tuple[float, float, float]
    decoding_mean: float
    spread: Spread | None = None

    @property
    def tok_per_s(self) -> float:
        """Tokens that arrived inside ÷ the window's length."""
        return self.tokens / (self.end_ns - self.start_ns) * 1e9

    @property
    def edge_error(self) -> float:
        """Relative error of cutting at the edges: one step in `steps`."""
        return 1 / self.steps


@dataclass(frozen=True, slots=True)
class NoWindow:
    """Why there is no steady window, and how many streams generated at once on average."""

    reason: str
    decoding_mean: float | None = None


@dataclass(frozen=True, slots=True)
class Decoding:
    """decode@N over the segments in which exactly N streams decode."""

    tok_per_s: float
    length_s: float
    segments: int


def in_flight(round_: Round) -> Steps:
    """Return how many requests were sent and not yet ended, over time."""
    return count_at_once(
        (record.sent_ns, round_.end_ns if record.end_ns is None else record.end_ns)
        for record in round_.requests
        if record.sent_ns is not None
    )


def decoding(streams: Iterable[Stream]) -> Steps:
    """Return how many streams were between their first and last token event, over time."""
    spans = ((stream.first_ns, stream.last_ns) for stream in streams)
    return count_at_once(
        (first, last) for first, last in spans if first is not None and last is not None
    )


def tokens_between(streams: Iterable[Stream], start_ns: int, end_ns: int) -> tuple[float, int]:
    """Return the tokens that arrived in (start, end], and at how many instants they came.

    Instants are counted per stream: events that one read brought are one instant.
    """
    told = list(streams)
    times = times_of(told)
    inside = (times > start_ns) & (times <= end_ns)
    # Events of one instant are all inside or all outside, so the first of them stands for it.
    new = np.ones(times.size, dtype=np.bool_)
    new[1:] = times[1:] != times[:-1]
    new[starts_of(told)] = True
    return float(tokens_of(told)[inside].sum()), int(np.count_nonzero(inside & new))


def burst_window(
    round_: Round, streams: Sequence[Stream], facts: TargetFacts | None = None
) -> Window | NoWindow:
    """Return the window in which all N of a burst decode, or why there is none."""
    n = round_.cell.concurrency
    alive = [stream for stream in streams if stream.first_ns is not None]
    curve = decoding(alive)
    mean = _decoding_mean(curve)
    hindrance = _burst_hindrance(round_, streams, facts)
    if hindrance is not None:
        return NoWindow(hindrance, mean)
    low = max(stream.first_ns or 0 for stream in alive)
    high = min(stream.last_ns or 0 for stream in alive)
    if high <= low:
        return NoWindow(_never_together(n, curve.peak, facts), mean)
    tokens, instants = tokens_between(alive, low, high)
    return _checked(round_, curve, (low, high), tokens, instants, n, "decode", "all N decoding")


def closed_window(round_: Round, streams: Sequence[Stream]) -> Window | NoWindow:
    """Return the window of a closed loop in which every worker is past its second request.

    Past its first where the loop was too short for two; the method says which.
    """
    n = round_.cell.concurrency
    curve = decoding(streams)
    mean = _decoding_mean(curve)
    ends = _ends_of_workers(round_)
    idle = sum(not found for found in ends) + max(0, n - len(ends))
    if idle or not ends:
        return NoWindow(f"{idle or n} of {n} workers never finished a request", mean)
    low = max(found[0] for found in ends)
    high = max(record.sent_ns or 0 for record in round_.requests)
    if high <= low:
        return NoWindow("the loop ended before every worker had finished one request", mean)
    length, times = _mean_request_ns(round_, streams), "once"
    if high - low < length:
        return NoWindow("the loop held less than one request time after its ramp", mean)
    second = max(found[1] if len(found) > 1 else high for found in ends)
    if high - second >= length:
        low, times = second, "twice"
    tokens, instants = tokens_between(streams, low, high)
    method = f"every worker finished {times} to the last issue, tokens by arrival"
    spread = loop_spread(round_, streams, low, high)
    return _checked(round_, curve, (low, high), tokens, instants, n, "sustained", method, spread)


def _ends_of_workers(round_: Round) -> list[list[int]]:
    """Return the ends of each worker's answered requests, in order; empty where there is none."""
    ends: dict[int, list[int]] = {}
    for record in round_.requests:
        found = ends.setdefault(record.worker, [])
        if record.outcome == "ok" and record.end_ns is not None:
            found.append(record.end_ns)
    return [sorted(found) for found in ends.values()]


def loop_spread(
    round_: Round, streams: Sequence[Stream], start_ns: int, end_ns: int
) -> Spread | None:
    """Return how far the window's rate may be off by chance; None below eight waves of N."""
    times, carried = times_of(streams), tokens_of(streams)
    order = np.argsort(times, kind="stable")
    issues = np.sort(
        [
            record.sent_ns
            for record in round_.requests
            if record.sent_ns is not None and start_ns <= record.sent_ns <= end_ns
        ]
    ).astype(np.int64)
    return wave_spread(times[order], carried[order].cumsum(), issues, round_.cell.concurrency)


def decode_at(streams: Sequence[Stream], n: int) -> Decoding | None:
    """Return decode@N over the segments of ≥ 0.25 s in which exactly `n` streams decode.

    The client's equal of an engine's log windows with `Running == n`. None without a segment.
    """
    segments = segments_at(decoding(streams), n, MIN_SEGMENT_NS)
    length = sum(end - start for start, end in segments)
    if length == 0:
        return None
    tokens = sum(tokens_between(streams, start, end)[0] for start, end in segments)
    return Decoding(tokens / length * 1e9, length / 1e9, len(segments))


def is_ragged(rounds: Iterable[Round]) -> bool:
    """Whether the answers differ in length by more than 2 % (5th to 95th percentile)."""
    lengths = [
        record.output_tok for each in rounds for record in each.requests if record.outcome == "ok"
    ]
    if len(lengths) < 2:
        return False
    low, middle, high = np.percentile(lengths, (5, 50, 95))
    return bool(high - low > RAGGED_SHARE * middle)


def _burst_hindrance(
    round_: Round, streams: Sequence[Stream], facts: TargetFacts | None
) -> str | None:
    """What rules a window out before the stamps are looked at."""
    n = round_.cell.concurrency
    if not round_.workload.stream:
        return "answers were not streamed, so no token has a time of its own"
    failed = sum(stream.record.outcome == "failed" for stream in streams)
    if failed:
        return f"{failed} of {n} requests failed, so N never decoded together"
    if len(streams) != n:
        return f"the round holds {len(streams)} of {n} requests"
    silent = sum(stream.first_ns is None for stream in streams)
    if silent:
        return f"{silent} of {n} requests produced no token"
    pool = None if facts is None else facts.kv_capacity_tok
    need = sum(_resident_tok(stream) for stream in streams)
    if pool is not None and need > pool:
        return f"N = {n} needs {need:,} tokens of KV cache and the engine has {pool:,}"
    return None


def _never_together(n: int, peak: int, facts: TargetFacts | None) -> str:
    slots = None if facts is None else facts.slots
    if slots is not None and slots < n:
        return f"N = {n} is above the engine's {slots} slots: never all generating at once"
    return f"at most {peak} of {n} were generating at once: the server queued the others"


def _checked(
    round_: Round,
    curve: Steps,
    span: tuple[int, int],
    tokens: float,
    instants: int,
    n: int,
    estimand: Literal["decode", "sustained"],
    method: str,
    spread: Spread | None = None,
) -> Window | NoWindow:
    """Make the window unless it holds too few steps for its edges not to matter."""
    # A read that brings several tokens is one step: its edge costs all of them.
    steps = min(tokens, instants) / n
    inside = within(curve, *span)
    mean = inside[1] if inside else None
    if steps < MIN_STEPS:
        return NoWindow(
            f"the window holds {steps:.0f} decode steps and {MIN_STEPS} are needed: "
            "ask for more output tokens",
            mean,
        )
    return Window(
        start_ns=span[0],
        end_ns=span[1],
        tokens=tokens,
        steps=steps,
        estimand=estimand,
        method=method,
        running=within(in_flight(round_), *span) or (0.0, 0.0, 0.0),
        decoding_mean=mean or 0.0,
        spread=spread,
    )


def _decoding_mean(curve: Steps) -> float | None:
    if curve.times_ns.size < 2:
        return None
    inside = within(curve, int(curve.times_ns[0]), int(curve.times_ns[-1]))
    return None if inside is None else inside[1]


def _resident_tok(stream: Stream) -> int:
    record = stream.record
    return (record.prompt_tok or record.asked_prompt_tok or 0) + record.output_tok


def _mean_request_ns(round_: Round, streams: Sequence[Stream]) -> float:
    times = [
        e2e_ns(stream, streaming=round_.workload.stream)
        for stream in streams
        if stream.record.outcome == "ok"
    ]
    known: NDArray[np.float64] = np.array([time for time in times if time is not None], dtype=float)
    return float(known.mean()) if known.size else 0.0

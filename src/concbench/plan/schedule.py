"""When requests are due and how long their answers are: pure functions of settings and a seed.

Due offsets are absolute nanoseconds from the start of the round and never decrease, so that a
late request does not push the later ones back. Nothing here reads a clock or a file.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from concbench.errors import UsageError
from concbench.plan.splitmix import SplitMix64, derive

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ARRIVALS = 10_000_000
"""More due times than this are a slip of the keyboard, not a plan."""

_NS_PER_S = 1_000_000_000
_ARRIVAL_TAG, _FIRST_TAG, _LATER_TAG = 0xA221, 0xF125, 0x1A7E


def burst(n: int) -> list[int]:
    """Return `n` requests due at once. Raises UsageError for n < 1."""
    _check_count(n)
    return [0] * n


def constant(rps: float, *, n: int | None = None, duration_s: float | None = None) -> list[int]:
    """Return requests due every 1/rps seconds from 0 on, `n` of them or all before `duration_s`.

    Each due time is computed from its number, so no rounding adds up. With both limits the
    first one reached counts. Raises UsageError for a rate or limit that makes no schedule.
    """
    count = _expected_count(rps, n, duration_s)
    dues = [round(k * _NS_PER_S / rps) for k in range(count + 1)]
    if duration_s is not None:
        end_ns = duration_s * _NS_PER_S
        dues = [due_ns for due_ns in dues if due_ns < end_ns]
    return dues[:n]


def poisson(
    rps: float, seed: int, *, n: int | None = None, duration_s: float | None = None
) -> list[int]:
    """Return the arrivals of a Poisson process of rate `rps`, seeded.

    Gaps are exponential by the inverse distribution function, −ln(1 − u)/rps with u in [0, 1);
    they are neither truncated nor rounded before they are added. The first arrival comes after
    the first gap. Limits and errors as in `constant`.
    """
    _expected_count(rps, n, duration_s)
    numbers = SplitMix64(derive(_ARRIVAL_TAG, seed))
    end_ns = math.inf if duration_s is None else duration_s * _NS_PER_S
    most = MAX_ARRIVALS if n is None else n
    dues: list[int] = []
    at_ns = 0.0
    while len(dues) < most:
        at_ns -= math.log1p(-numbers.unit()) / rps * _NS_PER_S
        if at_ns >= end_ns:
            break
        dues.append(round(at_ns))
    return dues


def trace(offsets_s: Sequence[float]) -> list[int]:
    """Return due offsets from a trace's times in seconds; the first request is due at 0.

    Raises UsageError where the trace is empty, goes back in time or holds no number.
    """
    if not offsets_s:
        raise UsageError("the trace holds no requests")
    first_s = previous_s = offsets_s[0]
    dues: list[int] = []
    for number, offset_s in enumerate(offsets_s, start=1):
        if not math.isfinite(offset_s):
            raise UsageError(f"request {number} of the trace has no finite time")
        if offset_s < previous_s:
            raise UsageError(
                f"request {number} of the trace is due at {offset_s:g} s, before the one ahead of "
                f"it at {previous_s:g} s; sort the trace by time"
            )
        dues.append(round((offset_s - first_s) * _NS_PER_S))
        previous_s = offset_s
    return dues


class ClosedLengths(Struct, frozen=True, kw_only=True):
    """Output lengths of a closed loop: `first_tok[w]` starts worker w, then `later_tok` in order.

    The k-th request issued after the first of every worker takes `later_tok[k]`, whichever
    worker issues it.
    """

    first_tok: list[int]
    later_tok: list[int]


def output_lengths_closed(
    n_workers: int, requests: int, output_tok: int, seed: int, spread: float = 0.0
) -> ClosedLengths:
    """Return the frozen length schedule of a closed loop.

    First lengths are U(0,1) · `output_tok`, at least 1: the residual life of a request met at a
    random moment, which keeps workers from marching in step. The `requests` later ones are
    uniform on `output_tok` · (1 ± spread), stratified in blocks of n_workers (at least 8), so
    that every stretch of the schedule carries nearly the same work: run-to-run spread falls from
    2.4 % with independent lengths to under 0.5 %. Raises UsageError for values out of range.
    """
    _check_count(n_workers)
    if output_tok < 1:
        raise UsageError(f"output tokens must be at least 1, not {output_tok}")
    if not 0 <= spread < 1:
        raise UsageError(f"the spread of output lengths must be in [0, 1), not {spread:g}")
    firsts = _stratified(n_workers, SplitMix64(derive(_FIRST_TAG, seed)))
    numbers = SplitMix64(derive(_LATER_TAG, seed))
    block = max(8, n_workers)
    laters: list[float] = []
    while len(laters) < requests:
        laters += _stratified(block, numbers)
    return ClosedLengths(
        first_tok=[max(1, math.ceil(u * output_tok)) for u in firsts],
        later_tok=[
            max(1, round(output_tok * (1 + spread * (2 * u - 1)))) for u in laters[:requests]
        ],
    )


def _stratified(n: int, numbers: SplitMix64) -> list[float]:
    """Return n numbers in [0, 1), one in each n-th part, in random order."""
    return [(stratum + numbers.unit()) / n for stratum in numbers.permutation(n)]


def _check_count(n: int) -> None:
    """Raise UsageError unless n is a possible number of requests."""
    if not 1 <= n <= MAX_ARRIVALS:
        raise UsageError(f"the number of requests must be 1 to {MAX_ARRIVALS:,}, not {n}")


def _expected_count(rps: float, n: int | None, duration_s: float | None) -> int:
    """Return about how many requests there will be. Raises UsageError."""
    if not (math.isfinite(rps) and rps > 0):
        raise UsageError(f"the rate must be more than 0 requests per second, not {rps:g}")
    if n is None and duration_s is None:
        raise UsageError("a rate needs a number of requests or a duration")
    counts: list[float] = []
    if n is not None:
        _check_count(n)
        counts.append(n)
    if duration_s is not None:
        if not (math.isfinite(duration_s) and duration_s > 0):
            raise UsageError(f"the duration must be more than 0 s, not {duration_s:g}")
        counts.append(rps * duration_s)
    if min(counts) > MAX_ARRIVALS:
        raise UsageError(f"{min(counts):,.0f} requests are planned; at most {MAX_ARRIVALS:,} are")
    return math.ceil(min(counts))

"""Prefill rate: the slope of TTFT over uncached prompt tokens between two prompt lengths.

One length alone would charge queueing, HTTP and the first decode step to prefill; between two
lengths they cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from concbench.analyse.estimate import mean_estimate
from concbench.analyse.streams import streams_of, ttft_ns
from concbench.domain import Estimate, Round

MIN_UNCACHED_TOK = 256
"""Below this the slope is mostly the noise of one step."""


@dataclass(frozen=True, slots=True)
class PrefillPoint:
    """One round at one prompt length: medians over its `ok` requests."""

    uncached_tok: float
    ttft_ms: float


def prefill_point(round_: Round) -> PrefillPoint | None:
    """Return the round's median uncached prompt tokens and TTFT.

    None at a concurrency above 1, without streaming, and where no prompt length is known. Where
    the server does not tell cached tokens, none are assumed.
    """
    if round_.cell.concurrency != 1 or not round_.workload.stream:
        return None
    found = [
        (stream.record.prompt_tok - (stream.record.cached_tok or 0), wait)
        for stream in streams_of(round_)
        if stream.record.outcome == "ok"
        and stream.record.prompt_tok is not None
        and (wait := ttft_ns(stream)) is not None
        and wait > 0
    ]
    if not found:
        return None
    uncached, waits = np.median(np.array(found, dtype=float), axis=0)
    return PrefillPoint(float(uncached), float(waits) / 1e6)


def prefill_slope(
    shorter: Sequence[PrefillPoint], longer: Sequence[PrefillPoint]
) -> Estimate | None:
    """Return prefill tok/s from rounds at two prompt lengths, paired in their order.

    None when the longer prompts hold fewer than 256 uncached tokens, when the lengths differ by
    less than a quarter, or when TTFT does not grow with them.
    """
    rates = []
    for low, high in zip(shorter, longer, strict=False):
        more_tok = high.uncached_tok - low.uncached_tok
        more_ms = high.ttft_ms - low.ttft_ms
        if high.uncached_tok < MIN_UNCACHED_TOK or more_tok < high.uncached_tok / 4:
            return None
        if more_ms <= 0:
            return None
        rates.append(more_tok / more_ms * 1e3)
    return mean_estimate(rates)

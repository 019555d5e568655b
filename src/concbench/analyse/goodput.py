"""Goodput: requests per second that met every objective (Zhong et al., *DistServe*, 2024).

A request that failed, was cut, or has no value for one of the objectives missed it: what was not
measured passes no gate. An objective's quantile is of a distribution of requests and says nothing
of one request, so here each request is held to the limit itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from concbench.analyse.estimate import mean_estimate
from concbench.analyse.openloop import OPEN, OpenLoop
from concbench.analyse.streams import Samples, Stream, samples, tpot_ns
from concbench.analyse.windows import NoWindow, Window
from concbench.domain import Round
from concbench.plan.levels import Slo


def goodput(
    rounds: Sequence[Round],
    streams: Sequence[Sequence[Stream]],
    windows: Sequence[Window | NoWindow],
    loops: Sequence[OpenLoop | None],
    slos: Sequence[Slo],
) -> dict[str, Any] | None:
    """Return `requests_per_s` (an estimate over rounds), `attainment_pct` and `missed` by key.

    A closed loop's requests are those due inside its window, over the window's length; an open
    one's those due after the warm-up until the last arrival (`loops`, one a round); one of fewer
    than two arrivals has no rate and is left out. Bursts, and closed loops without a window, are
    all requests over the round. None without a request.
    """
    rates: list[float] = []
    met = total = 0
    missed = dict.fromkeys((slo.key for slo in slos), 0)
    for each, part, window, loop in zip(rounds, streams, windows, loops, strict=True):
        inside, length_s = _counted(each, part, window, loop)
        if not inside or length_s <= 0:
            continue
        failures = [failed_slos(stream, slos, streaming=each.workload.stream) for stream in inside]
        good = sum(not keys for keys in failures)
        for keys in failures:
            for key in keys:
                missed[key] += 1
        rates.append(good / length_s)
        met, total = met + good, total + len(inside)
    if not total:
        return None
    return {
        "requests_per_s": mean_estimate(rates),
        "attainment_pct": 100 * met / total,
        "requests": total,
        "missed": missed,
    }


def failed_slos(stream: Stream, slos: Sequence[Slo], *, streaming: bool) -> list[str]:
    """Return the keys of the objectives that a request missed; all of them where it failed."""
    if stream.record.outcome != "ok":
        return [slo.key for slo in slos]
    felt = samples([stream], streaming=streaming, buffered=False)
    tpot = tpot_ns(stream) if streaming else None
    return [slo.key for slo in slos if not _met(felt, tpot, slo)]


def _met(felt: Samples, tpot: float | None, slo: Slo) -> bool:
    if slo.metric == "failed_pct":
        return True
    # Of short answers too: what is too few gaps for a rate is enough for a limit.
    if slo.metric == "user_tok_per_s":
        return tpot is not None and slo.limit * tpot <= 1e9
    if slo.metric == "tpot_ms":
        return tpot is not None and tpot / 1e6 <= slo.limit
    values = getattr(felt, slo.metric)
    if not values.size:
        return False
    percent = int((slo.quantile or "p50")[1:])
    # One value for most; of the many gaps inside one answer, the quantile that was asked for.
    rank = -(-values.size * percent // 100) - 1
    return bool(np.sort(values)[rank] <= slo.limit)


def _counted(
    round_: Round,
    streams: Sequence[Stream],
    window: Window | NoWindow,
    loop: OpenLoop | None,
) -> tuple[list[Stream], float]:
    if isinstance(window, Window) and window.estimand == "sustained":
        inside = [s for s in streams if window.start_ns < s.record.due_ns <= window.end_ns]
        return inside, (window.end_ns - window.start_ns) / 1e9
    if round_.workload.arrival in OPEN:
        if loop is None:
            return [], 0.0
        due = [s for s in streams if loop.cut_ns < s.record.due_ns <= loop.end_ns]
        return due, (loop.end_ns - loop.cut_ns) / 1e9
    sent = [s.record.sent_ns for s in streams if s.record.sent_ns is not None]
    ends = [s.record.end_ns for s in streams if s.record.end_ns is not None]
    if not sent or not ends:
        return [], 0.0
    return list(streams), (max(ends) - min(sent)) / 1e9

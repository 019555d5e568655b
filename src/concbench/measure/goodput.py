"""Objectives checked against what was measured, and the goodput: requests that met them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from concbench.analyse.estimate import mean_estimate
from concbench.analyse.openloop import judge
from concbench.analyse.streams import Samples, Stream, samples, streams_of
from concbench.domain import Round, to_builtins
from concbench.plan.levels import Slo
from concbench.result import CellResult


def objectives(cell: CellResult, slos: Sequence[Slo]) -> list[dict[str, Any]]:
    """Return each objective with the cell's value and whether it is met.

    A value that is not known meets nothing.
    """
    found = []
    for slo in slos:
        value = _value(cell, slo)
        met = value is not None and (value <= slo.limit if slo.at_most else value >= slo.limit)
        found.append({"slo": slo.key, "limit": slo.limit, "value": value, "met": met})
    return found


def goodput(rounds: Iterable[Round], slos: Sequence[Slo]) -> dict[str, Any]:
    """Return `goodput_rps` (an estimate over rounds) and `good_pct`.

    Counted are the requests due after the warm-up until the last arrival; a request is good when
    it was answered in full and met every objective that one request can meet.
    """
    rates: list[float] = []
    good = total = 0
    for each in rounds:
        streams = streams_of(each)
        state = judge(each, streams)
        if state is None or state.end_ns <= state.cut_ns:
            continue
        inside = [s for s in streams if state.cut_ns < s.record.due_ns <= state.end_ns]
        met = sum(_good(stream, slos, streaming=each.workload.stream) for stream in inside)
        rates.append(met / (state.end_ns - state.cut_ns) * 1e9)
        good, total = good + met, total + len(inside)
    estimate = mean_estimate(rates)
    return {
        "goodput_rps": None if estimate is None else to_builtins(estimate),
        "good_pct": 100 * good / total if total else None,
        "requests": total,
    }


def _value(cell: CellResult, slo: Slo) -> float | None:
    if slo.metric == "failed_pct":
        sent = cell.requests.sent
        return 100 * cell.requests.failed / sent if sent else None
    if slo.metric == "user_tok_per_s":
        slowest_ms = cell.client.tpot_ms.p95
        return 1e3 / slowest_ms if slowest_ms else None
    found: float | None = getattr(getattr(cell.client, slo.metric), slo.quantile or "p95")
    return found


def _good(stream: Stream, slos: Sequence[Slo], *, streaming: bool) -> bool:
    if stream.record.outcome != "ok":
        return False
    felt = samples([stream], streaming=streaming, buffered=False)
    return all(_meets(felt, slo) for slo in slos)


def _meets(felt: Samples, slo: Slo) -> bool:
    """Whether one request meets an objective; gaps count by their mean."""
    if slo.metric == "failed_pct":
        return True
    if slo.metric == "user_tok_per_s":
        return bool(felt.tpot_ms.size and 1e3 / felt.tpot_ms[0] >= slo.limit)
    values = getattr(felt, slo.metric)
    return bool(values.size and values.mean() <= slo.limit)

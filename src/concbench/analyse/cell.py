"""One cell's result from its rounds: counts, figures with their intervals, windows, doubts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from concbench.analyse.agree import agreement_pct_of, disagrees
from concbench.analyse.batches import Spread
from concbench.analyse.doubts import doubts_of
from concbench.analyse.estimate import MIN_ROUNDS_FOR_INTERVAL, mean_estimate, summary, widen
from concbench.analyse.evidence import Evidence, first_wave, gather
from concbench.analyse.goodput import goodput
from concbench.analyse.instrument import instrument
from concbench.analyse.machineload import machine_load
from concbench.analyse.openloop import queue_reason, saturated, saturation
from concbench.analyse.rates import batch_tok_per_s, burst_wall_ns
from concbench.analyse.server import server_view
from concbench.analyse.streams import pooled, pooled_one
from concbench.analyse.windows import NoWindow, Window, decode_at, is_ragged
from concbench.domain import (
    Cell,
    CellOutcome,
    Doubt,
    Estimate,
    RequestRecord,
    Round,
    Summary,
    TargetFacts,
)
from concbench.engines.spec import Trap
from concbench.plan.levels import Slo
from concbench.result import (
    CellResult,
    Client,
    DecodeAtN,
    Instrument,
    Ledger,
    Requests,
    Running,
    Server,
    Steady,
    Tokens,
)

SAME_LENGTH_SHARE = 0.02
"""Answers whose mean lengths differ by more are different work: no overlap is given."""

SOURCES = ("continuous_usage", "usage", "timings", "tokenizer", "chunks")
"""Where token counts come from, the most trusted first."""


def cell_result(
    rounds: Sequence[Round],
    facts: TargetFacts | None = None,
    baseline: CellResult | None = None,
    target_half_width: float | None = None,
    *,
    template_tok: int = 0,
    ceiling_tok_per_s: float | None = None,
    ended_by: str | None = None,
    traps: Sequence[Trap] = (),
    inflight_limit: int | None = None,
    slos: Sequence[Slo] = (),
    see: Callable[[Evidence], object] | None = None,
) -> tuple[CellResult, list[Doubt]]:
    """Return the cell's result and its doubts.

    `rounds` are the cell's rounds of every phase; only the measured ones count. `baseline` is the
    cell of N = 1 at the same lane and context, for the overlap. `target_half_width` is a share,
    such as 0.01, `traps` are those known of the lane, `inflight_limit` is what the proxy before it
    lets in by default, `slos` are the objectives of goodput. `see` is given the evidence, from
    which more can be drawn. Raises ValueError without a round.
    """
    seen = gather(
        rounds,
        facts,
        template_tok=template_tok,
        ceiling_tok_per_s=ceiling_tok_per_s,
        target_half_width=target_half_width,
        ended_by=ended_by,
        traps=traps,
        inflight_limit=inflight_limit,
    )
    if see is not None:
        see(seen)
    steady, headline = _steady(seen)
    agreement_pct = agreement_pct_of(seen)
    server = server_view(seen.rounds, seen.windows, seen.agreed)
    if steady.found:
        steady.headline = "server" if disagrees(seen, agreement_pct) else "client"
    outcome, detail = _outcome(seen)
    result = CellResult(
        **_identity(seen.cell),
        rounds=len(seen.rounds),
        outcome=outcome,
        outcome_detail=detail,
        ended_by=ended_by,
        requests=_requests(seen),
        tokens=_tokens(seen.ok),
        ledger=seen.books.ledger,
        client=_client(seen, headline),
        steady=steady,
        server=server,
        agreement_pct=agreement_pct,
        overlap=_overlap(seen, baseline),
        instrument=instrument(seen.rounds, seen.error, ceiling_tok_per_s),
        decode_at_n=_decode_at_n(seen),
        start_wave=_start_wave(seen),
        saturation=saturation(seen.cell, seen.rounds, seen.open_loops),
        goodput=goodput(seen.rounds, seen.streams, seen.windows, seen.open_loops, slos)
        if slos
        else None,
        host=machine_load(seen.rounds),
    )
    return result, doubts_of(seen, result)


def empty_cell(cell: Cell, outcome: CellOutcome, detail: str | None = None) -> CellResult:
    """Return the result of a cell in which nothing could be measured, with how it ended."""
    nothing = summary(())
    summaries: dict[str, Any] = dict.fromkeys(_SUMMARIES, nothing)
    return CellResult(
        **_identity(cell),
        rounds=0,
        outcome=outcome,
        outcome_detail=detail,
        requests=Requests(),
        tokens=Tokens(),
        ledger=Ledger(),
        client=Client(**summaries),
        steady=Steady(found=False, reason="nothing was measured"),
        server=Server(),
        instrument=Instrument(
            stamp="user",
            read_lateness_ms=nothing,
            late_after_stamp_ms=nothing,
            loop_lag_ms=nothing,
        ),
    )


_SUMMARIES = (
    "per_request_tok_per_s",
    "ttft_ms",
    "ttft_from_due_ms",
    "ttfo_ms",
    "icl_ms",
    "itl_ms",
    "tpot_ms",
    "e2e_ms",
    "e2e_from_due_ms",
    "send_delay_ms",
)


def _identity(cell: Cell) -> dict[str, Any]:
    names = ("cell", "lane", "link", "context_label", "context_tok", "concurrency", "rate_rps")
    return {name: getattr(cell, name) for name in names}


def _requests(seen: Evidence) -> Requests:
    outcomes = Counter(record.outcome for record in seen.records)
    return Requests(
        sent=len(seen.records),
        ok=outcomes["ok"],
        failed=outcomes["failed"],
        incomplete=outcomes["incomplete"],
        errors=dict(Counter(record.error or "unknown" for record in seen.failed).most_common()),
        finish=dict(
            Counter(r.finish_reason for r in seen.ok if r.finish_reason is not None).most_common()
        ),
    )


def _tokens(ok: Sequence[RequestRecord]) -> Tokens:
    output = sum(record.output_tok for record in ok)
    events = sum(record.events for record in ok)
    sources = [r.token_source for r in ok if r.token_source is not None]
    return Tokens(
        prompt=_known_sum([record.prompt_tok for record in ok]),
        cached=_known_sum([record.cached_tok for record in ok]),
        output=output,
        reasoning=_known_sum([record.reasoning_tok for record in ok]),
        # Of several the least trusted: a total is no better than its worst part.
        source=max(sources, key=SOURCES.index, default=None),
        asked_output=sum(record.asked_output_tok for record in ok),
        per_chunk=output / events if events else None,
    )


def _known_sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _client(seen: Evidence, headline: Estimate | None) -> Client:
    batch = [batch_tok_per_s(each) for each in _whole_rounds(seen)]
    # One after the other: some hold a value a token, and of millions no two are pooled at once.
    summaries: dict[str, Any] = {name: summary(pooled_one(seen.felt, name)) for name in _SUMMARIES}
    speed = summaries["per_request_tok_per_s"]
    summaries["per_request_tok_per_s"] = replace(
        speed, ci={**speed.ci, "mean": _mean_over_rounds(seen)}
    )
    return Client(
        output_tok_per_s=mean_estimate(rate for rate in batch if rate is not None),
        steady_output_tok_per_s=headline,
        decode_tok_per_s=_decode(seen),
        **summaries,
    )


def _mean_over_rounds(seen: Evidence) -> tuple[float, float] | None:
    """Return the interval of the mean speed of a request: of the rounds' means, the units here.

    None with fewer than 3 rounds, where there is no interval.
    """
    speeds = [part.per_request_tok_per_s for part in seen.felt]
    found = mean_estimate(float(each.mean()) for each in speeds if each.size)
    if found is None or found.low is None or found.high is None:
        return None
    return found.low, found.high


def _whole_rounds(seen: Evidence) -> Sequence[Round]:
    """Return the rounds that ran to their end; all of them where none did.

    A burst that a signal cut short has a ramp and no end: its batch figure would be another.
    """
    return [each for each in seen.rounds if not each.interrupted] or seen.rounds


def _decode(seen: Evidence) -> Estimate | None:
    if seen.cell.concurrency != 1:
        return None
    means = [float(part.tpot_ms.mean()) for part in seen.felt if part.tpot_ms.size]
    return mean_estimate(1e3 / mean for mean in means if mean > 0)


def _steady(seen: Evidence) -> tuple[Steady, Estimate | None]:
    """The window's part of the result, and the headline figure where there is one."""
    windows = [window for window in seen.windows if isinstance(window, Window)]
    missing = [window for window in seen.windows if isinstance(window, NoWindow)]
    reason = _no_steady_reason(seen, windows, missing)
    if reason is not None:
        means = [m.decoding_mean for m in seen.windows if m.decoding_mean is not None]
        mean = sum(means) / len(means) if means else None
        return Steady(found=False, reason=reason, decoding_mean=mean), None
    edge = _edge_error(windows)
    first = windows[0]
    began = next(
        each.start_ns
        for each, window in zip(seen.rounds, seen.windows, strict=True)
        if window is first
    )
    steady = Steady(
        found=True,
        estimand=first.estimand,
        start_s=(first.start_ns - began) / 1e9,
        end_s=(first.end_ns - began) / 1e9,
        steps=1 / edge,
        method=first.method,
        running=Running(
            min=min(window.running[0] for window in windows),
            mean=float(np.mean([window.running[1] for window in windows])),
            max=max(window.running[2] for window in windows),
        ),
        decoding_mean=float(np.mean([window.decoding_mean for window in windows])),
    )
    return steady, steady_estimate(windows)


def steady_estimate(windows: Sequence[Window]) -> Estimate | None:
    """Return the steady rate over the rounds' windows, with the error of the windows' edges."""
    estimate = _over_rounds(windows)
    # A loop's window begins and ends with an event, so its edges cut no step.
    if estimate is None or windows[0].estimand != "decode":
        return estimate
    edge = _edge_error(windows)
    return widen(estimate, edge, f"edge error of {100 * edge:.2g} % added")


def _edge_error(windows: Sequence[Window]) -> float:
    return float(np.mean([window.edge_error for window in windows]))


def _over_rounds(windows: Sequence[Window]) -> Estimate | None:
    """Over rounds; over batches inside the one or two loops where rounds are too few."""
    spreads = [window.spread for window in windows if window.spread is not None]
    rates = [window.tok_per_s for window in windows]
    if len(windows) >= MIN_ROUNDS_FOR_INTERVAL or len(spreads) < len(windows):
        return mean_estimate(rates)
    point = sum(rates) / len(rates)
    errors = [rate * each.relative_error for rate, each in zip(rates, spreads, strict=True)]
    whole = Spread(
        sum(each.batches for each in spreads),
        math.hypot(*errors) / sum(rates),
        sum(each.freedom for each in spreads),
    )
    half = point * whole.half_width()
    return Estimate(
        point=point,
        low=point - half,
        high=point + half,
        n=whole.batches,
        method=f"t interval over {whole.batches} batches of whole waves inside the loop",
    )


def _no_steady_reason(
    seen: Evidence, windows: Sequence[Window], missing: Sequence[NoWindow]
) -> str | None:
    if not seen.rounds:
        return "no round was measured"
    loops = [loop for loop in seen.open_loops if loop is not None]
    if loops and saturated(loops):
        return queue_reason(loops)
    if not windows or len(windows) < len(missing):
        return Counter(window.reason for window in missing).most_common(1)[0][0]
    ragged = windows[0].estimand == "decode" and is_ragged(seen.rounds)
    if ragged and len(windows) < 2:
        return "answers differ in length, so one burst is not enough: at least two rounds"
    return None


def _decode_at_n(seen: Evidence) -> DecodeAtN | None:
    """decode@N of closed loops, over the segments in which exactly N streams generated."""
    if any(each.workload.arrival != "closed" for each in seen.rounds):
        return None
    found = [decode_at(part, seen.cell.concurrency) for part in seen.streams]
    known = [item for item in found if item is not None]
    rate = mean_estimate(item.tok_per_s for item in known)
    if rate is None:
        return None
    return DecodeAtN(
        tok_per_s=rate,
        observed_s=sum(item.length_s for item in known),
        segments=sum(item.segments for item in known),
    )


def _start_wave(seen: Evidence) -> Summary | None:
    """TTFT of each worker's first request: a burst that latencies in the loop leave out."""
    if not seen.rounds or any(each.workload.arrival != "closed" for each in seen.rounds):
        return None
    pairs = zip(seen.rounds, seen.streams, strict=True)
    return summary(pooled([first_wave(each, part) for each, part in pairs]).ttft_ms)


def _overlap(seen: Evidence, baseline: CellResult | None) -> float | None:
    """(N·T₁/T_N − 1)/(N − 1): 1 parallel, 0 no gain from concurrency, below 0 worse than that.

    None for N = 1, for anything but bursts, and where the answers differ in length.
    """
    n = seen.cell.concurrency
    if baseline is None or n < 2 or any(r.workload.arrival != "burst" for r in seen.rounds):
        return None
    walls = [wall for wall in map(burst_wall_ns, seen.rounds) if wall is not None and wall > 0]
    alone_ms = baseline.client.e2e_ms.mean
    if not walls or alone_ms is None or not baseline.requests.ok or not baseline.tokens.output:
        return None
    alone_tok = baseline.tokens.output / baseline.requests.ok
    here_tok = sum(record.output_tok for record in seen.ok) / len(seen.ok)
    if abs(here_tok / alone_tok - 1) > SAME_LENGTH_SHARE:
        return None
    return float((n * alone_ms * 1e6 / np.mean(walls) - 1) / (n - 1))


def _outcome(seen: Evidence) -> tuple[CellOutcome, str | None]:
    """How the cell ended: the first round that ended otherwise than measured, of any phase."""
    for each in seen.every:
        if each.outcome not in ("measured", "interrupted"):
            return each.outcome, each.outcome_detail
    if any(each.interrupted or each.outcome == "interrupted" for each in seen.every):
        return "interrupted", None
    if not seen.rounds and seen.ended_by == "interrupt":
        return "interrupted", None
    return "measured", None

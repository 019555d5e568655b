"""One cell's result from its rounds: counts, figures with their intervals, windows, doubts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from concbench.analyse.doubts import doubts_of
from concbench.analyse.estimate import mean_estimate, summary, widen
from concbench.analyse.evidence import Evidence, gather
from concbench.analyse.instrument import instrument
from concbench.analyse.rates import batch_tok_per_s, burst_wall_ns
from concbench.analyse.server import balances, ledger, server_view
from concbench.analyse.streams import pooled
from concbench.analyse.windows import NoWindow, Window, is_ragged
from concbench.domain import Cell, CellOutcome, Doubt, Estimate, RequestRecord, Round, TargetFacts
from concbench.result import (
    CellResult,
    Client,
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
) -> tuple[CellResult, list[Doubt]]:
    """Return the cell's result and its doubts.

    `rounds` are the cell's rounds of every phase; only the measured ones count. `baseline` is the
    cell of N = 1 at the same lane and context, for the overlap. `target_half_width` is a share,
    such as 0.01. Raises ValueError without a round.
    """
    seen = gather(
        rounds,
        facts,
        template_tok=template_tok,
        ceiling_tok_per_s=ceiling_tok_per_s,
        target_half_width=target_half_width,
        ended_by=ended_by,
    )
    steady, headline = _steady(seen)
    book = ledger(seen.rounds, seen.streams)
    result = CellResult(
        **_identity(seen.cell),
        rounds=len(seen.rounds),
        outcome=_outcome(seen)[0],
        outcome_detail=_outcome(seen)[1],
        ended_by=ended_by,
        requests=_requests(seen),
        tokens=_tokens(seen.ok),
        ledger=book,
        client=_client(seen, headline),
        steady=steady,
        server=server_view(seen.rounds, seen.windows, seen.agreed),
        agreement_pct=_agreement_pct(seen, book),
        overlap=_overlap(seen, baseline),
        instrument=instrument(seen.rounds, seen.error, ceiling_tok_per_s),
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
    felt = pooled(seen.felt)
    batch = [batch_tok_per_s(each) for each in _whole_rounds(seen)]
    summaries: dict[str, Any] = {name: summary(getattr(felt, name)) for name in _SUMMARIES}
    return Client(
        output_tok_per_s=mean_estimate(rate for rate in batch if rate is not None),
        steady_output_tok_per_s=headline,
        decode_tok_per_s=_decode(seen),
        **summaries,
    )


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
    edge = float(np.mean([window.edge_error for window in windows]))
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
    estimate = _steady_estimate(windows)
    if estimate is not None:
        estimate = widen(estimate, edge, f"edge error of {100 * edge:.2g} % added")
    return steady, estimate


def _steady_estimate(windows: Sequence[Window]) -> Estimate | None:
    """Over rounds; over batches inside the one or two loops where rounds are too few."""
    if len(windows) < 3 and windows[0].batches:
        return mean_estimate((rate for window in windows for rate in window.batches), unit="batch")
    return mean_estimate(window.tok_per_s for window in windows)


def _no_steady_reason(
    seen: Evidence, windows: Sequence[Window], missing: Sequence[NoWindow]
) -> str | None:
    if not seen.rounds:
        return "no round was measured"
    if not windows or len(windows) < len(missing):
        return Counter(window.reason for window in missing).most_common(1)[0][0]
    ragged = windows[0].estimand == "decode" and is_ragged(seen.rounds)
    if ragged and len(windows) < 2:
        return "answers differ in length, so one burst is not enough: at least two rounds"
    return None


def _agreement_pct(seen: Evidence, book: Ledger) -> float | None:
    """Client against server over the same stretch; over whole rounds where nothing moves live."""
    if not book.generated or not balances(book, seen.cell.concurrency):
        return None
    known = [item for item in seen.agreed if item is not None]
    if known:
        client = sum(item.client_tok_per_s for item in known)
        server = sum(item.server_tok_per_s for item in known)
        return 100 * (client - server) / server if server > 0 else None
    return 100 * (book.received - book.generated) / book.generated


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
    return "measured", None

"""What one stream alone says of a lane at a context: prefill, decode and TTFT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concbench.analyse.prefill import MIN_UNCACHED_TOK
from concbench.domain import Estimate, Summary
from concbench.result import CellResult

SLOPE, RATIO = "slope", "prompt ÷ TTFT"


@dataclass(frozen=True, slots=True)
class Single:
    """Figures at N = 1; `prefill_method` is SLOPE or RATIO."""

    prefill: Estimate | None
    prefill_method: str | None
    decode: Estimate | None
    ttft_ms: Estimate | None


def single_of(cells: Sequence[CellResult]) -> Single | None:
    """Return the figures of the cell of N = 1, or None where it was not measured."""
    alone = next((cell for cell in cells if cell.concurrency == 1 and cell.requests.ok), None)
    if alone is None:
        return None
    ttft = _median(alone.client.ttft_ms)
    prefill, method = alone.client.prefill_tok_per_s, SLOPE
    if prefill is None:
        prefill, method = _from_ttft(alone, ttft), RATIO
    return Single(prefill, None if prefill is None else method, alone.client.decode_tok_per_s, ttft)


def output_tok(cell: CellResult) -> float | None:
    """Return output tokens a request, as received; None where none was answered."""
    if not cell.requests.ok or not cell.tokens.output:
        return None
    return cell.tokens.output / cell.requests.ok


def _median(values: Summary) -> Estimate | None:
    """Return the median with its order-statistic interval, else the range of what was seen."""
    if not values.n or values.mean is None or values.min is None or values.max is None:
        return None
    point = values.mean if values.p50 is None else values.p50
    interval = values.ci.get("p50")
    if interval is not None:
        return Estimate(
            point=point, low=interval[0], high=interval[1], n=values.n, method="median of requests"
        )
    return Estimate(
        point=point,
        low=None,
        high=None,
        n=values.n,
        method="median of requests, range",
        range=(values.min, values.max),
    )


def _from_ttft(cell: CellResult, ttft: Estimate | None) -> Estimate | None:
    """Return uncached prompt tokens ÷ TTFT; None for prompts that are too short to tell."""
    if ttft is None or cell.tokens.prompt is None:
        return None
    uncached = (cell.tokens.prompt - (cell.tokens.cached or 0)) / cell.requests.ok
    bounds = (ttft.low, ttft.high) if ttft.low is not None else ttft.range
    if uncached < MIN_UNCACHED_TOK or ttft.point <= 0 or bounds is None or not bounds[0]:
        return None
    rates = [uncached / each * 1e3 for each in (ttft.point, bounds[1] or ttft.point, bounds[0])]
    has_interval = ttft.low is not None
    return Estimate(
        point=rates[0],
        low=rates[1] if has_interval else None,
        high=rates[2] if has_interval else None,
        n=ttft.n,
        method=f"{RATIO} ({ttft.method})",
        range=None if has_interval else (rates[1], rates[2]),
    )

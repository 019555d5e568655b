"""Which figure of a cell is the headline, and how cells of one series relate to each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from concbench.domain import Doubt, Estimate
from concbench.report.inert import inert
from concbench.report.numbers import estimate_text
from concbench.result import CellResult

SAME_WINDOW_TOLERANCE = 0.01
NO_ESTIMATE = "no steady window was found"
OUTCOMES = {
    "context_rejected": "the server refused this context",
    "oom": "out of memory",
    "crashed": "the engine crashed",
    "hung": "the engine hung",
    "skipped": "skipped",
    "interrupted": "interrupted",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """The steady figure of a cell (tok/s), or None with the reason in `note`.

    `note` also says when the figure is the server's own count.
    """

    estimate: Estimate | None
    estimand: str | None
    note: str | None = None


def fatal_codes(cell: CellResult, doubts: Sequence[Doubt]) -> list[str]:
    """Return the codes of the fatal doubts that stand on a cell, study-wide ones included."""
    return [
        doubt.code
        for doubt in doubts
        if doubt.severity == "fatal" and doubt.cell in (None, cell.cell)
    ]


def headline(cell: CellResult, doubts: Sequence[Doubt]) -> Headline:
    """Return the cell's headline: the client's steady rate, or the server's where they disagree.

    Which of them it is, the cell says. Of a result that does not say (an older one), the server's
    counts where the ledger balances, which `agreement_pct` being known stands for, and only if it
    belongs to the steady window.
    """
    steady = cell.client.steady_output_tok_per_s
    if steady is None:
        return Headline(None, None, _no_steady(cell))
    server = cell.server.output_tok_per_s
    if server is not None and _servers_counts(cell, doubts, steady, server):
        note = f"the server's own count; the client measured {estimate_text(steady)} tok/s"
        return Headline(server, cell.steady.estimand, note)
    return Headline(steady, cell.steady.estimand)


def _servers_counts(
    cell: CellResult, doubts: Sequence[Doubt], steady: Estimate, server: Estimate
) -> bool:
    """Return whether the server's rate is the headline."""
    if cell.steady.headline is not None:
        return cell.steady.headline == "server"
    disagree = any(
        doubt.code == "client_server_disagree" and doubt.cell in (None, cell.cell)
        for doubt in doubts
    )
    return disagree and _same_window(cell, steady, server)


def _no_steady(cell: CellResult) -> str:
    """Return why a cell has no steady figure."""
    if cell.outcome != "measured":
        detail = f": {inert(cell.outcome_detail)}" if cell.outcome_detail else ""
        return OUTCOMES[cell.outcome] + detail
    return f"no steady figure: {inert(cell.steady.reason)}" if cell.steady.reason else NO_ESTIMATE


def _same_window(cell: CellResult, steady: Estimate, server: Estimate) -> bool:
    """Return whether the server's rate is over the steady window, judged by the agreement."""
    if cell.agreement_pct is None:
        return False
    implied = server.point * (1 + cell.agreement_pct / 100)
    return math.isclose(implied, steady.point, rel_tol=SAME_WINDOW_TOLERANCE)


def relative_error(estimate: Estimate) -> float:
    """Return the relative half-width of an estimate, 0 where no interval is known."""
    return estimate.relative_half_width or 0.0


@dataclass(frozen=True, slots=True)
class Gain:
    """A step from one level to a higher one: the ratio of rates, its relative error.

    `per_doubling` is the factor that each doubling of the level brings.
    """

    low: int
    high: int
    ratio: float
    error: float

    @property
    def doublings(self) -> float:
        """How many doublings of the level it spans."""
        return math.log2(self.high / self.low)

    @property
    def per_doubling(self) -> float:
        """The ratio spread evenly over the doublings between the levels."""
        return float(self.ratio ** (1 / self.doublings))


def gain(low: tuple[int, Estimate], high: tuple[int, Estimate]) -> Gain:
    """Return the step between two (level, rate) pairs; errors add in quadrature."""
    error = math.hypot(relative_error(low[1]), relative_error(high[1]))
    return Gain(low[0], high[0], high[1].point / low[1].point, error)


def like_for_like(
    low: CellResult, high: CellResult, doubts: Sequence[Doubt]
) -> tuple[Gain, bool] | None:
    """Return the step between two cells, and whether the batch figures had to serve.

    Steady rates are compared where both cells have one of the same kind (decode or sustained);
    None where the cells have no rate in common.
    """
    first, last = headline(low, doubts), headline(high, doubts)
    below, above, by_batch = first.estimate, last.estimate, False
    if below is None or above is None or first.estimand != last.estimand:
        below, above = low.client.output_tok_per_s, high.client.output_tok_per_s
        by_batch = True
    if below is None or above is None or below.point <= 0 or above.point <= 0:
        return None
    return gain((low.concurrency, below), (high.concurrency, above)), by_batch

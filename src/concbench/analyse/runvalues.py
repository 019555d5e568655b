"""What one round says of each metric that is compared: one number a round, the unit of replication.

Beside each median stands the mean of the worst quarter, in which a lane that is equal on average
and bad to some of its users shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from concbench.analyse.estimate import nearest_rank
from concbench.analyse.evidence import gather
from concbench.analyse.rates import batch_tok_per_s
from concbench.analyse.streams import Floats
from concbench.analyse.verdict import Better
from concbench.analyse.windows import Window
from concbench.domain import Round, TargetFacts

STEADY, BATCH = "steady_output_tok_per_s", "output_tok_per_s"
RATES = (STEADY, BATCH)
MEDIAN, WORST = "p50", "worst_quarter"
LEAST_FOR_QUARTER = 4

BETTER: dict[str, Better] = {
    STEADY: "higher",
    BATCH: "higher",
    f"ttft_ms.{MEDIAN}": "lower",
    f"ttft_ms.{WORST}": "lower",
    f"tpot_ms.{MEDIAN}": "lower",
    f"tpot_ms.{WORST}": "lower",
    f"e2e_ms.{MEDIAN}": "lower",
    f"e2e_ms.{WORST}": "lower",
}
"""Every metric that can be compared, and which way is better."""

CellKey = tuple[int, int, float | None]
"""Context in tokens, concurrency, rate in requests a second: what two lanes must share."""


@dataclass(frozen=True, slots=True)
class RoundValues:
    """A measured round's values by metric. `estimand` is of the steady window, None without one.

    `place` is the round's number in the order of time, over the whole study.
    """

    round_id: str
    lane: str
    link: str | None
    key: CellKey
    cell: str
    place: int
    values: Mapping[str, float]
    estimand: str | None
    output_tok: tuple[int, ...]


def round_values(
    round_: Round, place: int, facts: TargetFacts | None = None, *, template_tok: int = 0
) -> RoundValues:
    """Return what a round says of each metric; a metric that it has no value of is left out."""
    seen = gather([round_], facts, template_tok=template_tok)
    values: dict[str, float] = {}
    window = seen.windows[0] if seen.windows else None
    if isinstance(window, Window):
        values[STEADY] = window.tok_per_s
    batch = batch_tok_per_s(round_)
    if batch is not None:
        values[BATCH] = batch
    for part in seen.felt:
        for base in ("ttft_ms", "tpot_ms", "e2e_ms"):
            values.update(_median_and_worst(base, getattr(part, base)))
    cell = round_.cell
    return RoundValues(
        round_id=round_.round_id,
        lane=cell.lane,
        link=cell.link,
        key=(cell.context_tok, cell.concurrency, cell.rate_rps),
        cell=cell.cell,
        place=place,
        values=values,
        estimand=window.estimand if isinstance(window, Window) else None,
        output_tok=tuple(record.output_tok for record in seen.ok),
    )


def _median_and_worst(base: str, values: Floats) -> dict[str, float]:
    """Return the median, and the mean of the slowest quarter where there are four values.

    The median is the p50 of every table, by nearest rank: half of a wave may have queued, and what
    lies between the two halves is the time of no request.
    """
    if not values.size:
        return {}
    ordered = np.sort(values)
    found = {f"{base}.{MEDIAN}": nearest_rank(ordered, 50)}
    if values.size >= LEAST_FOR_QUARTER:
        quarter = ordered[-(values.size // 4) :]
        found[f"{base}.{WORST}"] = float(quarter.mean())
    return found


def common_metrics(a: Sequence[RoundValues], b: Sequence[RoundValues]) -> list[str]:
    """Return the metrics that every round of both sides has, the headline first.

    Steady rates are compared where all rounds have one of the same estimand, batch rates
    otherwise; E2E only where nothing was streamed, since TTFT and TPOT say more.
    """
    everyone = [*a, *b]
    if not a or not b:
        return []
    shared = set(BETTER).intersection(*(each.values for each in everyone))
    if len({each.estimand for each in everyone}) == 1:
        shared -= {BATCH} if STEADY in shared else set()
    else:
        shared -= {STEADY}
    if f"ttft_ms.{MEDIAN}" in shared:
        shared -= {f"e2e_ms.{MEDIAN}", f"e2e_ms.{WORST}"}
    return [name for name in BETTER if name in shared]

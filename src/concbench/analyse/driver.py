"""What a running comparison does next: measure some more runs, look, or stop.

```
state = Progress()
while (block := next_block(state)) is not None:
    values = [measure(run) for run in block]              # ABBA…, with a closing control A
    state = Progress(pairs=last_pair + 1, verdicts=look(comparisons(values)))
```

So that the study can be judged again from the disk it keeps notes: `ab` (`{"a": lane, "b": lane,
"looks": [5, 7, 10], "levels", "contexts"}`), `start` (`{"lane": lane}`) whenever a server is
started, `lane_facts` (`{"lane", "extra", "flags"}`), after each run `ab_run` (`{"letter": "A",
"pair": 0 or null, "rounds": [round ids]}`), and at the end `ab_end` (`{"ended_by"}`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from concbench.analyse.looks import LOOKS
from concbench.analyse.unlike import ACCEPTABLE
from concbench.analyse.verdict import Comparison, judge
from concbench.plan.order import Run, ab_order
from concbench.result import VerdictResult

FINAL = frozenset({"a_faster", "b_faster", "equivalent", "invalid", "not_comparable"})

BY_NATURE = frozenset(ACCEPTABLE) - {"output_length", "prompt_cache", "acceptance", "order"}
"""What makes two lanes unlike by what they are: more runs do not change it."""


class Progress(Struct, frozen=True, kw_only=True):
    """How far a comparison is: complete pairs, and the verdicts of the last look.

    `looks` are the numbers of pairs to look after, ascending; the last is the most. `until` is a
    relative half-width of the ratio at which a level is left alone, whatever its verdict.
    """

    pairs: int = 0
    verdicts: Sequence[VerdictResult] = ()
    looks: Sequence[int] = LOOKS
    until: float | None = None


def next_block(state: Progress) -> list[Run] | None:
    """Return the runs to measure before the next look, or None to stop.

    Stops after the last look, and before when every level has a verdict. A control that drifted by
    less than δ may have been noise, so that goes on; one that drifted by more is beyond repair.
    """
    ahead = [pairs for pairs in state.looks if pairs > state.pairs]
    headlines = headline_rows(state.verdicts)
    if not ahead or (headlines and all(settled(row, state.until) for row in headlines)):
        return None
    return ab_order(ahead[0], first_pair=state.pairs)


def headline_rows(verdicts: Sequence[VerdictResult]) -> list[VerdictResult]:
    """Return the verdicts that decide when to stop: of each level's first metric, its rate.

    A latency's tail may stay open for ever; whoever wants it settled asks for more pairs.
    """
    first: dict[tuple[str, str, str, int, int], str] = {}
    return [
        row
        for row in verdicts
        if row.metric
        == first.setdefault(
            (row.a, row.b, row.cell_a, row.context_tok, row.concurrency), row.metric
        )
    ]


def hopeless(verdicts: Sequence[VerdictResult]) -> bool:
    """Return whether no run can give a verdict: the lanes are unlike by what they are.

    Stopping for this costs no α, since no figure was looked at.
    """
    return bool(verdicts) and all(
        row.verdict == "not_comparable" and BY_NATURE & (set(row.unlike) - set(row.accepted))
        for row in verdicts
    )


def settled(row: VerdictResult, until: float | None = None) -> bool:
    """Return whether more pairs are not to change a verdict."""
    if until is not None and _half_width(row) <= until:
        return True
    if row.verdict == "drifted" and row.drift_pct is not None:
        return abs(math.log1p(row.drift_pct / 100)) > math.log1p(row.delta)
    return row.verdict in FINAL


def _half_width(row: VerdictResult) -> float:
    """Return the relative half-width of the ratio's interval, infinite without one."""
    ratio = row.ratio
    if ratio is None or ratio.low is None or ratio.high is None or not ratio.point:
        return math.inf
    return (ratio.high - ratio.low) / (2 * ratio.point)


def look(comparisons: Sequence[Comparison]) -> list[VerdictResult]:
    """Return the verdicts at this look: `judge` at the level that the look may spend."""
    return judge(comparisons)


def looks_up_to(most_pairs: int) -> tuple[int, ...]:
    """Return the usual looks below a user's own limit, and the limit."""
    return (*(pairs for pairs in LOOKS if pairs < most_pairs), most_pairs)

"""What a running comparison does next: measure some more runs, look, or stop.

```
state = Progress()
while (block := next_block(state)) is not None:
    values = [measure(run) for run in block]              # ABBA…, with a closing control A
    state = Progress(pairs=last_pair + 1, verdicts=look(comparisons(values)))
```

So that the study can be judged again from the disk it keeps three kinds of notes: `ab`
(`{"a": lane, "b": lane, "looks": [5, 7, 10]}`), `start` (`{"lane": lane}`) whenever a server is
started, and after each run `ab_run` (`{"letter": "A", "pair": 0 or null, "rounds": [round ids]}`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from concbench.analyse.looks import LOOKS
from concbench.analyse.verdict import Comparison, judge
from concbench.plan.order import Run, ab_order
from concbench.result import VerdictResult

FINAL = frozenset({"a_faster", "b_faster", "equivalent", "invalid", "not_comparable"})


class Progress(Struct, frozen=True, kw_only=True):
    """How far a comparison is: complete pairs, and the verdicts of the last look.

    `looks` are the numbers of pairs to look after, ascending; the last is the most.
    """

    pairs: int = 0
    verdicts: Sequence[VerdictResult] = ()
    looks: Sequence[int] = LOOKS


def next_block(state: Progress) -> list[Run] | None:
    """Return the runs to measure before the next look, or None to stop.

    Stops after the last look, and before when every verdict is final. A control that drifted by
    less than δ may have been noise, so that goes on; one that drifted by more is beyond repair.
    """
    ahead = [pairs for pairs in state.looks if pairs > state.pairs]
    if not ahead or (state.verdicts and all(settled(row) for row in state.verdicts)):
        return None
    return ab_order(ahead[0], first_pair=state.pairs)


def settled(row: VerdictResult) -> bool:
    """Return whether more pairs are not to change a verdict."""
    if row.verdict == "drifted" and row.drift_pct is not None:
        return abs(math.log1p(row.drift_pct / 100)) > math.log1p(row.delta)
    return row.verdict in FINAL


def look(comparisons: Sequence[Comparison]) -> list[VerdictResult]:
    """Return the verdicts at this look: `judge` at the level that the look may spend."""
    return judge(comparisons)


def looks_up_to(most_pairs: int) -> tuple[int, ...]:
    """Return the usual looks below a user's own limit, and the limit."""
    return (*(pairs for pairs in LOOKS if pairs < most_pairs), most_pairs)

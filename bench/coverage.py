"""Do 95 % intervals of closed loops hold the truth in 95 % of runs? In virtual time, no server.

Over rounds, over batches inside one loop, and inside one loop that the stopping rule ended. Rounds
have a limit in every case. The two hard cases have none inside one loop: an engine whose noise
lasts as long as a request (intervals too narrow), and one in which prefill is half of every
request's time (too wide).
"""

from __future__ import annotations

import numpy as np
from tests.analyse.loops import (
    Loops,
    Model,
    covered_by_batches,
    covered_by_rounds,
    covered_when_stopped,
    rates_of,
    run,
    true_rate,
)

from concbench.analyse.stopping import StopRule

LOOPS, ROUNDS, LENGTH_S, LONGEST_S = 1000, 4, 60.0, 240.0
USUAL = {
    "N = 8, equal answers": Model(),
    "N = 8, ragged answers": Model(spread=0.5),
    "N = 12 on 8 slots, ragged": Model(n=12, slots=8, spread=0.3),
    "N = 1": Model(n=1),
    "N = 2, ragged": Model(n=2, spread=0.3),
    "N = 8, long prefill, ragged": Model(prefill_s=0.3, spread=0.5),
}
HARD = {
    "N = 8, noise of 2 s memory": Model(spread=0.3, drift=0.02, drift_s=2.0),
    "N = 32, half of it prefill": Model(n=32, output_tok=60, spread=0.5),
}


def line(name: str, coverage: float, limits: tuple[float, float] | None, note: str) -> int:
    """Print one coverage, and return 1 where it is outside its limits."""
    ok = limits is None or limits[0] <= coverage <= limits[1]
    verdict = "" if limits is None else "ok" if ok else "MISSED"
    print(f"  {name:<44} {100 * coverage:5.1f} % {verdict:<6} {note}", flush=True)
    return 0 if ok else 1


def stopping(found: Loops, model: Model, truth: float, *, limited: bool) -> int:
    """The stopping rule where chance decides when it stops: at targets near what is reached."""
    width = covered_by_batches(found, model, truth)[1]
    missed = 0
    for share in (1.0, 1.4, 2.0):
        target = share * width
        rule = StopRule(target, max_s=LONGEST_S - 5)
        coverage, length_s, by_interval = covered_when_stopped(found, model, truth, rule)
        note = f"target ± {100 * target:.2f} %: {length_s:.0f} s, {100 * by_interval:.0f} % met it"
        missed += line("   stopped by the rule", coverage, (0.93, 0.975) if limited else None, note)
    return missed


def case(name: str, model: Model, *, limited: bool) -> int:
    """Print everything of one engine."""
    truth = true_rate(model)
    found = run(model, LOOPS * ROUNDS, LENGTH_S, seed=1)
    rates = rates_of(found, model)
    error = 100 * (rates / truth - 1)
    print(
        f"  {name}: {truth:.1f} tok/s, a {LENGTH_S:.0f} s loop is off by {error.mean():+.2f} ± "
        f"{error.std():.2f} % ({np.abs(error).max():.2f} % at most of {rates.size})"
    )
    limits = (0.93, 0.975) if limited else None
    missed = line("   over 4 rounds", covered_by_rounds(rates, truth), (0.93, 0.975), "")
    coverage, width = covered_by_batches(found, model, truth)
    missed += line("   over batches", coverage, limits, f"half-width ± {100 * width:.2f} %")
    long = run(model, LOOPS, LONGEST_S, seed=2)
    return missed + stopping(long, model, truth, limited=limited)


def main() -> int:
    missed = sum(case(name, model, limited=True) for name, model in USUAL.items())
    return missed + sum(case(name, model, limited=False) for name, model in HARD.items())

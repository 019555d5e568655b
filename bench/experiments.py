"""Comparisons in virtual time: a world with a known truth, and the real driver stopping in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from concbench.analyse.driver import Progress, look, next_block
from concbench.analyse.looks import LOOKS
from concbench.analyse.verdict import Comparison
from concbench.plan.order import Run
from concbench.result import VerdictResult

ROUNDS = 4
"""Rounds of a run, as everywhere; a run's value is their mean."""

RUNS_AT_MOST = 23
"""Runs of 10 pairs with the three closing controls: what drift per experiment refers to."""


@dataclass(frozen=True)
class World:
    """The truth. Shares, not percent: `difference` of B over A, `sd` per round, `start_sd` per
    start of a server, `drift` over a whole experiment (all 10 pairs), `slow` and `slow_share` of a
    hidden state that a start may fall in."""

    difference: float = 0.0
    sd: float = 0.015
    start_sd: float = 0.0
    drift: float = 0.0
    slow: float = 0.0
    slow_share: float = 0.0
    levels: int = 1
    rounds: int = ROUNDS


@dataclass
class Ended:
    """How one experiment ended: its verdicts and the runs that it took."""

    verdicts: list[VerdictResult]
    runs: int


@dataclass
class Site:
    """Where runs are measured: values by letter and level, in order."""

    world: World
    random: np.random.Generator
    runs: int = 0
    a: list[list[float]] = field(default_factory=list)
    pairs: dict[int, dict[str, list[float]]] = field(default_factory=dict)

    def measure(self, run: Run) -> None:
        world, random = self.world, self.random
        log = world.drift * self.runs / RUNS_AT_MOST
        log += math.log1p(world.difference) if run.letter == "B" else 0.0
        log += random.normal(0, world.start_sd) if world.start_sd else 0.0
        if world.slow_share and random.random() < world.slow_share:
            log += math.log1p(-world.slow)
        noise = random.normal(0, world.sd, (world.levels, world.rounds))
        values = [float(value) for value in (100 * np.exp(log + noise)).mean(axis=1)]
        self.runs += 1
        if run.letter == "A":
            self.a.append(values)
        if run.pair is not None:
            self.pairs.setdefault(run.pair, {})[run.letter] = values

    def comparisons(self, looks: Sequence[int] | None) -> list[Comparison]:
        return [
            Comparison(
                metric="steady_output_tok_per_s",
                better="higher",
                a="a",
                b="b",
                cell_a=f"a{level}",
                cell_b=f"b{level}",
                concurrency=2**level,
                context_tok=50,
                pairs=[(both["A"][level], both["B"][level]) for both in self.pairs.values()],
                controls=[values[level] for values in self.a],
                more_a=[values[level] for values in self.a],
                starts_a=2,
                starts_b=2,
                looks=looks,
            )
            for level in range(self.world.levels)
        ]


def experiment(world: World, seed: int, looks: Sequence[int] = LOOKS) -> Ended:
    """Run one comparison to its end, as the stopping rule has it."""
    site = Site(world, np.random.default_rng(seed))
    state = Progress(looks=looks)
    while (block := next_block(state)) is not None:
        for run in block:
            site.measure(run)
        alone = looks if len(looks) > 1 else None
        verdicts = look(site.comparisons(alone))
        state = Progress(pairs=len(site.pairs), verdicts=verdicts, looks=looks)
    return Ended(list(state.verdicts), site.runs)


def ended(world: World, number: int, looks: Sequence[int] = LOOKS, seed: int = 0) -> list[Ended]:
    """Run `number` experiments with seeds of their own."""
    return [experiment(world, 1_000_003 * seed + one, looks) for one in range(number)]


def shares(found: Sequence[Ended]) -> dict[str, float]:
    """Return how often each verdict came, as shares of experiments (first level)."""
    counts = Counter(one.verdicts[0].verdict for one in found)
    return {name: count / len(found) for name, count in counts.most_common()}


def share(found: Sequence[Ended], holds: Callable[[VerdictResult], bool]) -> float:
    """Return the share of experiments with a verdict at any level for which something holds."""
    return sum(any(holds(row) for row in one.verdicts) for one in found) / len(found)


def is_faster(row: VerdictResult) -> bool:
    return row.verdict in ("a_faster", "b_faster")


def names_runs_apart(row: VerdictResult) -> bool:
    """Return whether a verdict names two states of a side, or one run apart from the others."""
    return any(word in (row.why or "") for word in ("bimodal:", " has one run near "))


def mean_runs(found: Sequence[Ended]) -> float:
    return sum(one.runs for one in found) / len(found)

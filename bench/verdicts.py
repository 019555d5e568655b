"""Error rates of the verdicts with the stopping rule, in virtual time; and what stopping saves.

500 seeded experiments a world (3,000 where a rate near 5 % is to be told). Looks after 5, 7 and 10
pairs, α spent over them; the noise is per round and a run is the mean of 4 rounds, unless said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.experiments import (
    Ended,
    World,
    ended,
    is_faster,
    mean_runs,
    names_runs_apart,
    share,
    shares,
)

NUMBER, MANY = 500, 3000
FIXED = (10,)


@dataclass(frozen=True)
class Case:
    """A world, what is counted in it, and the target: at most, or at least, a share."""

    name: str
    world: World
    counted: str
    count: Callable[[list[Ended]], float]
    at_most: float | None = None
    at_least: float | None = None
    number: int = NUMBER

    def met(self, value: float) -> bool:
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)


def verdict_share(*names: str) -> Callable[[list[Ended]], float]:
    return lambda found: share(found, lambda row: row.verdict in names)


FASTER = verdict_share("a_faster", "b_faster")

CASES = (
    Case("no difference, 1.5 % a round", World(), "false faster", FASTER, 0.05, number=MANY),
    Case("… one round a run", World(rounds=1), "false faster", FASTER, 0.05, number=MANY),
    Case("… four levels", World(levels=4), "false faster at any", FASTER, 0.05, number=MANY),
    Case("… 4 % a round", World(sd=0.04), "false faster", FASTER, 0.05, number=MANY),
    Case("… each start off by 1 %", World(start_sd=0.01), "false faster", FASTER, 0.05),
    Case("B 5 % faster", World(0.05), "b_faster", verdict_share("b_faster"), at_least=0.9),
    Case("B 5 % slower", World(-0.05), "a_faster", verdict_share("a_faster"), at_least=0.9),
    Case("B 5 % faster, two rounds a run", World(0.05, rounds=2), "b_faster",
         verdict_share("b_faster"), at_least=0.9),
    Case("B 5 % faster, one round a run", World(0.05, rounds=1), "b_faster",
         verdict_share("b_faster")),
    Case("B 3 % faster", World(0.03), "b_faster", verdict_share("b_faster")),
    Case("B 3 % faster (= δ), one round", World(0.03, rounds=1), "false equivalent",
         verdict_share("equivalent"), 0.05, number=MANY),
    Case("10 % slower over 10 pairs", World(drift=-0.10), "faster", FASTER, 0.0),
    Case("10 % slower over 10 pairs", World(drift=-0.10), "drifted", verdict_share("drifted"),
         at_least=0.95),
    Case("10 % slower over 5 pairs", World(drift=-0.21), "drifted", verdict_share("drifted"),
         at_least=1.0),
    Case("10 % slower, B 5 % faster", World(0.05, drift=-0.10), "drifted",
         verdict_share("drifted"), at_least=0.95),
    Case("2 starts in 5 a third slower", World(slow=0.33, slow_share=0.4), "runs apart named",
         lambda found: share(found, names_runs_apart), at_least=0.95),
    Case("2 starts in 5 a third slower", World(slow=0.33, slow_share=0.4), "false faster",
         lambda found: share(found, is_faster), 0.05),
    Case("no hidden state", World(), "runs apart named",
         lambda found: share(found, names_runs_apart), 0.01),
)  # fmt: skip


def main() -> int:
    missed = 0
    for case in CASES:
        found = ended(case.world, case.number)
        value = case.count(found)
        missed += not case.met(value)
        target = "no target"
        if case.at_most is not None:
            target = f"at most {100 * case.at_most:g} %"
        if case.at_least is not None:
            target = f"at least {100 * case.at_least:g} %"
        all_of_it = ", ".join(f"{name} {100 * part:.1f}" for name, part in shares(found).items())
        print(
            f"  {case.name:32} {case.counted:20} {100 * value:5.1f} %  ({target})"
            f"{'' if case.met(value) else '  MISSED'}\n"
            f"  {'':32} {case.number} experiments, {mean_runs(found):.1f} runs each: {all_of_it}"
        )
    return missed + _time_to_a_verdict() + _same_power()


def _time_to_a_verdict() -> int:
    """Runs until a verdict, beside a fixed design of 10 pairs (21 runs), and both powers."""
    print("  runs until the verdict, looks after 5, 7, 10 pairs against 10 pairs at once:")
    missed = 0
    for difference in (0.0, 0.02, 0.05, 0.20):
        world = World(difference)
        looked, fixed = ended(world, NUMBER, seed=1), ended(world, NUMBER, FIXED, seed=2)
        said = verdict_share("equivalent") if not difference else FASTER
        ratio = mean_runs(looked) / mean_runs(fixed)
        missed += ratio > 0.7
        print(
            f"    true {100 * difference:4.1f} %: {mean_runs(looked):4.1f} against "
            f"{mean_runs(fixed):.1f} runs ({ratio:.2f} ×, at most 0.7); right "
            f"{100 * said(looked):.1f} % against {100 * said(fixed):.1f} %"
        )
    return missed


def _same_power() -> int:
    """Runs beside the smallest fixed design that finds a hard difference as often.

    2 % at 3 % of noise a round: whoever fixes the number of pairs beforehand has to fix it for
    that, and pays it for easy differences and for none as well.
    """
    hard, noise = 0.02, 0.03
    right = verdict_share("a_faster", "b_faster", "equivalent")
    world = World(hard, sd=noise)
    power = right(ended(world, NUMBER, seed=3))
    pairs = next(
        (n for n in range(4, 16) if right(ended(world, NUMBER, (n,), seed=4)) >= power), 16
    )
    print(
        f"  a fixed design that settles {100 * hard:g} % as often "
        f"({100 * power:.1f} %) has {pairs} pairs, {2 * pairs + 1} runs:"
    )
    missed = 0
    for difference in (0.0, hard, 0.05, 0.20):
        found = ended(World(difference, sd=noise), NUMBER, seed=5)
        ratio = mean_runs(found) / (2 * pairs + 1)
        missed += ratio > 1 and difference != hard
        print(
            f"    true {100 * difference:4.1f} %: {mean_runs(found):4.1f} runs ({ratio:.2f} ×), "
            f"settled {100 * right(found):.1f} %"
        )
    return missed


if __name__ == "__main__":
    raise SystemExit(main())

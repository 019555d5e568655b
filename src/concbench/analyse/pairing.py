"""From rounds to pairs: which values of A and B belong together, and were they interleaved?

A comparison that was run as one names its runs: letter, pair, rounds. Elsewhere the order of the
rounds tells. They are interleaved where each two neighbours hold one of either lane, as a study
over several lanes measures them; one lane after the other is not, and a drift of the machine
would then look like a difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from concbench.analyse.runvalues import RoundValues
from concbench.plan.order import Letter


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a comparison on record: `pair` None is the closing control."""

    letter: Letter
    pair: int | None
    rounds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Paired:
    """The rounds of two sides of one cell. One entry of `pairs` is (rounds of A, rounds of B).

    `controls` are the rounds of each run of A in order of time, the closing one included.
    """

    pairs: tuple[tuple[tuple[RoundValues, ...], tuple[RoundValues, ...]], ...]
    controls: tuple[tuple[RoundValues, ...], ...]
    interleaved: bool


Run = tuple[RoundValues, ...]


def paired_by_runs(
    rounds: Sequence[RoundValues], runs: Sequence[RunRecord], gone: frozenset[str] = frozenset()
) -> Paired:
    """Pair the rounds of one cell by the runs on record; a pair with a side gone is no pair."""
    known = {each.round_id: each for each in rounds if each.round_id not in gone}
    found: dict[int, dict[Letter, Run]] = {}
    controls: list[Run] = []
    for run in runs:
        values = tuple(known[name] for name in run.rounds if name in known)
        if not values:
            continue
        if run.letter == "A":
            controls.append(values)
        if run.pair is not None:
            found.setdefault(run.pair, {})[run.letter] = values
    pairs = [(both["A"], both["B"]) for _, both in sorted(found.items()) if len(both) == 2]
    return Paired(tuple(pairs), tuple(controls), interleaved=True)


def paired_by_order(
    a: Sequence[RoundValues],
    b: Sequence[RoundValues],
    gone: frozenset[str] = frozenset(),
    *,
    same_study: bool = True,
) -> Paired:
    """Pair the rounds of one cell by their order in time, each round a run of its own.

    Rounds that are gone still count for the order, so that retracting one drops its pair and
    does not shift the others. One lane after the other is paired by number.
    """
    first = sorted(a, key=lambda each: each.place)
    second = sorted(b, key=lambda each: each.place)
    woven = _woven(first, second) if same_study else None
    couples = woven if woven is not None else list(zip(first, second, strict=False))
    return Paired(
        pairs=tuple(
            ((x,), (y,)) for x, y in couples if x.round_id not in gone and y.round_id not in gone
        ),
        controls=tuple((each,) for each in first if each.round_id not in gone),
        interleaved=woven is not None,
    )


def _woven(
    a: Sequence[RoundValues], b: Sequence[RoundValues]
) -> list[tuple[RoundValues, RoundValues]] | None:
    """Return the neighbours in pairs where each two hold one of either side, else None.

    A last one may be left over: a closing control, or what an interruption cut off.
    """
    side = {id(each): "a" for each in a} | {id(each): "b" for each in b}
    order = sorted([*a, *b], key=lambda each: each.place)
    couples: list[tuple[RoundValues, RoundValues]] = []
    for left, right in zip(order[::2], order[1::2], strict=False):
        if side[id(left)] == side[id(right)]:
            return None
        couples.append((left, right) if side[id(left)] == "a" else (right, left))
    return couples or None


def mean_of(run: Run, metric: str) -> float:
    """Return a run's value: the mean of its rounds."""
    return sum(each.values[metric] for each in run) / len(run)


def runs_of(notes: Sequence[Mapping[str, object]]) -> list[RunRecord]:
    """Return the runs on record in a study's notes (`{"letter", "pair", "rounds"}`).

    Entries that are none are left out.
    """
    found: list[RunRecord] = []
    for note in notes:
        letter, pair, rounds = note.get("letter"), note.get("pair"), note.get("rounds")
        if letter not in ("A", "B") or not isinstance(rounds, list):
            continue
        found.append(
            RunRecord(
                letter="A" if letter == "A" else "B",
                pair=pair if isinstance(pair, int) else None,
                rounds=tuple(str(name) for name in rounds),
            )
        )
    return found

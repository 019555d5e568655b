"""In which order things are measured, so that drift falls on all of them alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import Struct

from concbench.errors import UsageError
from concbench.plan.splitmix import SplitMix64, derive

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

T = TypeVar("T")

Letter = Literal["A", "B"]
_ORDER_TAG = 0x0DE2


class Run(Struct, frozen=True, kw_only=True):
    """One run of a comparison. `pair` counts from 0; None marks the closing control."""

    letter: Letter
    pair: int | None


def ab_order(pairs: int, first_pair: int = 0) -> list[Run]:
    """Return the runs of pairs `first_pair` … `pairs` − 1 as A B B A A B …, and a closing A.

    Every other pair is turned round, which cancels a linear drift; the closing control gives
    every B an A after it. A comparison that goes on after a look asks for the later pairs with
    `first_pair` and gets their own control. Raises UsageError unless there is a pair to run.
    """
    if not 0 <= first_pair < pairs:
        raise UsageError(f"a comparison needs at least one pair, not {pairs - first_pair}")
    runs: list[Run] = []
    for pair in range(first_pair, pairs):
        letters: tuple[Letter, Letter] = ("A", "B") if pair % 2 == 0 else ("B", "A")
        runs += [Run(letter=letter, pair=pair) for letter in letters]
    return [*runs, Run(letter="A", pair=None)]


def letters_of(runs: Sequence[Run]) -> str:
    """Return the order as one letter a run: `ABBAABBAABA` for five pairs."""
    return "".join(run.letter for run in runs)


def pair_seed(seed: int, pair: int) -> int:
    """Return the workload seed that both runs of a pair share; each pair has a new one."""
    return derive(seed, pair) >> 1


def cell_order(
    cells: Sequence[T],
    rounds: int,
    seed: int,
    *,
    group: Callable[[T], Hashable] | None = None,
) -> list[tuple[int, T]]:
    """Return (round, cell) for every round of every cell, each round shuffled anew.

    All cells have their first round before any has its second, so the rounds of a cell spread
    over the whole time. `group` names what is costly to change, a lane: a round visits
    each group once, in the order of first appearance in even rounds and reversed in odd ones
    (A B B A …), and shuffles within it.
    """
    groups: dict[Hashable, list[T]] = {}
    for cell in cells:
        groups.setdefault(None if group is None else group(cell), []).append(cell)
    numbers = SplitMix64(derive(_ORDER_TAG, seed))
    order: list[tuple[int, T]] = []
    for number in range(rounds):
        members = list(groups.values())
        for group_cells in members if number % 2 == 0 else reversed(members):
            shuffled = numbers.permutation(len(group_cells))
            order += [(number, group_cells[position]) for position in shuffled]
    return order

"""Speculation on against off: where it pays, by kind of content and concurrency. Pure.

The verdicts of all levels and contents are one family (`verdict.judge`), so that "pays" at one of
sixteen places is not chance. How many drafted tokens the server accepted stands beside each level:
acceptance depends on what is generated, and a gain is one at this acceptance only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from concbench.analyse.compare import (
    Outcome,
    Party,
    comparisons_of,
    crossovers_of,
    doubts_of_verdicts,
)
from concbench.analyse.driver import headline_rows
from concbench.analyse.unlike import ACCEPTANCE_WITHIN
from concbench.analyse.verdict import DELTA, Comparison, judge
from concbench.domain import Estimate
from concbench.result import CellResult, VerdictResult

T = TypeVar("T", Comparison, VerdictResult)
Word = Literal["pays", "costs", "equal", "undecided", "no verdict"]
WORDS: Mapping[str, Word] = {
    "b_faster": "pays",
    "a_faster": "costs",
    "equivalent": "equal",
    "inconclusive": "undecided",
}


class SpeculationRow(Struct, frozen=True, kw_only=True):
    """One content at one level: `ratio` is on ÷ off of `metric`, the level's rate.

    As the server counted them: `accepted_len` is 1 + accepted ÷ drafts, what a draft yields on
    average, `accepted_rate` accepted ÷ drafted, `tokens_per_step` generated ÷ (generated −
    accepted), what a step yields, those without a draft among them. None where it tells nothing.
    """

    content: str
    concurrency: int
    metric: str
    off: Estimate | None
    on: Estimate | None
    ratio: Estimate | None
    verdict: Word
    why: str | None
    accepted_len: float | None
    accepted_rate: float | None
    tokens_per_step: float | None


class SpeculationContent(Struct, frozen=True, kw_only=True):
    """One content over all levels. `pays_up_to` is None where it does not pay from the lowest on.

    `pays`, `costs`, `equal` and `undecided` (levels without a verdict among them) are
    concurrencies. `stops_in` is the crossover's bracket: the largest level at which it is shown to
    pay below all others, and the smallest above it at which it is shown to cost. `accepted_len` is
    the least and the most of the levels; `acceptance_varies`: they lie more than 5 % apart, so that
    levels differ by more than their number of users.
    """

    content: str
    pays: list[int]
    costs: list[int]
    equal: list[int]
    undecided: list[int]
    pays_up_to: int | None
    stops_in: tuple[int, int] | None
    accepted_len: tuple[float, float] | None
    acceptance_varies: bool
    says: str


class Speculation(Struct, frozen=True, kw_only=True):
    """What `concbench spec` says. `off` and `on` are the lanes; `sentence` is the answer.

    `acceptance` tells where the accepted tokens come from: `server`, or `unknown`.
    """

    off: str
    on: str
    sentence: str
    acceptance: str
    contents: list[SpeculationContent]
    rows: list[SpeculationRow]


@dataclass(frozen=True, slots=True)
class Judged:
    """Verdicts of all contents, sides named with their content, and what they come to."""

    outcome: Outcome
    speculation: Speculation


def judge_speculation(
    parties: Mapping[str, Sequence[Party]],
    accepted: Sequence[str],
    off: str,
    on: str,
    delta: float = DELTA,
) -> Judged:
    """Return the verdicts of speculation by content, corrected as one family.

    `parties` are the two sides, as measured with each content. Afterwards each side carries its
    content in its name: what is crossed over N is never crossed over contents.
    """
    built = {content: comparisons_of(pair, accepted, delta) for content, pair in parties.items()}
    verdicts = iter(judge([one for part in built.values() for one in part]))
    told: list[VerdictResult] = []
    crossovers: list[dict[str, Any]] = []
    comparisons = []
    rows: list[SpeculationRow] = []
    for content, part in built.items():
        mine = [_named(next(verdicts), content) for _ in part]
        renamed = [_named(one, content) for one in part]
        cells = {c.cell: c for party in parties[content] for c in party.cells.values()}
        rows += [_row(row, content, cells) for row in headline_rows(mine)]
        crossovers += crossovers_of(renamed, mine)
        comparisons += renamed
        told += mine
    outcome = Outcome(
        comparisons=tuple(comparisons),
        verdicts=tuple(told),
        crossovers=tuple(crossovers),
        doubts=tuple(doubts_of_verdicts(told)),
    )
    return Judged(outcome, summed_up(rows, off, on))


def _named(row: T, content: str) -> T:
    """Return the row with the content behind the names of its sides."""
    return replace(row, a=f"{row.a} · {content}", b=f"{row.b} · {content}")


def _row(verdict: VerdictResult, content: str, cells: Mapping[str, CellResult]) -> SpeculationRow:
    off, on = cells.get(verdict.cell_a), cells.get(verdict.cell_b)
    accepted = (on.server.acceptance if on is not None else None) or {}
    return SpeculationRow(
        content=content,
        concurrency=verdict.concurrency,
        metric=verdict.metric,
        off=_figure(off, verdict.metric),
        on=_figure(on, verdict.metric),
        ratio=verdict.ratio,
        verdict=WORDS.get(verdict.verdict, "no verdict"),
        why=verdict.why,
        accepted_len=accepted.get("mean_len"),
        accepted_rate=accepted.get("rate"),
        tokens_per_step=accepted.get("tokens_per_step"),
    )


def _figure(cell: CellResult | None, metric: str) -> Estimate | None:
    found = None if cell is None else getattr(cell.client, metric, None)
    return found if isinstance(found, Estimate) else None


def summed_up(rows: Sequence[SpeculationRow], off: str, on: str) -> Speculation:
    """Return rows with their summary by content, and the answer in one sentence."""
    contents = [
        _content(name, sorted((r for r in rows if r.content == name), key=lambda r: r.concurrency))
        for name in dict.fromkeys(row.content for row in rows)
    ]
    known = any(row.accepted_len is not None for row in rows)
    return Speculation(
        off=off,
        on=on,
        sentence=_sentence(contents),
        acceptance="server" if known else "unknown",
        contents=contents,
        rows=list(rows),
    )


def _content(name: str, rows: Sequence[SpeculationRow]) -> SpeculationContent:
    def levels(*words: Word) -> list[int]:
        return [row.concurrency for row in rows if row.verdict in words]

    pays, all_levels = levels("pays"), [row.concurrency for row in rows]
    open_levels = levels("undecided", "no verdict")
    from_the_lowest = bool(pays) and pays == all_levels[: len(pays)]
    costs = levels("costs")
    lengths = [row.accepted_len for row in rows if row.accepted_len is not None]
    span = (min(lengths), max(lengths)) if lengths else None
    return SpeculationContent(
        content=name,
        pays=pays,
        costs=costs,
        equal=levels("equal"),
        undecided=open_levels,
        pays_up_to=pays[-1] if from_the_lowest else None,
        stops_in=_bracket(pays, costs) if from_the_lowest else None,
        accepted_len=span,
        acceptance_varies=span is not None and span[1] > span[0] * (1 + ACCEPTANCE_WITHIN),
        says=_says(pays, open_levels, all_levels, from_the_lowest=from_the_lowest),
    )


def _bracket(pays: Sequence[int], costs: Sequence[int]) -> tuple[int, int] | None:
    """Return between which levels a gain becomes a loss; None where no loss was shown above it."""
    above = [level for level in costs if level > pays[-1]]
    return (pays[-1], above[0]) if above else None


def _says(
    pays: Sequence[int],
    open_levels: Sequence[int],
    all_levels: Sequence[int],
    *,
    from_the_lowest: bool,
) -> str:
    """Return where it pays, in words that `for CONTENT` can follow."""
    if not pays:
        return "is not shown to pay" if open_levels else "never pays"
    if list(pays) == list(all_levels):
        every = f"pays at every N measured ({_listed(pays)})"
        return every if len(pays) > 1 else f"pays at N = {pays[0]}"
    if from_the_lowest:
        return f"pays up to N = {pays[-1]}"
    return f"pays at N = {_listed(pays)} alone"


def _open(levels: Sequence[int]) -> str:
    return f" (open at N = {_listed(levels)})" if levels else ""


def _listed(levels: Iterable[int]) -> str:
    return ", ".join(map(str, levels))


def _sentence(contents: Sequence[SpeculationContent]) -> str:
    """Return the answer: contents of which the same is true stand together, the best first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in sorted(contents, key=lambda each: -len(each.pays)):
        groups.setdefault((one.says, _open(one.undecided)), []).append(one.content)
    if not groups:
        return "speculation: no level was measured on both sides"
    parts = [f"{says} for {_and(names)}{still}" for (says, still), names in groups.items()]
    said = ", ".join(parts)
    return f"speculation {said}".replace(", never pays for", ", never for")


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

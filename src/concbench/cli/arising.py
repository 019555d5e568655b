"""Doubts as they arise: each finished round is judged by itself, and what is new is told.

They are provisional. The judgement at the end is over all rounds of a cell and may find more, or
find that what one round showed is nothing in the whole.
"""

from __future__ import annotations

from concbench import __version__
from concbench.analyse.rates import batch_tok_per_s, headline_tok_per_s
from concbench.analyse.study import COMPANIONS, StudyFacts, judge
from concbench.domain import Cell, Doubt, Round, TargetFacts
from concbench.report.inert import inert

NEEDS_MORE_ROUNDS = ("wide_interval",)
"""Doubts that one round can only be too short for."""


class Arising:
    """Tells each doubt once a cell. Notes wait for the end."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def of(self, done: Round, facts: TargetFacts | None) -> list[Doubt]:
        """Return the warnings and fatal doubts that this round is the first to show."""
        if done.phase != "measured" or done.cell.context_label in COMPANIONS:
            return []
        found = judge([done], _facts(done, facts)).doubts
        fresh = []
        for doubt in found:
            key = (doubt.code, done.cell.cell)
            if doubt.severity == "note" or doubt.code in NEEDS_MORE_ROUNDS or key in self._told:
                continue
            self._told.add(key)
            fresh.append(doubt)
        return fresh


def _facts(done: Round, facts: TargetFacts | None) -> StudyFacts:
    return StudyFacts(
        tool_version=__version__,
        command="",
        study=None,
        began_utc=done.began_utc,
        machine={},
        targets={} if facts is None else {done.cell.lane: facts},
        target_half_width=None,
    )


def level_text(cell: Cell) -> str:
    """Return `N = 8`, or `4 req/s` of an open loop."""
    return f"N = {cell.concurrency}" if cell.rate_rps is None else f"{cell.rate_rps:g} req/s"


def doubt_text(doubt: Doubt, cell: Cell) -> str:
    """Return a doubt as one harmless line."""
    return f"! {doubt.code}  {inert(doubt.message, 300)}  ({level_text(cell)}, so far)"


def rate_text(done: Round, facts: TargetFacts | None) -> str:
    """Return a round's rate as text: the steady one, else the batch's; empty without one."""
    steady, batch = headline_tok_per_s(done, facts), batch_tok_per_s(done)
    rate = batch if steady is None else steady
    return "" if rate is None else f"{rate:,.{0 if rate >= 100 else 1}f} tok/s"

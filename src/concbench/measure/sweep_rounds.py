"""How many rounds each cell of a sweep gets, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass

from concbench.analyse.estimate import mean_estimate, relative_half_width
from concbench.analyse.rates import headline_tok_per_s
from concbench.measure.sweep_state import COMPANIONS, Standing
from concbench.store.read import StudyReader

HALF_WIDTH = 0.01
"""A cell is done early when the interval of its rate is within so much of it."""


@dataclass(frozen=True, slots=True)
class RoundRule:
    """`least` rounds a cell; then one more at a time until its interval is narrow, up to `most`."""

    least: int
    most: int

    def wanted(self, state: Standing, cell_id: str) -> int:
        """Return how many rounds a cell is to have, by what its rounds have shown so far."""
        done = len(state.took_s.get(cell_id, ()))
        if done >= self.most or is_narrow(state, cell_id):
            return max(self.least, done)
        return max(self.least, done + 1)

    def ended_by(self, state: Standing) -> dict[str, str]:
        """Return why each cell that has measured rounds ended.

        `interval`: narrow enough before it had the most rounds. `rounds_max`: all its rounds.
        `timeout`: it hung once too often. `interrupt`: a signal, or an engine that was gone, came
        first.
        """
        ends: dict[str, str] = {}
        for cell_id, took_s in state.took_s.items():
            if cell_id.rpartition(".")[2] in COMPANIONS:
                continue
            outcome = state.ended.get(cell_id, ("measured", ""))[0]
            if outcome != "measured":
                ends[cell_id] = "timeout" if outcome == "hung" else "interrupt"
            elif self._by_interval(state, cell_id):
                ends[cell_id] = "interval"
            else:
                ends[cell_id] = "rounds_max" if len(took_s) >= self.most else "interrupt"
        return ends

    def _by_interval(self, state: Standing, cell_id: str) -> bool:
        """Whether a narrow interval ended a cell: only where it could have had more rounds."""
        enough = len(state.took_s[cell_id]) >= self.least
        return self.most > self.least and enough and is_narrow(state, cell_id)


def is_narrow(state: Standing, cell_id: str) -> bool:
    """Whether the interval over a cell's rounds is as narrow as wanted; it takes three of them."""
    width = relative_half_width(mean_estimate(state.rates.get(cell_id, ())))
    return width is not None and width <= HALF_WIDTH


def with_rates(state: Standing, reader: StudyReader | None) -> Standing:
    """Return the state with the rates of the rounds that the study holds: each is read for it."""
    names: dict[str, list[str]] = {}
    lanes: dict[str, str] = {}
    for info in () if reader is None else reader.rounds("measured"):
        cell = info.cell
        if not (info.interrupted or info.retracted or cell.context_label in COMPANIONS):
            names.setdefault(cell.cell, []).append(info.round_id)
            lanes[cell.cell] = cell.lane
    if reader is None or not names:
        return state
    for cell_id, rounds in zip(names, reader.load_groups(names.values()), strict=True):
        facts = state.facts.get(lanes[cell_id])
        rates = (headline_tok_per_s(each, facts) for each in rounds)
        state.rates[cell_id] = [rate for rate in rates if rate]
    return state

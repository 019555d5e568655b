"""What a study holds of a sweep: finished rounds, ended cells, and what they were measured with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from concbench.domain import Cell, CellOutcome, TargetFacts
from concbench.plan.matrix import MatrixCell, Variant
from concbench.store.read import RoundInfo, StudyReader

LANE_NOTE = "sweep_lane"
CELLS_NOTE = "sweep_cells"
BEGUN_NOTE = "sweep_round"
PROMPTS_NOTE = "sweep_prompts"
IDENTITY_NOTE = "sweep_identity"
RETRY_NOTE = "sweep_retry"
CEILING_NOTE = "sweep_ceiling"
STARTS_NOTE = "start"

CRASHES = ("crashed", "oom", "hung")
MOST_CRASHES = 3

COMPANIONS = ("half", "control", "ceiling")
"""Context labels of rounds that stand beside a cell."""

PROMPTS_A_START = 100_000
"""Prompt numbers that one start of the tool may use: none is used by two."""


@dataclass(slots=True)
class Standing:
    """Where a sweep stands. Kept up to date while it goes on.

    `done` holds (cell id, index) of measured rounds, `ended` the cells that will not be measured
    again, with outcome and reason, `crashes` counts by cell, `begun` the rounds that were begun by
    (cell id, index). `facts` and `identity` are by variant, as they were at its first start.
    `took_s` has the measured rounds' lengths by cell id, `stale` the rounds to discard. `listed`,
    `ceilings`, `down` (those that do not start) and `controls` are of (variant, link). `rates` has
    the headline rates of measured rounds by cell id, tok/s. `file_blocks` tells by round which
    prompt of a file is its first, `next_block` which none had yet.
    """

    done: set[tuple[str, int]] = field(default_factory=set)
    ended: dict[str, tuple[CellOutcome, str]] = field(default_factory=dict)
    crashes: Counter[str] = field(default_factory=Counter)
    begun: Counter[tuple[str, int]] = field(default_factory=Counter)
    facts: dict[str, TargetFacts] = field(default_factory=dict)
    identity: dict[str, dict[str, Any]] = field(default_factory=dict)
    took_s: dict[str, list[float]] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    listed: set[tuple[str, str | None]] = field(default_factory=set)
    ceilings: set[tuple[str, str | None]] = field(default_factory=set)
    down: set[tuple[str, str | None]] = field(default_factory=set)
    controls: set[tuple[str, str | None]] = field(default_factory=set)
    lanes: set[str] = field(default_factory=set)
    rates: dict[str, list[float]] = field(default_factory=dict)
    file_blocks: dict[str, int] = field(default_factory=dict)
    next_block: int = 0
    next_round: int = 0
    first_prompt: int = 0

    def block(self, point: str, n: int) -> int:
        """Return the first of the `n` prompts of a file that a round has.

        All lanes get the same ones at the same point of the matrix, and no two points share any
        before the file has gone round.
        """
        if point not in self.file_blocks:
            self.file_blocks[point] = self.next_block
            self.next_block += n
        return self.file_blocks[point]

    def keep(self, cell_id: str, index: int, took_s: float, rate: float | None = None) -> None:
        """Take note of a measured round. `rate` is its headline, tok/s."""
        self.done.add((cell_id, index))
        if rate:
            self.rates.setdefault(cell_id, []).append(rate)
        self.took_s.setdefault(cell_id, []).append(took_s)

    def seen(self, cell: Cell, *, is_control: bool) -> None:
        """Take note of a measured round's place: a control counts until more is measured."""
        place = (cell.lane, cell.link)
        if is_control:
            self.controls.add(place)
        elif cell.context_label not in COMPANIONS:
            self.controls.discard(place)

    @property
    def has_failures(self) -> bool:
        """Whether anything ended in a way that another try may mend."""
        return bool(self.down) or any(how in CRASHES for how, _ in self.ended.values())

    def retried(self) -> None:
        """Forget every failure: what ended in one is tried again."""
        self.ended.clear()
        self.crashes.clear()
        self.down.clear()

    def mean_s(self) -> dict[str, float]:
        """Return the mean length of a round by cell id, in seconds."""
        return {cell: sum(known) / len(known) for cell, known in self.took_s.items()}


def standing_of(reader: StudyReader | None) -> Standing:
    """Return where the study's sweep stands; at its beginning without one."""
    state = Standing()
    if reader is None:
        return state
    for info in reader.rounds():
        _take_round(state, info)
    for line in reader.log:
        if line.event == "failed" and line.cell is not None:
            _take_failure(state, line.cell, line.why or "", line.data or {})
        elif line.event == "note" and line.kind is not None:
            _take_note(state, line.kind, line.data or {})
    starts = sum(line.event == "started" and line.round is None for line in reader.log)
    state.first_prompt = starts * PROMPTS_A_START
    return state


def _take_round(state: Standing, info: RoundInfo) -> None:
    number = info.round_id.partition("-")[0]
    state.next_round = max(state.next_round, int(number) + 1 if number.isdigit() else 0)
    state.lanes.add(info.cell.lane)
    if info.phase != "measured" or info.retracted:
        return
    if info.interrupted:
        state.stale.append(info.round_id)
        return
    state.keep(info.cell.cell, info.index, (info.end_ns - info.start_ns) / 1e9)
    state.seen(info.cell, is_control=info.cell.context_label == "control")


def _take_failure(state: Standing, cell: str, why: str, data: Mapping[str, Any]) -> None:
    outcome = data.get("outcome", "crashed")
    if outcome in CRASHES:
        state.crashes[cell] += 1
    if data.get("final"):
        state.ended[cell] = (outcome, why)
    lane = str(data.get("lane"))
    state.lanes.add(lane)
    if data.get("start"):
        state.down.add((lane, (data.get("cell") or {}).get("link")))


def _take_note(state: Standing, kind: str, data: Mapping[str, Any]) -> None:
    if kind == LANE_NOTE:
        name = str(data["variant"])
        state.facts.setdefault(name, msgspec.convert(data["facts"], TargetFacts))
        state.identity.setdefault(name, dict(data["identity"]))
    elif kind == BEGUN_NOTE:
        state.begun[str(data["cell"]), int(data["index"])] += 1
    elif kind == PROMPTS_NOTE:
        state.file_blocks[str(data["point"])] = int(data["first"])
        state.next_block = max(state.next_block, int(data["first"]) + int(data["n"]))
    elif kind == CELLS_NOTE:
        state.listed.add((str(data["variant"]), data.get("link")))
    elif kind == CEILING_NOTE:
        state.ceilings.add((str(data["variant"]), data.get("link")))
    elif kind == RETRY_NOTE:
        state.retried()


def cells_data(
    variant: Variant, link: str | None, cells: list[MatrixCell], facts: TargetFacts
) -> dict[str, Any]:
    """Return the note that lists a variant's cells with what they ask of the KV pool."""
    return {
        "variant": variant.name,
        "link": link,
        "pool_tok": facts.kv_capacity_tok,
        "cap": facts.slots,
        "max_context_tok": facts.max_context_tok,
        "cells": [
            {
                "cell": msgspec.to_builtins(each.cell),
                "output_tok": each.output_tok,
                "demand_tok": each.demand_tok,
                "over_kv": each.over_kv,
                "capped": each.capped,
            }
            for each in cells
        ],
    }


def listed_cells(reader: StudyReader) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield (the note, the cell's entry) of every cell that the study's sweep holds, once each."""
    seen: set[str] = set()
    for note in reversed(reader.notes(CELLS_NOTE)):
        for entry in note["cells"]:
            if entry["cell"]["cell"] not in seen:
                seen.add(entry["cell"]["cell"])
                yield note, entry

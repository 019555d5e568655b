"""Follows a study on disk while another process writes it: reads only, judges in a child process.

A round is read once. The whole is judged anew by `concbench report` in a process of its own, which
can be ended at any moment, and which takes at most a twentieth of the time while the study runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from concbench.analyse.cell import steady_estimate
from concbench.analyse.rates import batch_tok_per_s, steady_window
from concbench.analyse.streams import streams_of
from concbench.analyse.study import COMPANIONS
from concbench.analyse.windows import Window
from concbench.cli.judge_child import Judge
from concbench.cli.judging import doubts_of_record
from concbench.clock import now_ns, utc_now, utc_stamp
from concbench.domain import Cell, Round, TargetFacts
from concbench.errors import StudyUnreadable
from concbench.report.following import (
    LAST_ROUNDS,
    CellLine,
    FollowState,
    Judged,
    RoundLine,
    StudyState,
    cell_line,
    left_s,
    running_line,
)
from concbench.report.inert import inert
from concbench.store.log import LOG_NAME, LogLine
from concbench.store.now import read_now
from concbench.store.read import RoundInfo, StudyReader, open_study

SWEEP_NOTE = "sweep_cells"
"""The kind of note in which a sweep lists the cells of a lane that has started."""

LAST_EVENTS = 30
READ_NS = 1_000_000_000
"""So long a look reads rounds that are new to it; the others come with the next ones."""


class Follower:
    """One study as it grows. `state` may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = inert(folder.resolve().name, 300)
        self._lock = threading.Lock()
        self._lines: dict[str, RoundLine] = {}
        self._windows: dict[str, Window] = {}
        self._judge = Judge(folder)
        self._seen: tuple[object, ...] = ()
        self._reader = open_study(folder)

    def state(self, studies: list[str]) -> FollowState:
        """Return what there is now. Raises StudyUnreadable."""
        with self._lock:
            reader = self._fresh()
            infos = reader.rounds()
            lines = self._read(reader, infos)
            version, state = self._version(), study_state(reader)
            if infos:
                self._judge.look(version, len(counting(infos)), running=state == "running")
            judge = self._judge
            now = follow_state(
                reader,
                lines,
                self._windows,
                study=self.name,
                state=state,
                version=version,
                judged=judge.judged,
                judging=judge.busy,
                judge_error=judge.error,
                studies=studies,
            )
            if state != "running":
                return now
            running = running_line(read_now(self.folder))
            return msgspec.structs.replace(now, running=running)

    def report(self) -> bytes | None:
        """Return the page of the last judgement, or None before the first."""
        with self._lock:
            try:
                return self._judge.page.read_bytes()
            except OSError:
                return None

    def close(self) -> None:
        """End what runs for it."""
        with self._lock:
            self._judge.close()

    def _fresh(self) -> StudyReader:
        """Return a reader of the study as it is now, the last one where nothing has changed."""
        seen = _signs(self.folder)
        if seen != self._seen:
            self._reader, self._seen = open_study(self.folder), seen
        return self._reader

    def _version(self) -> str:
        return hashlib.sha256(repr(self._seen).encode()).hexdigest()[:16]

    def _read(self, reader: StudyReader, infos: list[RoundInfo]) -> list[RoundLine | None]:
        """Return the rounds' lines, None where one is not read yet: a look must not take long."""
        until = now_ns() + READ_NS
        return [
            self._line(reader, info) if info.round_id in self._lines or now_ns() < until else None
            for info in infos
        ]

    def _line(self, reader: StudyReader, info: RoundInfo) -> RoundLine:
        """Return a round's line; its tables are read once, its standing comes from the log."""
        known = self._lines.get(info.round_id)
        if known is None:
            known, window = round_line(reader, info)
            self._lines[info.round_id] = known
            if window is not None:
                self._windows[known.round] = window
        return msgspec.structs.replace(known, phase=info.phase, retracted=info.retracted)


def counting(infos: list[RoundInfo]) -> list[RoundInfo]:
    """Return the rounds that go into the figures of listed cells."""
    return [
        info
        for info in infos
        if info.phase == "measured"
        and not info.retracted
        and info.cell.context_label not in COMPANIONS
    ]


def _signs(folder: Path) -> tuple[object, ...]:
    """Return what changes when the study does: sizes and times of its log and rounds folder."""
    found: list[object] = []
    for path in (folder / LOG_NAME, folder / "rounds"):
        with contextlib.suppress(OSError):
            stat = path.stat()
            found += [stat.st_ino, stat.st_size, stat.st_mtime_ns]
    return tuple(found)


def study_state(reader: StudyReader) -> StudyState:
    """Return whether a study is being written, is complete, or how it was left."""
    if reader.running:
        return "running"
    if reader.finished:
        return "finished"
    return "interrupted" if reader.interrupted else "stopped"


def round_line(reader: StudyReader, info: RoundInfo) -> tuple[RoundLine, Window | None]:
    """Return a round as it is shown and its window; where its tables are damaged, no rates."""
    try:
        loaded = reader.load_round(info.round_id)
        ok = sum(record.outcome == "ok" for record in loaded.requests)
        steady = window_of(loaded, reader.targets().get(info.cell.lane))
        batch, outcome = batch_tok_per_s(loaded), info.outcome_detail or info.outcome
    except StudyUnreadable as error:
        ok, steady, batch, outcome = 0, None, None, str(error)
    line = RoundLine(
        round=inert(info.round_id),
        cell=inert(info.cell.cell),
        phase=info.phase,
        outcome=inert(outcome, 200),
        ok=ok,
        sent=info.requests,
        took_s=(info.end_ns - info.start_ns) / 1e9,
        batch_tok_per_s=batch,
        steady_tok_per_s=None if steady is None else steady.tok_per_s,
    )
    return line, steady


def window_of(round_: Round, facts: TargetFacts | None) -> Window | None:
    """Return the steady window of a round, or None where it has none."""
    window = steady_window(round_, streams_of(round_), facts)
    return window if isinstance(window, Window) else None


def follow_state(
    reader: StudyReader,
    lines: list[RoundLine | None],
    windows: Mapping[str, Window],
    *,
    study: str,
    state: StudyState,
    version: str,
    judged: Judged | None,
    judging: bool,
    judge_error: str,
    studies: list[str],
) -> FollowState:
    """Put together what the page shows."""
    infos = reader.rounds()
    both = [
        (info.cell, line)
        for info, line in zip(infos, lines, strict=True)
        if line is not None and info.cell.context_label not in COMPANIONS
    ]
    done = len(counting(infos))
    planned = planned_rounds(reader.record.command, reader.plan)
    if planned is None:
        planned = planned_cells(reader.notes(SWEEP_NOTE), reader.plan)
    return FollowState(
        study=study,
        name=inert(reader.record.name),
        command=inert(reader.record.command),
        state=state,
        began_utc=inert(reader.record.created_utc),
        now_utc=utc_stamp(),
        version=version,
        lanes=[_lane(lane, facts) for lane, facts in reader.targets().items()],
        done=done,
        planned=planned,
        left_s=left_s(done, planned, *_pace_s(reader)) if state == "running" else None,
        cells=_cells(both, windows),
        last_rounds=[line for _, line in both[-LAST_ROUNDS:]][::-1],
        events=_events(reader),
        corrections=_corrections(reader),
        retracted=sum(info.retracted and info.phase == "measured" for info in infos),
        unread=lines.count(None),
        judged=judged,
        judging=judging,
        judge_error=judge_error,
        studies=studies,
    )


def _cells(both: list[tuple[Cell, RoundLine]], windows: Mapping[str, Window]) -> list[CellLine]:
    cells = {cell.cell: cell for cell, _ in sorted(both, key=lambda pair: _place(pair[0]))}
    lines: dict[str, list[RoundLine]] = {}
    for cell, line in both:
        lines.setdefault(cell.cell, []).append(line)
    found = []
    for name, cell in cells.items():
        seen = [windows[x.round] for x in lines[name] if x.counts and x.round in windows]
        # The report's own estimate: one number must not have two intervals.
        found.append(cell_line(cell, lines[name], steady_estimate(seen) if seen else None))
    return found


def _place(cell: Cell) -> tuple[str, str, int, int, float]:
    return (cell.lane, cell.link or "", cell.context_tok, cell.concurrency, cell.rate_rps or 0.0)


def _lane(name: str, facts: TargetFacts) -> str:
    known = [name, facts.engine, facts.engine_version, facts.model]
    return " ".join(inert(part, 60) for part in known if part)


def _events(reader: StudyReader) -> list[str]:
    """Return damage to the record, then failures, corrections and the like, newest first."""
    shown = {"failed", "retracted", "amended", "discarded", "interrupted"}
    lines = [line for line in reader.log if line.event in shown]
    damaged = [inert(f"damaged {each.message}", 300) for each in doubts_of_record(reader)]
    return damaged + list(map(_event, reversed(lines[-LAST_EVENTS:])))


def _event(line: LogLine) -> str:
    parts = (line.utc, line.event, line.cell, line.round, line.why)
    return inert(" ".join(filter(None, parts)), 300)


def _corrections(reader: StudyReader) -> list[str]:
    """Return what must be known before a figure is read: damage and corrections, newest first."""
    damaged = [inert(f"damaged {each.message}", 300) for each in doubts_of_record(reader)]
    lines = [line for line in reader.log if line.event in ("retracted", "amended")]
    return damaged + list(map(_event, reversed(lines[-LAST_EVENTS:])))


def _pace_s(reader: StudyReader) -> tuple[float, float]:
    """Return how long the rounds on record took, and how long ago the last one ended, s."""
    ends = [line.utc for line in reader.log if line.event == "finished" and line.round is not None]
    starts = [line.utc for line in reader.log if line.event == "started"]
    try:
        begin = datetime.fromisoformat((starts or [reader.record.created_utc])[-1])
        last = datetime.fromisoformat(ends[-1])
    except (IndexError, ValueError):
        return 0.0, 0.0
    return (last - begin).total_seconds(), max(0.0, (utc_now() - last).total_seconds())


def planned_rounds(command: str, plan: Mapping[str, Any]) -> int | None:
    """Return how many measured rounds a study is to have, None where its plan does not tell.

    A plan may say it itself as `rounds_planned`.
    """
    told = plan.get("rounds_planned")
    if isinstance(told, int):
        return told
    options = plan.get("options")
    rounds = options.get("rounds") if isinstance(options, Mapping) else None
    if not isinstance(rounds, int):
        return None
    levels = plan.get("levels")
    if command in ("burst", "try") and isinstance(levels, list):
        return rounds * len(levels)
    return rounds if command in ("sustain", "rate") else None


def planned_cells(notes: list[dict[str, Any]], plan: Mapping[str, Any]) -> int | None:
    """Return how many rounds a sweep is to have, from the cells that it has listed so far.

    A lane's cells are listed when it has started, since they depend on its KV pool; lanes that have
    not are taken to have as many as the others on average.
    """
    listed = {(note.get("variant"), note.get("link")): len(note.get("cells", ())) for note in notes}
    try:
        told = plan["plan"]
        rounds, sweep = int(told["study"]["rounds"]), told["sweep"]
        lanes = sweep["lanes"] or list(told["lanes"])
        starts = sum(math.prod(map(len, sweep["vary"].get(lane, {}).values())) for lane in lanes)
        wanted = starts * max(1, len(sweep["links"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    if not listed:
        return None
    return rounds * round(sum(listed.values()) / len(listed) * max(wanted, len(listed)))

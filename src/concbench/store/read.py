"""Reading a study: tolerant of what a crash leaves, strict about what does not belong together."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import msgspec
from msgspec import Struct

from concbench import __version__
from concbench.domain import (
    Cell,
    CellOutcome,
    Round,
    RoundInstrument,
    RoundPhase,
    TargetFacts,
    Workload,
)
from concbench.errors import StudyUnreadable, UsageError
from concbench.store import parts
from concbench.store.cache import CACHE_NAME, store_file
from concbench.store.files import is_locked
from concbench.store.log import LogLine, read_log
from concbench.store.record import (
    ROUNDS_NAME,
    DamagedRound,
    RoundRecord,
    StudyRecord,
    read_round_record,
    read_study_record,
)


class RoundInfo(Struct, frozen=True, kw_only=True):
    """A round without its tables; `requests`, `events` and `samples` count their rows.

    `phase` is `discarded` also where the log says so. `recovered`: a crash came between the
    round and its line in the log.
    """

    round_id: str
    cell: Cell
    index: int
    phase: RoundPhase
    workload: Workload
    began_utc: str
    start_ns: int
    end_ns: int
    instrument: RoundInstrument
    outcome: CellOutcome
    outcome_detail: str | None
    interrupted: bool
    requests: int
    events: int
    samples: int
    retracted: bool
    recovered: bool


def open_study(folder: Path) -> StudyReader:
    """Return a reader of the study as it is now.

    Raises StudyUnreadable, in one line: missing, not a study, damaged, newer than this program,
    or holding records of another study.
    """
    return StudyReader(folder, read_study_record(folder))


class StudyReader:
    """A study at the moment when it was opened. Tables are loaded round by round, when asked for.

    `lost` names rounds that are logged but gone, `unlogged` rounds that are there but not logged,
    `recovered` these and those that a later process logged, `unreadable` maps rounds whose record
    is damaged to what is wrong; `damaged_lines` counts lines of the log that are no events.
    """

    def __init__(self, folder: Path, record: StudyRecord) -> None:
        self.folder = folder
        self.record = record
        log = read_log(folder, record.study)
        self.log: tuple[LogLine, ...] = log.lines
        # A line that is being written is torn at this moment, which is no damage.
        writing = log.torn and log.damaged > 0 and is_locked(folder)
        self.damaged_lines = log.damaged - writing
        self._rounds_folder = folder / ROUNDS_NAME
        self.unreadable: dict[str, str] = {}
        self._records = self._read_records()
        logged = list(dict.fromkeys(line.round for line in self.log if _is_recorded(line)))
        on_disk = self._records.keys() | self.unreadable.keys()
        self.lost = [name for name in logged if name is not None and name not in on_disk]
        known_names = set(logged)
        self.unlogged = [name for name in self._records if name not in known_names]
        crashed = {line.round for line in self.log if line.recovered}
        self.recovered = sorted(
            [*self.unlogged, *(name for name in self._records if name in crashed)]
        )
        known = [name for name in logged if name in self._records]
        self._order = [
            *known,
            *sorted(self.unlogged, key=lambda name: self._records[name].began_utc),
        ]
        self._connection: duckdb.DuckDBPyConnection | None = None

    def _read_records(self) -> dict[str, RoundRecord]:
        records = {}
        try:
            names = sorted(os.listdir(self._rounds_folder))  # noqa: PTH208 - names only
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StudyUnreadable(
                f"{self._rounds_folder} cannot be read: {error.strerror}"
            ) from error
        for name in names:
            if name.startswith("."):  # staged by a writer that was killed, or the system's own
                continue
            try:
                records[name] = read_round_record(self._rounds_folder / name, self.record.study)
            except DamagedRound as error:
                self.unreadable[name] = str(error)
        return records

    @property
    def plan(self) -> dict[str, Any]:
        """The plan that the study was started with."""
        return self.record.plan

    @property
    def running(self) -> bool:
        """Whether a process is writing into the study at this moment."""
        return is_locked(self.folder)

    @cached_property
    def _state(self) -> str:
        states = [line.event for line in self.log if line.round is None and line.event in _STATES]
        return states[-1] if states else "started"

    @property
    def finished(self) -> bool:
        """Whether the study is complete; not so while it runs, or after a crash or a signal."""
        return self._state == "finished"

    @property
    def interrupted(self) -> bool:
        """Whether the last process to write was stopped by SIGINT or SIGTERM."""
        return self._state == "interrupted"

    @cached_property
    def _infos(self) -> dict[str, RoundInfo]:
        retracted = {line.round for line in self.log if line.event == "retracted"}
        discarded = {line.round for line in self.log if line.event == "discarded"}
        infos = {}
        for name in self._order:
            record = self._records[name]
            fields = {field: getattr(record, field) for field in record.__struct_fields__}
            del fields["study"]
            if name in discarded:
                fields["phase"] = "discarded"
            infos[name] = RoundInfo(
                **fields, retracted=name in retracted, recovered=name in self.recovered
            )
        return infos

    def rounds(self, phase: RoundPhase | None = None) -> list[RoundInfo]:
        """Return the rounds on record in the order in which they were finished.

        Retracted ones are among them: `RoundInfo.retracted` tells.
        """
        return [info for info in self._infos.values() if phase is None or info.phase == phase]

    def load_round(self, round_id: str) -> Round:
        """Return a round with its tables, as it was written (but see `RoundInfo.phase`).

        Raises UsageError for an unknown id, StudyUnreadable for a damaged file.
        """
        info = self._infos.get(round_id)
        if info is None:
            raise UsageError(f"the study {self.folder} has no round {round_id!r}")
        folder = self._rounds_folder / round_id
        self._connection = self._connection or parts.connect()
        try:
            return _assembled(info, parts.read_tables(self._connection, folder))
        except (duckdb.Error, KeyError, TypeError) as error:
            why = " ".join(str(error).split())
            raise StudyUnreadable(f"round {round_id} of {self.folder} is damaged: {why}") from error

    def load_groups(self, groups: Iterable[Sequence[str]]) -> Iterator[list[Round]]:
        """Yield the rounds of each group of ids, as `load_round` returns them.

        Many small rounds are read at once, which takes a fifth of the time; never more than 128
        rounds or half a million events are held. Raises as `load_round` does.
        """
        batch: list[Sequence[str]] = []
        for group in groups:
            if batch and self._is_full([*batch, group]):
                yield from self._load_batch(batch)
                batch = []
            batch.append(group)
        yield from self._load_batch(batch)

    def _is_full(self, batch: Sequence[Sequence[str]]) -> bool:
        infos = [self._infos[name] for group in batch for name in group if name in self._infos]
        return len(infos) > _BATCH_ROUNDS or sum(info.events for info in infos) > _BATCH_EVENTS

    def _load_batch(self, batch: Sequence[Sequence[str]]) -> Iterator[list[Round]]:
        names = list(dict.fromkeys(name for group in batch for name in group))
        infos = [self._infos[name] for name in names if name in self._infos]
        found: dict[str, Round] = {}
        if len(infos) == len(names) > 1:
            self._connection = self._connection or parts.connect()
            counts = [(i.round_id, i.requests, i.events, i.samples) for i in infos]
            try:
                tables = parts.read_many(self._connection, self._rounds_folder, counts)
                found = {i.round_id: _assembled(i, tables[i.round_id]) for i in infos}
            except (duckdb.Error, KeyError, TypeError, ValueError):
                found = {}  # one of them is damaged: read singly, it is named
        for group in batch:
            yield [found.pop(n) if n in found else self.load_round(n) for n in group]

    def corrections(self) -> list[dict[str, str | None]]:
        """Return the retractions as `round`, `why`, `by`, `at_utc`, oldest first."""
        return [
            {"round": line.round, "why": line.why, "by": line.by, "at_utc": line.utc}
            for line in self.log
            if line.event == "retracted"
        ]

    def amendments(self) -> list[dict[str, str | None]]:
        """Return the amendments, oldest first.

        Each has `supersedes`, `superseded_by`, `why`, `at_utc`, and the other study's `folder`,
        None where it was given by its id alone.
        """
        return [
            {
                "supersedes": line.supersedes,
                "superseded_by": line.superseded_by,
                "why": line.why,
                "at_utc": line.utc,
                "folder": (line.data or {}).get("folder"),
            }
            for line in self.log
            if line.event == "amended"
        ]

    def targets(self) -> dict[str, TargetFacts]:
        """Return the latest facts of every lane."""
        latest = dict(self.record.targets)
        latest.update({line.target.lane: line.target for line in self.log if line.target})
        return latest

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """Return the notes of a kind, oldest first."""
        return [line.data or {} for line in self.log if line.event == "note" and line.kind == kind]

    def failures(self) -> list[LogLine]:
        """Return the events of cells that could not be measured, oldest first."""
        return [line for line in self.log if line.event == "failed"]

    def cached(
        self, round_id: str, compute: Callable[[Round], bytes], *, kind: str = "summary"
    ) -> bytes:
        """Return `compute(round)`, from the cache where this version of the tool has computed it.

        A round never changes, so its id and the tool's version are the key. The folder `cache`
        can be deleted at any time; a damaged entry is computed anew, and one that cannot be
        written is no error.
        """
        phase = self._infos[round_id].phase if round_id in self._infos else "unknown"
        path = self.folder / CACHE_NAME / __version__ / f"{round_id}.{phase}.{kind}"
        try:
            content = path.read_bytes()
        except (OSError, ValueError):
            content = b""
        digest, value = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if content and hashlib.sha256(value).digest() == digest:
            return value
        value = compute(self.load_round(round_id))
        store_file(path, hashlib.sha256(value).digest() + value)
        return value


_DIGEST_BYTES = hashlib.sha256().digest_size
_STATES = {"started", "finished", "interrupted"}


_BATCH_ROUNDS, _BATCH_EVENTS = 128, 500_000


def _assembled(info: RoundInfo, tables: parts.Tables) -> Round:
    return Round(
        round_id=info.round_id,
        cell=info.cell,
        index=info.index,
        phase=info.phase,
        workload=info.workload,
        began_utc=info.began_utc,
        start_ns=info.start_ns,
        end_ns=info.end_ns,
        requests=tables.requests,
        events=tables.events,
        samples=tables.samples,
        instrument=msgspec.structs.replace(
            info.instrument,
            read_lateness_ns=tables.lags["read"],
            loop_lag_ns=tables.lags["loop"],
        ),
        outcome=info.outcome,
        outcome_detail=info.outcome_detail,
        interrupted=info.interrupted,
    )


def _is_recorded(line: LogLine) -> bool:
    return line.event == "finished" and line.round is not None

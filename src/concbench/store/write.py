"""Writing a study: a round is on disk as a whole, or it is not there at all.

A round is staged under a name that readers ignore, made durable, renamed as one folder, and only
then logged. Killing the process at any instant loses at most the round in flight.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from concbench.clock import utc_stamp
from concbench.domain import Round, TargetFacts
from concbench.errors import OutputUnusable
from concbench.store.files import (
    LOCK_NAME,
    FolderLock,
    output_errors,
    rename_folder,
    replace_file,
    sync_path,
    write_synced,
)
from concbench.store.log import LogAppender, read_log
from concbench.store.now import NOW_NAME
from concbench.store.parts import connect, part_path, write_parts
from concbench.store.record import (
    ROUND_NAME,
    ROUNDS_NAME,
    STAGED_PREFIX,
    STUDY_NAME,
    DamagedRound,
    StudyRecord,
    describe_round,
    encode_record,
    read_round_record,
    read_study_record,
)
from concbench.store.schema import PARTS

_ROUND_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
# What a creation that was killed half-way may have left.
_LEFTOVERS = {LOCK_NAME, NOW_NAME, f".{STUDY_NAME}.tmp"}


class Study:
    """How a study comes to be written: new, or taken up where it stopped."""

    @staticmethod
    def create(
        folder: Path,
        *,
        name: str,
        command: str,
        argv: Sequence[str],
        machine: Mapping[str, Any],
        tool_version: str,
        seed: int,
        plan: Mapping[str, Any],
        targets: Mapping[str, TargetFacts],
    ) -> StudyWriter:
        """Start a study in a folder that does not exist or is empty; its parents are made.

        Raises OutputUnusable, with nothing touched, where something is there already.
        """
        _refuse_occupied(folder)
        with output_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        try:
            _refuse_occupied(folder)  # another process may have been quicker
            record = StudyRecord(
                study=uuid.uuid4().hex,
                name=name,
                created_utc=utc_stamp(),
                tool_version=tool_version,
                command=command,
                argv=list(argv),
                seed=seed,
                machine=dict(machine),
                plan=dict(plan),
                targets=dict(targets),
            )
            with output_errors(folder):
                (folder / ROUNDS_NAME).mkdir(exist_ok=True)
                replace_file(folder / STUDY_NAME, encode_record(record))
                sync_path(folder.absolute().parent)
            return StudyWriter(folder, record, lock, resumed=False)
        except BaseException:
            lock.release()
            raise

    @staticmethod
    def resume(folder: Path, *, even_finished: bool = False) -> StudyWriter:
        """Go on with a study that stopped. Rounds that a crash left unlogged are logged.

        Raises StudyUnreadable where there is no study, OutputUnusable where it is complete and
        not `even_finished`, or is being written by another process.
        """
        read_study_record(folder)
        lock = FolderLock(folder)
        try:
            record = read_study_record(folder)
            lines = read_log(folder, record.study).lines
            ends = [line.event for line in lines if line.round is None and line.event in _STATES]
            if ends and ends[-1] == "finished" and not even_finished:
                raise OutputUnusable(f"{folder} is a finished study: choose another --out")
            return StudyWriter(folder, record, lock, resumed=True)
        except BaseException:
            lock.release()
            raise


_STATES = {"started", "finished", "interrupted"}


def _refuse_occupied(folder: Path) -> None:
    try:
        str(folder).encode()
        names = {path.name for path in folder.iterdir()}
        if ROUNDS_NAME in names and not any((folder / ROUNDS_NAME).iterdir()):
            names.remove(ROUNDS_NAME)
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise OutputUnusable(f"{folder} is not a folder: choose another --out") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name is not UTF-8"
        raise OutputUnusable(f"the folder {folder!r} cannot be used: {why}") from error
    if STUDY_NAME in names:
        raise OutputUnusable(
            f"{folder} already holds a study, and nothing is ever overwritten: "
            "choose another --out (only `sweep` goes on with a study)"
        )
    if foreign := sorted(names - _LEFTOVERS):
        raise OutputUnusable(
            f"{folder} is not empty (it holds {foreign[0]!r}): choose another --out"
        )


class StudyWriter:
    """The one writer of a study; holds its lock until `close` or `finish`.

    Every method raises OutputUnusable, in one line, when the disk does not take what it writes;
    what was recorded before is intact then.
    """

    def __init__(
        self, folder: Path, record: StudyRecord, lock: FolderLock, *, resumed: bool
    ) -> None:
        self.folder = folder
        self.record = record
        self.lock = lock
        self._rounds = folder / ROUNDS_NAME
        with output_errors(folder):
            self._rounds.mkdir(exist_ok=True)
            self._log = LogAppender(folder, record.study)
            self._log.append("started", resumed=resumed)
            self._recover()
        self._connection = connect()

    def _recover(self) -> None:
        """Log the rounds that were renamed but not logged, and drop what was only staged."""
        lines = read_log(self.folder, self.record.study).lines
        logged = {line.round for line in lines if line.event == "finished"}
        for folder in sorted(self._rounds.iterdir()):
            if folder.name.startswith(STAGED_PREFIX):
                shutil.rmtree(folder, ignore_errors=True)
            elif folder.name not in logged and not folder.name.startswith("."):
                try:
                    found = read_round_record(folder, self.record.study)
                except DamagedRound:
                    continue
                self._log.append(
                    "finished", round=found.round_id, cell=found.cell.cell, recovered=True
                )

    def __enter__(self) -> StudyWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write_round(self, round_: Round) -> None:
        """Record a round: durable and logged when this returns.

        Raises ValueError for an id that is no plain file name, OutputUnusable when a round of
        that id is on record.
        """
        round_id = round_.round_id
        if not _ROUND_ID.fullmatch(round_id):
            raise ValueError(f"the round id {round_id!r} is no plain file name")
        final = self._rounds / round_id
        if final.exists():
            raise OutputUnusable(f"round {round_id} is on record in {self.folder} already")
        staged = self._rounds / f"{STAGED_PREFIX}{round_id}"
        with output_errors(self.folder), self._removed_on_error(staged):
            self._stage(staged, round_)
            rename_folder(staged, final)
        with output_errors(self.folder):
            self._log.append("finished", round=round_id, cell=round_.cell.cell)

    def _stage(self, staged: Path, round_: Round) -> None:
        if staged.exists():
            shutil.rmtree(staged)
        staged.mkdir()
        record = describe_round(self.record.study, round_)
        write_synced(staged / ROUND_NAME, encode_record(record))
        write_parts(self._connection, staged, round_)
        for part in PARTS:
            sync_path(part_path(staged, part))

    @contextmanager
    def _removed_on_error(self, staged: Path) -> Iterator[None]:
        try:
            yield
        except (OSError, duckdb.IOException) as error:
            # On a full disk this also gives back the room that later lines of the log need.
            shutil.rmtree(staged, ignore_errors=True)
            if isinstance(error, OSError):
                raise
            raise OutputUnusable(
                f"cannot write to {self.folder}: {_reason(error)}; "
                "what was recorded before is intact"
            ) from error

    def targets(self, targets: Mapping[str, TargetFacts]) -> None:
        """Record what is now known of the lanes; later facts stand before earlier ones."""
        with output_errors(self.folder):
            for facts in targets.values():
                self._log.append("target", target=facts)

    def failed(self, cell: str, why: str, data: Mapping[str, Any] | None = None) -> None:
        """Record that a cell could not be measured, and why."""
        with output_errors(self.folder):
            self._log.append("failed", cell=cell, why=why, data=dict(data) if data else None)

    def discard(self, round_id: str, why: str) -> None:
        """Record that a round, measured in good faith, is not to be used (it was warm-up)."""
        with output_errors(self.folder):
            self._log.append("discarded", round=round_id, why=why)

    def note(self, kind: str, data: Mapping[str, Any]) -> None:
        """Record something about the study as a whole: a calibration, a link, an engine's log."""
        with output_errors(self.folder):
            self._log.append("note", kind=kind, data=dict(data))

    def finish(self, *, interrupted: bool = False) -> None:
        """Record that the study is complete, or was cut short by a signal, and close it.

        Nothing happens where that is done already: a second signal may come right after.
        """
        if self._log.closed:
            return
        with output_errors(self.folder):
            self._log.append("interrupted" if interrupted else "finished")
        self.close()

    def close(self) -> None:
        """Let go of the folder. Without `finish` the study counts as not finished."""
        self._log.close()
        self._connection.close()
        self.lock.release()


def _reason(error: duckdb.IOException) -> str:
    """Return the system's words for what DuckDB met, its own in one line where it gives no number.

    It appends what it knows as JSON, the number among it.
    """
    said = " ".join(str(error).split())
    number = re.search(r'"errno":\s*"?(\d+)', said)
    return said if number is None else os.strerror(int(number[1]))

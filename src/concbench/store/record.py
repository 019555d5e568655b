"""The two JSON records of a study: `study.json` for the whole, `round.json` for each round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from concbench.domain import (
    Cell,
    CellOutcome,
    Round,
    RoundInstrument,
    RoundPhase,
    TargetFacts,
    Workload,
)
from concbench.errors import StudyUnreadable
from concbench.store.schema import STUDY_SCHEMA, migrate
from concbench.store.text import escape_tree, unescape_tree

STUDY_NAME, ROUND_NAME, ROUNDS_NAME = "study.json", "round.json", "rounds"
STAGED_PREFIX = ".tmp-"


class DamagedRound(StudyUnreadable):
    """One round's record cannot be used; the rest of the study can."""


class StudyRecord(Struct, frozen=True, kw_only=True):
    """What is known of a study before its first round. `targets` is keyed by lane.

    `study` is its id; every round and every event of the log repeats it.
    """

    schema: str = STUDY_SCHEMA
    study: str
    name: str
    created_utc: str
    tool_version: str
    command: str
    argv: list[str]
    seed: int
    machine: dict[str, Any] = {}
    plan: dict[str, Any] = {}
    targets: dict[str, TargetFacts] = {}


class RoundRecord(Struct, frozen=True, kw_only=True):
    """All of a round that is not a table; `requests`, `events` and `samples` count rows.

    The lists of `instrument` are empty here: they are the part `lags`.
    """

    study: str
    round_id: str
    cell: Cell
    index: int
    phase: RoundPhase
    workload: Workload
    began_utc: str
    start_ns: int
    end_ns: int
    instrument: RoundInstrument
    outcome: CellOutcome = "measured"
    outcome_detail: str | None = None
    interrupted: bool = False
    requests: int
    events: int
    samples: int


def describe_round(study: str, round_: Round) -> RoundRecord:
    """Return the record of a round of the study with that id."""
    return RoundRecord(
        study=study,
        round_id=round_.round_id,
        cell=round_.cell,
        index=round_.index,
        phase=round_.phase,
        workload=round_.workload,
        began_utc=round_.began_utc,
        start_ns=round_.start_ns,
        end_ns=round_.end_ns,
        instrument=msgspec.structs.replace(round_.instrument, read_lateness_ns=[], loop_lag_ns=[]),
        outcome=round_.outcome,
        outcome_detail=round_.outcome_detail,
        interrupted=round_.interrupted,
        requests=len(round_.requests),
        events=len(round_.events),
        samples=len(round_.samples),
    )


def encode_record(record: StudyRecord | RoundRecord) -> bytes:
    """Return strict, indented JSON; NaN and the infinities become null."""
    tree = escape_tree(msgspec.to_builtins(record, enc_hook=str))
    return msgspec.json.format(msgspec.json.encode(tree), indent=1) + b"\n"


def read_study_record(folder: Path) -> StudyRecord:
    """Return the record of the study in `folder`, migrated to the newest format.

    Raises StudyUnreadable: no such folder, not a study, damaged, or newer than this program.
    """
    path = folder / STUDY_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        if not folder.exists():
            raise StudyUnreadable(f"there is no study {folder}: no such folder") from error
        raise StudyUnreadable(f"{folder} is not a study: it has no {STUDY_NAME}") from error
    except NotADirectoryError as error:
        raise StudyUnreadable(f"{folder} is not a study: a study is a folder") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise StudyUnreadable(f"{path} cannot be read: {why}") from error
    try:
        tree = unescape_tree(msgspec.json.decode(content))
        if not isinstance(tree, dict):
            raise StudyUnreadable(f"{path} is damaged: it holds no JSON object")
        return msgspec.convert(migrate(tree, str(path)), StudyRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StudyUnreadable(f"{path} is damaged: {error}") from error


def read_round_record(folder: Path, study: str) -> RoundRecord:
    """Return the record in a round's folder.

    Raises DamagedRound when it is missing or damaged, StudyUnreadable when it belongs to another
    study or round.
    """
    path = folder / ROUND_NAME
    try:
        tree = unescape_tree(msgspec.json.decode(path.read_bytes()))
        record = msgspec.convert(tree, RoundRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedRound(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise DamagedRound(f"{path} cannot be read: {error.strerror}") from error
    if record.study != study:
        raise StudyUnreadable(
            f"{path} is a record of study {record.study} in the folder of study {study}: "
            "put the files back where they belong"
        )
    if record.round_id != folder.name:
        raise StudyUnreadable(f"{path} is the record of round {record.round_id}: a copy?")
    return record

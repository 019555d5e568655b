"""Corrections: a wrong round is retracted, an old study superseded; both stay on the record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from concbench.errors import UsageError
from concbench.store.files import FolderLock, output_errors
from concbench.store.log import LogAppender
from concbench.store.read import StudyReader, open_study

_STUDY_ID = re.compile(r"[0-9a-f]{32}")


@contextmanager
def _locked(folder: Path) -> Iterator[StudyReader]:
    open_study(folder)  # before the lock, which would leave a file in a folder that is no study
    lock = FolderLock(folder)
    try:
        yield open_study(folder)
    finally:
        lock.release()


def retract(folder: Path, round_id: str, why: str, by: str | None = None) -> None:
    """Withdraw a round of the study in `folder`, for a reason, with a successor if there is one.

    Nothing is deleted. Raises UsageError when a round is unknown, retracted already or its own
    successor, StudyUnreadable or OutputUnusable when the study cannot be read or appended to.
    """
    _require_reason(why)
    with _locked(folder) as reader:
        rounds = {info.round_id: info for info in reader.rounds()}
        for name in (round_id, by):
            if name is not None and name not in rounds:
                raise UsageError(
                    f"the study {folder} has no round {name!r}; "
                    f'`concbench query {folder} "select round_id from rounds"` lists them'
                )
        if rounds[round_id].retracted:
            raise UsageError(f"round {round_id} is retracted already")
        if by == round_id:
            raise UsageError(f"round {round_id} cannot be its own successor")
        if by is not None and rounds[by].retracted:
            raise UsageError(f"round {by} is itself retracted and cannot be a successor")
        with output_errors(folder):
            log = LogAppender(folder, reader.record.study)
            try:
                log.append("retracted", round=round_id, why=why, by=by)
            finally:
                log.close()


def amend(folder: Path, supersedes_study: Path | str, why: str) -> None:
    """Record that the study in `folder` supersedes another, given by its folder or its id.

    Both studies say so afterwards; with an id alone only the new one does. Raises UsageError when
    a study would supersede itself or does so already, StudyUnreadable or OutputUnusable when one
    cannot be read or appended to.
    """
    _require_reason(why)
    old_folder = Path(supersedes_study)
    if not old_folder.exists() and _STUDY_ID.fullmatch(str(supersedes_study)):
        with _locked(folder) as new:
            _append_amendment(new, str(supersedes_study), None, why)
        return
    _require_two(open_study(folder), open_study(old_folder))
    with _locked(folder) as new, _locked(old_folder) as old:
        # The old study first: it is the one that must not be quoted any more.
        if not any(a["superseded_by"] == new.record.study for a in old.amendments()):
            _append(old, superseded_by=new.record.study, why=why, data=_called(new))
        _append_amendment(new, old.record.study, _called(old), why)


def _require_two(new: StudyReader, old: StudyReader) -> None:
    if new.record.study == old.record.study:
        raise UsageError(f"the study {new.folder} cannot supersede itself")
    if any(a["supersedes"] == old.record.study for a in new.amendments()):
        raise UsageError(f"{new.folder} supersedes {old.folder} already")
    if any(a["supersedes"] == new.record.study for a in old.amendments()):
        raise UsageError(f"{old.folder} supersedes {new.folder}: it cannot be both ways")


def _called(study: StudyReader) -> dict[str, Any]:
    """Return what people call a study: its id tells nobody where to look."""
    return {"folder": study.folder.resolve().name}


def _append_amendment(
    new: StudyReader, old_study: str, called: dict[str, Any] | None, why: str
) -> None:
    if new.record.study == old_study:
        raise UsageError(f"the study {new.folder} cannot supersede itself")
    if any(a["supersedes"] == old_study for a in new.amendments()):
        raise UsageError(f"{new.folder} supersedes study {old_study} already")
    _append(new, supersedes=old_study, why=why, data=called)


def _append(reader: StudyReader, **fields: Any) -> None:  # noqa: ANN401 - those of LogLine
    with output_errors(reader.folder):
        log = LogAppender(reader.folder, reader.record.study)
        try:
            log.append("amended", **fields)
        finally:
            log.close()


def _require_reason(why: str) -> None:
    if not why.strip():
        raise UsageError("a correction needs a reason: give it with --why")

"""A note put into a study that no command is writing: what was measured beside its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from concbench.store.files import FolderLock, output_errors
from concbench.store.log import LogAppender
from concbench.store.read import open_study


def add_note(folder: Path, kind: str, data: Mapping[str, Any]) -> None:
    """Append a note; whether the study counts as finished stays as it was.

    Raises StudyUnreadable where there is no study, OutputUnusable while another process writes.
    """
    open_study(folder)  # before the lock, which would leave a file in a folder that is no study
    lock = FolderLock(folder)
    try:
        with output_errors(folder):
            log = LogAppender(folder, open_study(folder).record.study)
            try:
                log.append("note", kind=kind, data=dict(data))
            finally:
                log.close()
    finally:
        lock.release()

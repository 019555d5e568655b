"""`log.jsonl`: what happened to a study, one line an event, only ever appended to.

A line that a crash cut short is not an event and is skipped; so is an event of a kind that this
version does not know. The order of the lines is the order of the events.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from concbench.clock import utc_stamp
from concbench.domain import TargetFacts
from concbench.errors import StudyUnreadable
from concbench.store.files import sync_path, write_all
from concbench.store.text import escape_tree, unescape_tree

LOG_NAME = "log.jsonl"

LogEvent = Literal[
    "started",
    "finished",
    "failed",
    "interrupted",
    "target",
    "discarded",
    "retracted",
    "amended",
    "note",
]


class LogLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event. `round` is None where it concerns the study as a whole.

    `finished` with a round: it is on record; without: the study is complete. `started` without a
    round: a process began to write (`resumed` when not the first). `discarded`: a round that was
    recorded as measured is not to be used (a later warm-up replaced it). `retracted`: it was
    wrong, `by` names its successor. `amended`: another study supersedes this one
    (`superseded_by`) or is superseded by it (`supersedes`).
    """

    seq: int
    utc: str
    study: str
    event: str
    round: str | None = None
    cell: str | None = None
    why: str | None = None
    by: str | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    resumed: bool = False
    recovered: bool = False
    target: TargetFacts | None = None
    kind: str | None = None
    data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LogContent:
    """The events of a log; `damaged` counts lines that are no events; `torn`: no final newline."""

    lines: tuple[LogLine, ...]
    damaged: int
    torn: bool


def read_log(folder: Path, study: str) -> LogContent:
    """Return the events of the study in `folder`; none where there is no log yet.

    Raises StudyUnreadable when the log cannot be read or holds an event of another study.
    """
    try:
        content = (folder / LOG_NAME).read_bytes()
    except FileNotFoundError:
        return LogContent((), 0, torn=False)
    except OSError as error:
        raise StudyUnreadable(f"{folder / LOG_NAME} cannot be read: {error.strerror}") from error
    lines, damaged = [], 0
    for number, raw in enumerate(content.split(b"\n"), 1):
        if not raw.strip():
            continue
        line = _parse(raw)
        if line is None:
            damaged += 1
            continue
        if line.study != study:
            raise StudyUnreadable(
                f"{folder / LOG_NAME}, line {number}: an event of study {line.study} in the folder "
                f"of study {study}: put the files back where they belong"
            )
        lines.append(line)
    return LogContent(tuple(lines), damaged, torn=not content.endswith(b"\n") and bool(content))


def _parse(raw: bytes) -> LogLine | None:
    try:
        return msgspec.convert(unescape_tree(msgspec.json.decode(raw)), LogLine)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class LogAppender:
    """Appends events, each durable when `append` returns. Its folder must be locked by the caller.

    Raises OSError from any method when the file cannot be written.
    """

    def __init__(self, folder: Path, study: str) -> None:
        content = read_log(folder, study)
        path = folder / LOG_NAME
        self._study = study
        self._torn = content.torn
        self._seq = max((line.seq for line in content.lines), default=0)
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        if not content.lines:
            sync_path(folder)

    def append(self, event: LogEvent, **fields: Any) -> LogLine:  # noqa: ANN401 - those of LogLine
        """Write one event with the next sequence number and return it."""
        self._seq += 1
        line = LogLine(seq=self._seq, utc=utc_stamp(), study=self._study, event=event, **fields)
        raw = msgspec.json.encode(escape_tree(msgspec.to_builtins(line, enc_hook=str))) + b"\n"
        # A torn line must not swallow this one; it stays, since nothing is ever taken back.
        data = b"\n" + raw if self._torn else raw
        self._torn = True
        write_all(self._descriptor, data)
        os.fsync(self._descriptor)
        self._torn = False
        return line

    @property
    def closed(self) -> bool:
        """Whether nothing can be appended any more."""
        return self._descriptor < 0

    def close(self) -> None:
        """Close the file. Calling it again does nothing."""
        # Taken out first: a signal in between must not have it closed twice.
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

"""An engine's log as a file: opened for appending, read from where its run began."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, cast

from concbench.errors import OutputUnusable

LOG_READ_BYTES = 8 << 20
TAIL_LINES = 30
"""How many of the last lines are shown when a start fails."""


def append(log_path: Path) -> BinaryIO:
    """Open for appending, folders made. Raises OutputUnusable."""
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        return cast("BinaryIO", log_path.open("ab"))
    except OSError as error:
        raise OutputUnusable(f"{log_path} cannot be written: {error.strerror}") from None


def lines_from(log_path: Path, offset: int = 0) -> list[str]:
    """Return the lines from a place on: the first and the last few MiB; none without a file."""
    try:
        with log_path.open("rb") as log:
            log.seek(offset)
            text = log.read(LOG_READ_BYTES)
            end = log.seek(0, os.SEEK_END)
            if end > offset + 2 * LOG_READ_BYTES:
                log.seek(end - LOG_READ_BYTES)
            else:
                log.seek(offset + len(text))
            text += log.read()
    except OSError:
        return []
    return text.decode("utf-8", "replace").splitlines()


def tail(lines: list[str]) -> list[str]:
    """Return the last lines that say something, each cut to a readable length."""
    spoken = [line.rstrip()[:500] for line in lines if line.strip()]
    return spoken[-TAIL_LINES:]

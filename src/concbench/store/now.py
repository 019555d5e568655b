"""What is running in a study at this moment: one small file, for who watches. Not a record.

It is written over in place, never synced, and removed when the study is let go of; nothing is ever
judged by it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from concbench.clock import utc_now

NOW_NAME: Final = ".now"
SIZE_BYTES: Final = 2048
"""The file always has this size, so that a reader never sees half of it: it is one page."""

STALE_S: Final = 5.0
"""What was written longer ago is of a round that has ended, or of a process that is gone."""


class NowFile:
    """Says what is running. A disk that does not take it costs the display and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NOW_NAME
        self._descriptor: int | None = None
        self._broken = False

    def write(self, values: Mapping[str, Any]) -> None:
        """Say it: one `pwrite`. What is too long is left out."""
        text = msgspec.json.encode(values)
        if self._broken or len(text) >= SIZE_BYTES:
            return
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o644)
            os.pwrite(self._descriptor, text.ljust(SIZE_BYTES - 1) + b"\n", 0)
        except OSError:
            self._broken = True

    def close(self) -> None:
        """Remove the file. Safe to call again."""
        # Taken out first: a signal in between must not have it closed twice.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)
                self._path.unlink()


def read_now(folder: Path) -> dict[str, Any] | None:
    """Return what is running, or None where nothing said so within the last 5 s."""
    path = folder / NOW_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        age_s = utc_now().timestamp() - os.fstat(descriptor).st_mtime
        if abs(age_s) > STALE_S:
            return None
        found = msgspec.json.decode(os.read(descriptor, SIZE_BYTES))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    finally:
        os.close(descriptor)
    return found if isinstance(found, dict) else None

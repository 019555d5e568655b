"""Writing that survives a crash, and the lock that keeps a second writer out.

Every step that makes something durable goes through here, in the order write, sync, rename,
sync the parent: without the last one a power cut can forget the rename.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from concbench.clock import sleep_s, utc_stamp
from concbench.errors import OutputUnusable

LOCK_NAME = ".lock"

# With the pid it names a process for good: pids are used again.
_BEGAN_UTC = utc_stamp()

# `is_locked` holds the lock for an instant; a writer that meets it must not be turned away.
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 3, 0.01


def sync_path(path: Path) -> None:
    """Make a file's content, or a folder's entries, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write `data` in one call, so that a line is whole. Raises OSError when it was not."""
    if os.write(descriptor, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and make its content durable; its name only with its folder."""
    path.write_bytes(data)
    sync_path(path)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part of it."""
    staged = path.with_name(f".{path.name}.tmp")
    write_synced(staged, data)
    os.replace(staged, path)  # noqa: PTH105 - the module's steps are all calls of os
    sync_path(path.parent)


def rename_folder(staged: Path, path: Path) -> None:
    """Give a staged folder its final name in one durable step."""
    sync_path(staged)
    os.replace(staged, path)  # noqa: PTH105 - the module's steps are all calls of os
    sync_path(path.parent)


@contextmanager
def output_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError inside into one line, an OutputUnusable that names the folder."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise OutputUnusable(
            f"cannot write to {folder}: {why}; what was recorded before is intact"
        ) from error


class FolderLock:
    """Exclusive right to write into a folder, held until `release` or the end of the process.

    It is the kernel's lock on an open file, so a crash leaves none behind; the file itself stays
    and holds the last holder's pid and when that process began. Raises OutputUnusable when another
    holds it.
    """

    def __init__(self, folder: Path) -> None:
        with output_errors(folder):
            self._descriptor = os.open(
                folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
            try:
                self._take(folder)
            except BaseException:
                os.close(self._descriptor)
                raise

    def _take(self, folder: Path) -> None:
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if attempt + 1 < _LOCK_ATTEMPTS:
                    sleep_s(_LOCK_PAUSE_S)
                    continue
                said = os.pread(self._descriptor, 80, 0).decode("ascii", "replace")
                pid, _, since = said.strip().partition(" ")
                raise OutputUnusable(
                    f"the study {folder} is being written by process {pid or 'unknown'}"
                    f"{f' since {since}' if since else ''}: "
                    "wait for it to end, or write elsewhere with --out"
                ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()} {_BEGAN_UTC}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let others write. Calling it again does nothing."""
        # Taken out first: a signal in between must not have it closed twice.
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Return whether some process is writing into the folder now."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False

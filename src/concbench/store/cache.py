"""What can be computed again, kept beside a study: `cache/`, which may be deleted at any time.

An entry belongs to the identity of what it was made from: name, size, inode and change times of
every file of the study, and the same of the program's own sources. A file that was touched, a
round that came or went, another version: the entry is stale and is made anew. Entries appear whole
or not at all; one that is damaged or cannot be written is no error.

This module imports nothing heavy: with an entry at hand a report needs neither DuckDB nor numpy.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

import concbench
from concbench import __version__

CACHE_NAME = "cache"
MANIFEST_NAME = "manifest.json"
_STUDY_FILES = ("study.json", "log.jsonl")
_DIGEST_BYTES = hashlib.sha256().digest_size


def identity(folder: Path) -> str | None:
    """Return the identity of a study and of this program; None where there is no study to read.

    About 5 µs a file.
    """
    digest = hashlib.sha256(f"{__version__} {_program()}\n".encode())
    try:
        for name in _STUDY_FILES:
            digest.update(_mark(name, (folder / name).stat()))
        for path, stat in _files(folder / "rounds"):
            digest.update(_mark(path, stat))
    except (OSError, ValueError):
        return None
    return digest.hexdigest()


def _files(rounds: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files of all rounds in order of their names; what is only staged is left out."""
    with os.scandir(rounds) as found:
        names = sorted(entry.name for entry in found if not entry.name.startswith("."))
    for name in names:
        with os.scandir(rounds / name) as found:
            for entry in sorted(found, key=lambda one: one.name):
                yield f"{name}/{entry.name}", entry.stat()


def _mark(name: str, stat: os.stat_result) -> bytes:
    marks = (stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns)
    return f"{os.fsencode(name).hex()} {marks}\n".encode()


def _program() -> str:
    """Return a hash over the program's own files: a changed formula makes every entry stale."""
    digest = hashlib.sha256()
    root = Path(concbench.__file__).parent
    for folder, subfolders, files in os.walk(root):
        subfolders.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                stat = (Path(folder) / name).stat()
                digest.update(f"{folder} {name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def load(folder: Path, name: str, key: str) -> bytes | None:
    """Return the entry of that name, None where there is none of that identity or it is damaged."""
    try:
        content = (folder / CACHE_NAME / name).read_bytes()
    except (OSError, ValueError):
        return None
    head, body = content[: len(key)], content[len(key) :]
    digest, value = body[:_DIGEST_BYTES], body[_DIGEST_BYTES:]
    if head != key.encode() or hashlib.sha256(value).digest() != digest:
        return None
    return value


def keep(folder: Path, name: str, key: str, value: bytes) -> None:
    """Keep an entry in place of an older one of that name; where that fails, nothing is kept."""
    store_file(folder / CACHE_NAME / name, key.encode() + hashlib.sha256(value).digest() + value)


def store_file(path: Path, content: bytes) -> None:
    """Write a file of a cache whole or not at all."""
    staged = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(content)
        staged.replace(path)
    except OSError:
        with suppress(OSError):
            staged.unlink()


def kept_folder(folder: Path, name: str, key: str) -> Path | None:
    """Return the folder entry of that name and identity, None where it is missing or was touched.

    Its manifest holds size, inode and time of each of its files.
    """
    path = _folder(folder, name, key)
    try:
        manifest = msgspec.json.decode((path / MANIFEST_NAME).read_bytes(), type=dict[str, Any])
        if manifest != _manifest(path):
            return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return path


def keep_folder(folder: Path, name: str, key: str, fill: Callable[[Path], None]) -> Path | None:
    """Return a folder entry that `fill` has filled; None where it could not be kept.

    It is made under another name and renamed, older ones of the name are removed.
    """
    path = _folder(folder, name, key)
    staged = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        staged.mkdir(parents=True)
        fill(staged)
        manifest = msgspec.json.encode(_manifest(staged))
        (staged / MANIFEST_NAME).write_bytes(manifest)
        for old in path.parent.glob(f"{name}-*"):
            shutil.rmtree(old, ignore_errors=True)
        staged.replace(path)
    except OSError:
        shutil.rmtree(staged, ignore_errors=True)
        # Another process may have been quicker.
        return kept_folder(folder, name, key)
    return path


def _folder(folder: Path, name: str, key: str) -> Path:
    return folder / CACHE_NAME / f"{name}-{key[:24]}"


def _manifest(path: Path) -> dict[str, list[int]]:
    """Return size, inode and time of each file. The rename of the folder changes none of them."""
    with os.scandir(path) as entries:
        stats = {entry.name: entry.stat() for entry in entries if entry.name != MANIFEST_NAME}
    return {name: [s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns] for name, s in stats.items()}

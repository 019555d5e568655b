"""Studies remembered by name: `studies/baselines/<name>` points at one and says which it was."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from concbench.errors import OutputUnusable, StudyUnreadable, UsageError
from concbench.store.read import open_study

FOLDER = Path("studies") / "baselines"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def save(name: str, study: Path) -> Path:
    """Point the name at a study, by a relative path: the pointer may be kept in version control.

    Raises UsageError for a name that is no plain file name, OutputUnusable.
    """
    path = _path(name)
    record = open_study(study).record
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        where = os.path.relpath(study.resolve(), path.parent.resolve())
        staged = path.with_name(f".{path.name}.tmp")
        staged.write_text(json.dumps({"study": record.study, "folder": where}, indent=1) + "\n")
        staged.replace(path)
    except OSError as error:
        raise OutputUnusable(f"cannot write {path}: {error.strerror}") from None
    return path


def load(name: str) -> Path:
    """Return the folder of the study that the name points at.

    Raises UsageError for an unknown name, StudyUnreadable where the pointer is damaged or another
    study lies there now.
    """
    path = _path(name)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        folder, study = path.parent / str(found["folder"]), str(found["study"])
    except FileNotFoundError:
        known = sorted(one.name for one in FOLDER.glob("[!.]*")) if FOLDER.is_dir() else []
        there = f"there are {', '.join(known)}" if known else "none was saved yet"
        raise UsageError(
            f"no baseline {name!r} in {FOLDER}: {there}; `--save-baseline {name} STUDY` makes one"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise StudyUnreadable(f"{path} is damaged: save the baseline again") from None
    if open_study(folder).record.study != study:
        raise StudyUnreadable(f"{path} points at {folder}, where another study lies now")
    return folder


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(f"a baseline's name is letters, digits, . _ and -, not {name!r}")
    return FOLDER / name

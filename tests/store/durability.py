"""The matrix of durability: each fault at each step of each act, and what was kept.

`python -m tests.store.durability` writes the page about it. A step is one operation that a crash
can come before: a write, a sync, a rename, a new folder. A power cut leaves what was synced and no
more: files have the bytes of their last sync (none: no bytes), folders the names of theirs.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from concbench.errors import ConcbenchError, OutputUnusable, StudyUnreadable
from concbench.store import parts
from concbench.store.correct import retract
from concbench.store.read import open_study
from concbench.store.write import Study
from tests.store.build import create, make_round

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "concepts" / "durability.md"


class Stopped(BaseException):
    """Stands for the end of the process: nothing may catch it."""


@dataclass
class Disk:
    """What would be left after a power cut. Files and folders are known by their inode."""

    contents: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, dict[str, tuple[int, bool]]] = field(default_factory=dict)

    def synced(self, descriptor: int) -> None:
        """Take note of a sync: the file's bytes, or the folder's names."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        inode = os.fstat(descriptor).st_ino
        if path.is_dir():
            self.names[inode] = {
                entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(path)
            }
        else:
            self.contents[inode] = path.read_bytes()

    def restore(self, folder: Path, inode: int) -> None:
        """Make in `folder` what is left of the folder of that inode."""
        folder.mkdir(exist_ok=True)
        for name, (child, is_dir) in self.names.get(inode, {}).items():
            if is_dir:
                self.restore(folder / name, child)
            else:
                (folder / name).write_bytes(self.contents.get(child, b""))


@dataclass
class Steps:
    """Counts and names the steps; raises `error` at number `at` and, if `lasting`, after it."""

    at: int
    error: BaseException
    lasting: bool = True
    disk: Disk = field(default_factory=Disk)
    names: list[str] = field(default_factory=list)

    def take(self, name: str) -> None:
        """Come to the next step. Raises the error where it is its turn."""
        self.names.append(name)
        number = len(self.names) - 1
        if number == self.at or (self.lasting and number > self.at):
            raise self.error


@contextmanager
def stepping(steps: Steps) -> Iterator[None]:
    """Let every operation that reaches the disk be a step for the block."""
    with pytest.MonkeyPatch.context() as patch:
        real_sync, real_replace, real_write = os.fsync, os.replace, os.write
        real_mkdir, real_bytes, real_copy = Path.mkdir, Path.write_bytes, parts._copy

        def sync(descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            steps.take(f"sync of {_shown(path)}")
            real_sync(descriptor)
            steps.disk.synced(descriptor)

        def replace(source: Path, target: Path) -> None:
            steps.take(f"rename to {_shown(Path(target))}")
            real_replace(source, target)

        def write(descriptor: int, data: bytes) -> int:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            steps.take(f"line of {_shown(path)}")
            return real_write(descriptor, data)

        def mkdir(path: Path, *arguments: object, **named: object) -> None:
            steps.take(f"folder {_shown(path)}")
            real_mkdir(path, *arguments, **named)  # type: ignore[arg-type]

        def write_bytes(path: Path, data: bytes) -> int:
            steps.take(f"content of {_shown(path)}")
            return real_bytes(path, data)

        def copy(*arguments: object) -> None:
            steps.take("a table")
            real_copy(*arguments)  # type: ignore[arg-type]

        patch.setattr(os, "fsync", sync)
        patch.setattr(os, "replace", replace)
        patch.setattr(os, "write", write)
        patch.setattr(Path, "mkdir", mkdir)
        patch.setattr(Path, "write_bytes", write_bytes)
        patch.setattr(parts, "_copy", copy)
        yield


def _shown(path: Path) -> str:
    name = path.name.removeprefix(".tmp-").removeprefix(".").removesuffix(".tmp")
    if path.suffix == ".parquet":
        return "a table"
    return {"s": "the study", "r2": "the round"}.get(name, name)


def _two_rounds(folder: Path) -> None:
    with create(folder) as writer:
        writer.write_round(make_round("r0"))
        writer.write_round(make_round("r1"))


def _create(folder: Path) -> None:
    create(folder).close()


def _round(folder: Path) -> None:
    with Study.resume(folder) as writer:
        writer.write_round(make_round("r2"))


def _finish(folder: Path) -> None:
    with Study.resume(folder) as writer:
        writer.finish()


def _retract(folder: Path) -> None:
    retract(folder, "r1", "a wrong clock")


ACTS: dict[str, Callable[[Path], None]] = {
    "creating a study": _create,
    "recording a third round": _round,
    "finishing": _finish,
    "retracting a round": _retract,
}
"""What is being done when the fault comes. All but the first begin with two recorded rounds."""

FAULTS: dict[str, Callable[[], BaseException]] = {
    "kill -9": Stopped,
    "power cut": Stopped,
    "disk full": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "read-only": lambda: OSError(errno.EROFS, os.strerror(errno.EROFS)),
    "I/O error": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
}


@dataclass(frozen=True)
class Outcome:
    """What is left after one fault at one step. `rounds` None: there is no study."""

    fault: str
    act: str
    step: str
    said: str | None
    rounds: tuple[str, ...] | None
    damaged: bool
    finished: bool
    retracted: tuple[str, ...]
    goes_on: bool


@cache
def outcomes(fault: str, act: str) -> tuple[Outcome, ...]:
    """Return what is left after the fault at each step of the act, in the order of the steps."""
    with tempfile.TemporaryDirectory(prefix="concbench-durability-") as place:
        return tuple(_outcomes(fault, act, Path(place)))


def _outcomes(fault: str, act: str, place: Path) -> Iterator[Outcome]:
    """Yield what is left after the fault at each step of the act, in the order of the steps."""
    number = 0
    while True:
        outer = place / str(number)
        outer.mkdir()
        folder, steps = outer / "s", Steps(number, FAULTS[fault]())
        with stepping(Steps(10**9, Stopped(), disk=steps.disk)):
            if act != "creating a study":
                _two_rounds(folder)
        said = None
        with stepping(steps):
            try:
                ACTS[act](folder)
                return
            except Stopped:
                pass
            except ConcbenchError as error:
                said = str(error)
        if fault == "power cut":
            after = outer / "after"
            steps.disk.restore(after, outer.stat().st_ino)
            folder = after / "s"
        yield _look(fault, act, steps.names[number], said, folder)
        shutil.rmtree(outer)
        number += 1


def _look(fault: str, act: str, step: str, said: str | None, folder: Path) -> Outcome:
    try:
        reader = open_study(folder)
    except StudyUnreadable:
        with suppress(ConcbenchError):
            create(folder).close()
        goes_on = (folder / "study.json").exists()
        return Outcome(fault, act, step, said, None, False, False, (), goes_on)
    infos = reader.rounds()
    damaged = bool(reader.lost or reader.unreadable)
    for info in infos:
        damaged = damaged or reader.load_round(info.round_id) != make_round(info.round_id)
    retracted = tuple(info.round_id for info in infos if info.retracted)
    return Outcome(
        fault, act, step, said, tuple(info.round_id for info in infos), damaged, reader.finished,
        retracted, _goes_on(folder, finished=reader.finished),
    )  # fmt: skip


def _goes_on(folder: Path, *, finished: bool) -> bool:
    """Whether the study can be resumed, take one more round, and be finished."""
    try:
        with Study.resume(folder, even_finished=finished) as writer:
            writer.write_round(make_round("r9"))
            writer.finish()
    except OutputUnusable:
        return False
    reader = open_study(folder)
    return reader.finished and reader.load_round("r9") == make_round("r9")


_HEAD = """# What survives

A round is written beside the study, synced, renamed as one folder, its parent synced, and only then
logged. So whatever ends the tool, at whatever moment, costs at most the round in flight; what was
recorded before is whole, and the study can be gone on with. The table is generated by running each
act with each fault at each of its steps (`python -m tests.store.durability`). A power cut leaves
only what was synced: files their bytes of that moment, folders their names.

| while | fault | steps | recorded rounds kept | the act itself | the study goes on | said |
|---|---|---|---|---|---|---|
"""

_TAIL = """
Beside these:

| fault | what happens |
|---|---|
| two writers | the second is refused by name of the first one's process; readers are not |
| the clock goes back | rounds keep the order in which they were recorded: the log is numbered |
| the clock steps while a round is measured | `clock_stepped`, fatal: its stamps are void |
| a file may grow no further (`ulimit -f`) | one line, exit code 2; recorded rounds are kept |
| a small disk that is really full | the same; reading needs no room; a sweep goes on with more |
| the folder is a file, or cannot be written | one line, exit code 2; nothing is touched |
"""


def page() -> str:
    """Return the documentation's page."""
    rows = []
    for act in ACTS:
        for fault in FAULTS:
            rows.append(_row(act, fault, outcomes(fault, act)))
    return _HEAD + "\n".join(rows) + "\n" + _TAIL


def _row(act: str, fault: str, found: tuple[Outcome, ...]) -> str:
    kept = "–"
    if act != "creating a study":
        whole = sum(not o.damaged and o.rounds is not None and o.rounds[:2] == ("r0", "r1")
                    for o in found)  # fmt: skip
        kept = f"2 of 2 at {whole} of {len(found)}"
    done = sum(map(_done, found))
    goes_on = sum(o.goes_on for o in found)
    said = sum(o.said is not None for o in found)
    told = f"one line at {said}" if said else "–"
    return (
        f"| {act} | {fault} | {len(found)} | {kept} | whole at {done}, absent at "
        f"{len(found) - done} | at {goes_on} of {len(found)} | {told} |"
    )


def _done(outcome: Outcome) -> bool:
    if outcome.act == "creating a study":
        return outcome.rounds is not None
    if outcome.act == "finishing":
        return outcome.finished
    if outcome.act == "retracting a round":
        return outcome.retracted == ("r1",)
    return outcome.rounds is not None and "r2" in outcome.rounds


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""Judges a study anew in a process of its own, for a page that follows it while it grows."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from concbench.clock import now_ns
from concbench.report.build import build_view
from concbench.report.following import DoubtLine, Judged
from concbench.report.inert import inert
from concbench.result import Result

JUDGE_SHARE = 20
"""While the study runs, judging it takes one part in so many of the time."""

STOP_S = 5.0


class Judge:
    """Runs `concbench report` on a study and keeps what it last said. One child at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._scratch = Path(tempfile.mkdtemp(prefix="concbench-watch-"))
        self._child: subprocess.Popen[bytes] | None = None
        self._asked = ("", 0)
        self._began_ns = 0
        self._free_ns = 0
        self._told = ""
        self.judged: Judged | None = None
        self.error = ""

    @property
    def busy(self) -> bool:
        """Whether a judgement is being worked out."""
        return self._child is not None

    @property
    def page(self) -> Path:
        """The page of the last judgement."""
        return self._scratch / "report.html"

    def look(self, version: str, rounds: int, *, running: bool) -> None:
        """Take what a child has finished, and start one where there is something new."""
        if self._child is not None and self._child.poll() is not None:
            self._take(self._child.returncode)
        due = now_ns() >= self._free_ns or not running
        if self._child is None and version != self._told and due:
            self._start(version, rounds)

    def _start(self, version: str, rounds: int) -> None:
        self._asked, self._began_ns = (version, rounds), now_ns()
        staged, words = self._scratch / "new", [sys.executable, "-m", "concbench", "report"]
        staged.mkdir(exist_ok=True)
        words += [str(self._folder), "--json", str(staged / "result.json")]
        words += ["--html", str(staged / "report.html")]
        with (staged / "stderr").open("wb") as errors:
            self._child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def _take(self, code: int) -> None:
        took_ns = now_ns() - self._began_ns
        self._child, self._free_ns = None, now_ns() + JUDGE_SHARE * took_ns
        self._told, rounds = self._asked
        staged = self._scratch / "new"
        try:
            result = msgspec.json.decode((staged / "result.json").read_bytes(), type=Result)
            self.judged, self.error = judged_of(result, rounds), ""
            (staged / "report.html").replace(self.page)
        except (OSError, msgspec.MsgspecError) as error:
            said = (staged / "stderr").read_bytes().decode("utf-8", "replace").strip()
            self.error = inert(said.splitlines()[-1] if said else f"exit code {code}: {error}", 300)
        for path in staged.iterdir():
            path.unlink()

    def close(self) -> None:
        """End the child, if there is one, and remove what it wrote."""
        if self._child is not None:
            self._child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(STOP_S)
        for folder in (self._scratch / "new", self._scratch):
            for path in folder.iterdir() if folder.is_dir() else ():
                if path.is_file():
                    path.unlink()
            with contextlib.suppress(OSError):
                folder.rmdir()


def judged_of(result: Result, rounds: int) -> Judged:
    """Return what the page says of a judgement: the report's own sentence, verdicts and doubts."""
    view = build_view(result)
    doubts = [
        DoubtLine(code=doubt.code, severity=doubt.severity, cell=where, message=message)
        for doubt in view.doubts
        for message, where in doubt.messages
    ]
    return Judged(
        rounds=rounds, sentence=view.sentence, verdicts=list(view.verdicts), doubts=doubts
    )

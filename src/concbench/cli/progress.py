"""What is shown on stderr while measuring: a board on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from concbench.analyse.study import COMPANIONS
from concbench.cli.arising import Arising, doubt_text, level_text, rate_text
from concbench.cli.live import snapshot_parts
from concbench.cli.nowlines import NowLines
from concbench.domain import Round, TargetFacts
from concbench.measure.watch import Snapshot

SHOWN_DOUBTS = 5
"""So many of the last doubts stand under the board; all are told again at the end."""


@dataclass(slots=True)
class _Level:
    """What the board says of one level."""

    rounds: int = 0
    ok: int = 0
    sent: int = 0
    rate: str = "–"
    doubts: tuple[str, ...] = ()


class Display:
    """A board that is drawn between rounds only: drawing takes milliseconds of the load's loop.

    While a round runs its last two lines alone are written over: how it goes, and first signs of
    doubts.

    `levels` are the rows it starts with, in concurrency; others are added as they come.
    """

    def __init__(self, total_rounds: int, *, quiet: bool, levels: Sequence[int] = ()) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} rounds"),
            TimeRemainingColumn(),
            console=self._console,
            auto_refresh=False,
        )
        self._task = self._bar.add_task("starting", total=total_rounds)
        self._levels = {f"N = {level}": _Level() for level in levels}
        self._arising = Arising()
        self._doubts: list[str] = []
        self._lines: NowLines | None = None
        self.quiet = quiet

    def __enter__(self) -> Display:
        if not self.quiet and sys.stderr.isatty():
            self._live = Live(
                self.board(), console=self._console, auto_refresh=False, transient=True
            )
            self._lines = NowLines(sys.stderr)
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._lines is not None:
            self._lines.close()

    def look(self, now: Snapshot) -> None:
        """Show how a round goes while it goes; nothing where there is no board."""
        if self._lines is not None:
            signs = "  ".join(f"! {sign} (so far)" for sign in now.signs)
            self._lines.show(" · ".join(snapshot_parts(now)), signs)

    def say(self, text: str) -> None:
        """Say what goes on; a line where there is no board."""
        self._print(text)
        self.now(text)

    def now(self, text: str) -> None:
        """Show what is running on the board; nothing where there is none."""
        self._bar.update(self._task, description=text)
        self._draw()

    def finished(self, done: Round, facts: TargetFacts | None = None) -> None:
        """Count a round: its rate, and the doubts that it is the first to show."""
        if self.quiet:
            return
        ok = sum(r.outcome == "ok" for r in done.requests)
        beside = done.cell.context_label if done.cell.context_label in COMPANIONS else ""
        rate = rate_text(done, facts) if done.phase == "measured" and not beside else ""
        doubts = self._arising.of(done, facts)
        if not beside:
            self._bar.update(self._task, advance=1)
            if done.phase == "measured":
                self._count(done, ok, rate, [doubt.code for doubt in doubts])
        told = [doubt_text(doubt, done.cell) for doubt in doubts]
        self._doubts += told
        self._print(_round_text(done, ok, beside, rate), *told)
        self._draw()

    def line(self, text: str) -> None:
        """Print a line that stays, above the board where there is one."""
        if not self.quiet:
            self._console.print(text, soft_wrap=True, markup=False)

    def tick(self, text: str) -> None:
        """Count a round on the bar; nothing where there is none."""
        self._bar.update(self._task, advance=1, description=text)
        self._draw()

    def _print(self, *lines: str) -> None:
        """Print lines where there is no board."""
        if self._live is None and not self.quiet:
            for line in lines:
                self._console.print(line, soft_wrap=True, markup=False)

    def _count(self, done: Round, ok: int, rate: str, codes: list[str]) -> None:
        level = self._levels.setdefault(level_text(done.cell), _Level())
        level.rounds += 1
        level.ok += ok
        level.sent += len(done.requests)
        level.rate = rate or "–"
        level.doubts += tuple(codes)

    def board(self) -> Group:
        """Return what a terminal shows: bar, levels, last doubts, two lines to write over."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("level", "rounds", "ok", "last round", "doubts so far"):
            table.add_column(name, justify="left" if name == "doubts so far" else "right")
        for name, level in self._levels.items():
            answered = f"{level.ok}/{level.sent}" if level.sent else "–"
            doubts = Text(", ".join(level.doubts))
            table.add_row(name, str(level.rounds), answered, level.rate, doubts)
        lines = [Text(text, overflow="ellipsis") for text in self._doubts[-SHOWN_DOUBTS:]]
        return Group(self._bar, table, *lines, Text(), Text())

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self.board(), refresh=True)


def _round_text(done: Round, ok: int, beside: str, rate: str) -> str:
    """Return how a round went, in one line. `beside` names a round that goes with another cell."""
    took_s = (done.end_ns - done.start_ns) / 1e9
    level = f"{level_text(done.cell)} ({beside})" if beside else level_text(done.cell)
    parts = [done.phase, f"{ok}/{len(done.requests)} ok", f"{took_s:.1f} s", rate]
    return f"{level}: {', '.join(part for part in parts if part)}"

"""What is shown on stderr while measuring: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from concbench.domain import Round


class Display:
    """A progress bar that moves once a round: drawing during a round would disturb it."""

    def __init__(self, total_rounds: int, *, quiet: bool) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._total = total_rounds
        self.quiet = quiet

    def __enter__(self) -> Display:
        if not self.quiet and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.completed}/{task.total} rounds"),
                TimeRemainingColumn(),
                console=self._console,
                auto_refresh=False,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=self._total)
            self._bar.refresh()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Say what goes on; a line where there is no bar."""
        if self.quiet:
            return
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=text)
            self._bar.refresh()
        else:
            self._console.print(text, soft_wrap=True, markup=False)

    def line(self, text: str) -> None:
        """Print a line that stays, above the bar where there is one."""
        if not self.quiet:
            self._console.print(text, soft_wrap=True, markup=False)

    def tick(self, text: str) -> None:
        """Count a round on the bar; nothing where there is none."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, description=text)
            self._bar.refresh()

    def finished(self, done: Round) -> None:
        """Count a round."""
        took_s = (done.end_ns - done.start_ns) / 1e9
        ok = sum(r.outcome == "ok" for r in done.requests)
        answered = f"{ok}/{len(done.requests)} ok"
        text = f"N = {done.cell.concurrency}: {done.phase}, {answered}, {took_s:.1f} s"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, description=text)
            self._bar.refresh()
        else:
            self.say(text)

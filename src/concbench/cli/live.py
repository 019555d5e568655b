"""What is shown on stderr while a loop runs: a changing line on a terminal, else one each 10 s."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from concbench.cli.arising import Arising, doubt_text, rate_text
from concbench.cli.nowlines import NowLines
from concbench.domain import Round, TargetFacts
from concbench.measure.watch import Snapshot

LINE_EVERY_S = 10.0


class StatusLine:
    """A changing line on a terminal, else lines: drawn by whoever calls, no thread of its own."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._lines: NowLines | None = None
        self.quiet = quiet

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            self._lines = NowLines(sys.stderr)
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
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
        """Show how a round goes while it goes; nothing where there is no terminal."""
        if self._lines is not None:
            self._lines.show(snapshot_line(now))

    def say(self, text: str) -> None:
        """Say what goes on."""
        if self.quiet:
            return
        if self._live is not None:
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
        else:
            self._console.print(text, soft_wrap=True, markup=False)

    def keep(self, text: str) -> None:
        """Print a line that stays, above the changing one where there is a terminal."""
        console = self._console if self._live is None else self._live.console
        console.print(text, soft_wrap=True, markup=False)


class LiveDisplay(StatusLine):
    """What a loop shows: snapshots at most twice a second, rounds, doubts as they arise."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._next_line_s = 0.0
        self._arising = Arising()

    def look(self, now: Snapshot) -> None:
        """Show a snapshot; where there is no terminal, each 10 s."""
        if self.quiet or self._live is not None:
            super().look(now)
            return
        if now.elapsed_s < self._next_line_s - LINE_EVERY_S:
            self._next_line_s = 0.0  # another round began
        if now.elapsed_s < self._next_line_s:
            return
        self._next_line_s = now.elapsed_s - now.elapsed_s % LINE_EVERY_S + LINE_EVERY_S
        self.say(snapshot_line(now))

    def finished(self, done: Round, facts: TargetFacts | None = None) -> None:
        """Say how a round went, and the doubts that it is the first to show."""
        if self.quiet:
            return
        took_s = (done.end_ns - done.start_ns) / 1e9
        ok = sum(record.outcome == "ok" for record in done.requests)
        cut = sum(record.outcome == "incomplete" for record in done.requests)
        rate = rate_text(done, facts) if done.phase == "measured" else ""
        tail = f", {rate}" if rate else ""
        text = f"{done.phase}: {ok}/{len(done.requests)} ok, {cut} cut, {took_s:.1f} s{tail}"
        self.keep(text)
        for doubt in self._arising.of(done, facts):
            self.keep(doubt_text(doubt, done.cell))


def snapshot_line(now: Snapshot) -> str:
    """Return a snapshot as one line; what is not known is left out, signs of doubts come last."""
    return " · ".join([*snapshot_parts(now), *(f"! {sign}" for sign in now.signs)])


def snapshot_parts(now: Snapshot) -> list[str]:
    """Return what a snapshot tells, the parts of a line; what is not known is left out.

    A narrow terminal cuts the line's end: what is least needed comes last.
    """
    parts = [f"{now.elapsed_s:.0f} s"]
    if now.left_s is not None:
        limit = "about" if now.asked is not None else "at most"
        parts.append(f"{limit} {now.left_s:.0f} s left")
    of = "" if now.asked is None else f" of {now.asked}"
    parts += [f"{now.in_flight} in flight", f"{now.ended}{of} ended"]
    rates = [
        f"{name} {value:,.0f}"
        for name, value in (("client", now.client_tok_per_s), ("server", now.server_tok_per_s))
        if value is not None
    ]
    if rates:
        parts.append(f"{', '.join(rates)} tok/s")
    if now.half_width is not None:
        parts.append(f"± {100 * now.half_width:.2g} %")
    elif not now.steady:
        parts.append("ramp")
    if now.running is not None:
        waiting = f" + {now.waiting:.0f} waiting" if now.waiting else ""
        parts.append(f"{now.running:.0f} running on the server{waiting}")
    return parts

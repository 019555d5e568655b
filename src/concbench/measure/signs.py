"""First signs of doubts while a round runs, from counts alone: told at once, judged afterwards."""

from __future__ import annotations

from concbench.load.generator import TICK_S, Progress
from concbench.observe.observer import LiveView

TICK_NS = int(TICK_S * 1e9)
SILENT_NS = 2_000_000_000
"""From so long without a byte on it is said, once answers had begun."""

LATE_NS = 50_000_000
"""A tick that is late by its own length: whatever came meanwhile lay unread."""


class Signs:
    """Tells what may become a doubt: provisional, since only the finished round is judged.

    What the server says counts once two looks running agree: a reading may be a second old.
    """

    def __init__(self, most: int | None) -> None:
        """`most`: so many requests of ours are in flight at most; None without a limit."""
        self._most = most
        self._ticked_ns = 0
        self._step_ns = 0
        self._late_ns = 0
        self._heard = (0, 0)
        self._before: set[str] = set()

    def tick(self, elapsed_ns: int) -> None:
        """Take note of a tick of the load's loop."""
        if self._ticked_ns:
            # Over other machines the counts come in a slower step, and none of that is a pause.
            interval_ns = elapsed_ns - self._ticked_ns
            self._step_ns = max(TICK_NS, min(self._step_ns or interval_ns, interval_ns))
            self._late_ns = max(self._late_ns, interval_ns - self._step_ns)
        self._ticked_ns = elapsed_ns

    def look(self, progress: Progress, view: LiveView | None) -> tuple[str, ...]:
        """Return the signs there are now, each the doubt's code and what was seen."""
        found: list[str] = []
        late_ns, self._late_ns = self._late_ns, 0
        if late_ns >= LATE_NS:
            found.append(f"client_bound: this client paused for {late_ns / 1e6:.0f} ms")
        if progress.received_bytes != self._heard[1] or not progress.in_flight:
            self._heard = (progress.elapsed_ns, progress.received_bytes)
        silent_ns = progress.elapsed_ns - self._heard[0]
        if progress.received_bytes and silent_ns >= SILENT_NS:
            found.append(f"stalled: no byte for {silent_ns / 1e9:.0f} s")
        told = {} if view is None else self._server(progress, view)
        found += [text for code, text in told.items() if code in self._before]
        self._before = set(told)
        return tuple(found)

    def _server(self, progress: Progress, view: LiveView) -> dict[str, str]:
        running, told = view.running or 0.0, {}
        if self._most is not None and running > self._most:
            told["foreign_traffic"] = (
                f"foreign_traffic: the server runs {running:.0f}, {self._most} are ours"
            )
        elif view.waiting and progress.received_bytes:
            told["oversubscribed"] = f"oversubscribed: {view.waiting:.0f} wait inside the server"
        return told

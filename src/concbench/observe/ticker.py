"""One source, one thread: work at absolute times, at once when asked, never piled up."""

from __future__ import annotations

import threading
from collections.abc import Callable

from concbench.clock import now_ns


class Ticket:
    """Counts down; the last one to be done calls back."""

    def __init__(self, holders: int, then: Callable[[], None]) -> None:
        """`then` is called at once where nobody holds it."""
        self._left = holders
        self._then = then
        self._lock = threading.Lock()
        if holders == 0:
            then()

    def done(self) -> None:
        """Say that one holder has finished."""
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._then()


class Ticker(threading.Thread):
    """Calls `work` every `interval_ns`, counted from the start and not from the last end.

    Work that takes longer than the interval lets ticks go by, `on_skipped` is told how many, and
    the next call comes at the next tick: calls never pile up. `work(asked)` is told whether it was
    asked for rather than due.
    """

    def __init__(
        self,
        name: str,
        interval_ns: int,
        work: Callable[[bool], None],
        on_skipped: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._interval_ns = interval_ns
        self._work = work
        self._on_skipped = on_skipped
        self._changed = threading.Condition()
        self._tickets: list[Ticket] = []
        self._ended = False

    def poke(self, ticket: Ticket) -> None:
        """Work once more as soon as possible, then count the ticket as done."""
        with self._changed:
            self._tickets.append(ticket)
            self._changed.notify()

    def end(self) -> None:
        """Let the thread end after what it is doing."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def run(self) -> None:
        """Work until ended."""
        due_ns = now_ns()
        while (tickets := self._wait(due_ns)) is not None:
            try:
                self._work(bool(tickets))
            finally:
                for ticket in tickets:
                    ticket.done()
            behind = (now_ns() - due_ns) // self._interval_ns
            if behind >= 0:
                due_ns += (behind + 1) * self._interval_ns
                if behind and self._on_skipped:
                    self._on_skipped(behind)

    def _wait(self, due_ns: int) -> list[Ticket] | None:
        with self._changed:
            while not self._ended and not self._tickets:
                left_s = (due_ns - now_ns()) / 1e9
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            tickets, self._tickets = self._tickets, []
            return None if self._ended else tickets

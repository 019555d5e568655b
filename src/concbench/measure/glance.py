"""What a display is told of a burst while it runs: counts, rates, time left, first signs of doubts.

A tick is two comparisons; every half a second one reads the counts and the observer's slot and
hands a `Snapshot` on. Nothing here decides anything about the round.
"""

from __future__ import annotations

from collections.abc import Callable

from concbench.domain import Cell, RoundPhase
from concbench.load.generator import Progress
from concbench.measure.signs import Signs
from concbench.measure.watch import SHOW_EVERY_NS, SHOWN_OVER_NS, OnLook, Snapshot
from concbench.observe.observer import LiveView


class Glance:
    """Follows one burst; `tick` is the load plan's `on_tick`."""

    def __init__(
        self,
        cell: Cell,
        phase: RoundPhase,
        asked: tuple[int, int],
        bytes_per_tok: float,
        live: Callable[[], LiveView | None],
        on_look: OnLook,
    ) -> None:
        """`asked`: requests and output tokens in all; `bytes_per_tok` 0 where not known."""
        self._cell, self._phase = cell, phase
        self._requests, self._asked_tok = asked
        self._bytes_per_tok = bytes_per_tok
        self._live = live
        self._on_look = on_look
        self._due_ns = SHOW_EVERY_NS
        self._recent: list[tuple[int, int]] = [(0, 0)]
        self._signs = Signs(self._requests)

    def tick(self, progress: Progress) -> None:
        """Look at the counts, where half a second has gone by since the last look."""
        self._signs.tick(progress.elapsed_ns)
        if progress.elapsed_ns >= self._due_ns:
            self._due_ns = progress.elapsed_ns + SHOW_EVERY_NS
            self._on_look(self._snapshot(progress))

    def _snapshot(self, progress: Progress) -> Snapshot:
        rate, view = self._rate(progress), self._live()
        left_s = None
        if rate:
            done_tok = progress.received_bytes / self._bytes_per_tok
            left_s = max(0.0, self._asked_tok - done_tok) / rate
        return Snapshot(
            elapsed_s=progress.elapsed_ns / 1e9,
            left_s=left_s,
            in_flight=progress.in_flight,
            ended=progress.ended,
            running=None if view is None else view.running,
            waiting=None if view is None else view.waiting,
            client_tok_per_s=rate,
            server_tok_per_s=None if view is None else view.generated_tok_per_s,
            half_width=None,
            steady=True,
            cell=self._cell.cell,
            phase=self._phase,
            asked=self._requests,
            signs=self._signs.look(progress, view),
        )

    def _rate(self, progress: Progress) -> float | None:
        """Tokens a second over the last 2 s, by bytes; None before the first ones."""
        now, recent = progress.elapsed_ns, self._recent
        recent.append((now, progress.received_bytes))
        while len(recent) > 2 and now - recent[1][0] >= SHOWN_OVER_NS:
            recent.pop(0)
        began_ns, before = recent[0]
        if not self._bytes_per_tok or now <= began_ns or not progress.received_bytes:
            return None
        return (progress.received_bytes - before) / self._bytes_per_tok / (now - began_ns) * 1e9

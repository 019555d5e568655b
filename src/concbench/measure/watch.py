"""What a closed loop's controller sees while the load is on: counts, and when it is enough.

Everything here runs in the event loop, 20 times a second: it reads counters. The interval is worked
out by `analyse.stopping`, at the few looks that it asks for.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from concbench.analyse.stopping import Continue, LoopSoFar, StopRule, decide
from concbench.load.generator import Progress
from concbench.load.script import Done
from concbench.measure.signs import Signs
from concbench.measure.silence import STALL_S, Silence
from concbench.observe.observer import LiveView

RAMP_REQUESTS = 2
"""So many requests of every worker are the ramp; see `analyse.windows`."""

GIVE_UP_S = 10.0
SHOWN_OVER_NS = 2_000_000_000
SHOW_EVERY_NS = 500_000_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a display may show. Rates are of the last 2 s; None where it is not known.

    `half_width` is a share of the steady rate. `steady` says whether the ramp is over. A round that
    ends by itself (a burst) has `asked` requests, and `left_s` is then an estimate, not a limit.
    `signs` are what may become doubts.
    """

    elapsed_s: float
    left_s: float | None
    in_flight: int
    ended: int
    running: float | None
    waiting: float | None
    client_tok_per_s: float | None
    server_tok_per_s: float | None
    half_width: float | None
    steady: bool
    cell: str = ""
    phase: str = "measured"
    asked: int | None = None
    signs: tuple[str, ...] = ()


OnLook = Callable[[Snapshot], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """When a loop ends: `until` is the relative half-width, `stall_s` how long silence is borne."""

    until: float
    min_s: float
    max_s: float
    stall_s: float = STALL_S


class Watch:
    """Follows one closed loop. `ended_by` says why it ended, `hung` names a silence."""

    def __init__(
        self,
        workers: int,
        limits: Limits,
        bytes_per_tok: float,
        live: Callable[[], LiveView | None] = lambda: None,
        on_look: OnLook = lambda _: None,
        cell: str = "",
    ) -> None:
        self._workers = workers
        self._limits = limits
        self._bytes_per_tok = bytes_per_tok
        self._live = live
        self._on_look = on_look
        self._cell = cell
        self._signs = Signs(workers)
        self._finished: Counter[int] = Counter()
        self._twice = 0
        self._requests = 0
        self._request_ns = 0.0
        self._failures = 0
        self._failing_since_ns = 0
        self._at_ns = array("q")
        self._received = array("q")
        self._issues_ns = array("q")
        self._steady_ns: int | None = None
        self._next_look_s = 0.0
        self._recent: list[tuple[int, int]] = []
        self._shown_ns = 0
        self._silence = Silence(limits.stall_s, live)
        self.half_width: float | None = None
        self.ended_by: str | None = None
        self.hung: str | None = None

    def issued(self, at_ns: int) -> None:
        """Take note of a request that is sent now."""
        self._issues_ns.append(at_ns)

    def request_ended(self, worker: int, done: Done, *, took_ns: int, whole: bool) -> None:
        """Take note of an end. `whole` says that it was a full-length request that went well."""
        if done.ending != "complete" or took_ns < 0:
            if not self._failures:
                self._failing_since_ns = done.end_ns
            self._failures += 1
            return
        self._failures = 0
        self._finished[worker] += 1
        self._twice += self._finished[worker] == RAMP_REQUESTS
        if whole:
            self._requests += 1
            self._request_ns += (took_ns - self._request_ns) / self._requests

    def tick(self, progress: Progress, start_ns: int) -> bool:
        """Look at the counts; return whether the loop is to end now."""
        now_ns = start_ns + progress.elapsed_ns
        if self._steady_ns is None and self._twice >= self._workers:
            self._steady_ns = now_ns
        self._at_ns.append(now_ns)
        self._received.append(progress.received_bytes)
        self._show(progress, steady=self._steady_ns is not None)
        self.ended_by = self.ended_by or self._ending(progress, start_ns)
        return self.ended_by is not None

    def _ending(self, progress: Progress, start_ns: int) -> str | None:
        found = self._decided(progress, start_ns)
        if found is not None:
            return found
        failing_s = (start_ns + progress.elapsed_ns - self._failing_since_ns) / 1e9
        if self._failures >= self._workers and failing_s >= GIVE_UP_S:
            return "timeout"
        return "timeout" if self._silent(progress) else None

    def _decided(self, progress: Progress, start_ns: int) -> str | None:
        """Return why the loop is to end by the stop rule, None where it goes on."""
        if progress.elapsed_ns / 1e9 < self._next_look_s:
            return None
        limits = self._limits
        # Bytes stand in for tokens: they grow with the events however these are bundled into
        # reads, and only their proportions count.
        loop = LoopSoFar(
            workers=self._workers,
            began_ns=start_ns,
            steady_ns=self._steady_ns,
            request_s=self._request_ns / 1e9,
            times_ns=np.array(self._at_ns, dtype=np.int64),
            tokens=np.array(self._received, dtype=np.float64),
            issues_ns=np.sort(np.array(self._issues_ns, dtype=np.int64)),
        )
        rule = StopRule(limits.until, limits.max_s, limits.min_s)
        answer = decide(loop, rule, start_ns + progress.elapsed_ns)
        self.half_width = answer.half_width
        if isinstance(answer, Continue):
            self._next_look_s = answer.next_look_s
            return None
        return answer.ended_by

    def _silent(self, progress: Progress) -> bool:
        """Whether for long no byte came and the server's own counter stood still."""
        self.hung = self._silence.look(progress)
        return self.hung is not None

    def _show(self, progress: Progress, *, steady: bool) -> None:
        now = progress.elapsed_ns
        self._signs.tick(now)
        self._recent.append((now, progress.received_bytes))
        while len(self._recent) > 2 and now - self._recent[1][0] >= SHOWN_OVER_NS:
            self._recent.pop(0)
        if now - self._shown_ns < SHOW_EVERY_NS:
            return
        self._shown_ns = now
        (began_ns, before), view = self._recent[0], self._live()
        rate = None
        if self._bytes_per_tok and now > began_ns:
            rate = (progress.received_bytes - before) / self._bytes_per_tok / (now - began_ns) * 1e9
        self._on_look(
            Snapshot(
                elapsed_s=now / 1e9,
                left_s=max(0.0, self._limits.max_s - now / 1e9),
                in_flight=progress.in_flight,
                ended=progress.ended,
                running=None if view is None else view.running,
                waiting=None if view is None else view.waiting,
                client_tok_per_s=rate,
                server_tok_per_s=None if view is None else view.generated_tok_per_s,
                half_width=self.half_width,
                steady=steady,
                cell=self._cell,
                signs=self._signs.look(progress, view),
            )
        )

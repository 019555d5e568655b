"""All processes of one engine: its session, and whatever left it but still carries its mark."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from concbench.clock import now_ns, sleep_s
from concbench.serve.guard import MARK_VARIABLE

GRACE_S = 10.0
"""How long an engine may take to end after SIGTERM."""

KILL_S = 5.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Family:
    """The processes of an engine. `session` is the pid of its first process, 0 where it is unsure.

    The session finds those that overwrote their environment (with a title of their own), the mark
    those that began a session of their own.
    """

    session: int
    mark: str

    def members(self) -> list[psutil.Process]:
        """Return those that live."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if self._has(process) and has_life(process):
                    found.append(process)
        return found

    def rss_bytes(self) -> int:
        """Return the resident memory of all of them; pages they share count for each."""
        total = 0
        for process in self.members():
            with suppress(psutil.Error):
                total += process.memory_info().rss
        return total

    def end(
        self, grace_s: float = GRACE_S, reap: Callable[[], object] = lambda: None
    ) -> str | None:
        """SIGTERM, then SIGKILL to what is left; return the signal it took, None if it was gone.

        `reap` collects the exit code of a child of ours, which stays a zombie without it.
        """
        before = self.members()
        if not before:
            return None
        deadline_ns = now_ns() + int(grace_s * 1e9)
        _signal(before, signal.SIGTERM)
        # Not psutil's wait: where nobody reaps orphans, it takes a zombie for a living process.
        while self._left(reap):
            if now_ns() > deadline_ns:
                self._kill(reap)
                return "SIGKILL"
            sleep_s(_POLL_S)
        return "SIGTERM"

    def _kill(self, reap: Callable[[], object]) -> None:
        deadline_ns = now_ns() + int(KILL_S * 1e9)
        while (members := self._left(reap)) and now_ns() < deadline_ns:
            _signal(members, signal.SIGKILL)
            sleep_s(_POLL_S)

    def _left(self, reap: Callable[[], object]) -> list[psutil.Process]:
        reap()
        return self.members()

    def _has(self, process: psutil.Process) -> bool:
        if self.session and os.getsid(process.pid) == self.session:
            return True
        return bool(process.environ().get(MARK_VARIABLE) == self.mark)


def has_life(process: psutil.Process) -> bool:
    """Return whether any of its threads still runs: those of a zombie can hold ports and memory."""
    return bool(process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1)


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)

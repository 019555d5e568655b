"""A closed loop: N in flight, each worker asks again as soon as its last request has ended.

The same workers serve a loop in this process and a share of one in another: there the requests
were rendered before, and what happens is told to the process that decides when it is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from concbench.clock import now_ns
from concbench.load.script import Done, Outgoing, Script, Send

BACK_OFF_NS = 250_000_000
IMPLAUSIBLE = 0.1
"""An answer in two reads or less within this share of its decoding time is a refusal."""


class Listener(Protocol):
    """Who follows a loop while the load is on."""

    def issued(self, at_ns: int) -> None:
        """Take note of a request that is sent now."""
        ...

    def request_ended(self, worker: int, done: Done, *, took_ns: int, whole: bool) -> None:
        """Take note of an end; `took_ns` is negative for a failure, `whole` says full length."""
        ...


@dataclass(slots=True)
class ClosedLoop:
    """What the workers of one loop share.

    `take` gives the next request, None when there are no more; `ready` are those that it would give
    next, the first `workers` of them meant for one worker each. `step_ns` is how long a token
    takes. `exhausted` is set once a worker found nothing to take.
    """

    workers: int
    step_ns: int
    take: Callable[[], Outgoing | None]
    ready: Callable[[], list[Outgoing]]
    listener: Listener
    start_ns: int = 0
    exhausted: bool = False

    def scripts(self) -> list[Script]:
        """Return one script a worker."""
        return [_Worker(number, self) for number in range(self.workers)]


class _Worker:
    """Sends the loop's next request as soon as the last one has ended.

    After a failure it waits a quarter of a second: a server that refuses everything at once would
    otherwise be asked ten thousand times a second, and the record would hold nothing else.
    """

    __slots__ = ("_asked_tok", "_began_ns", "_loop", "_number", "_sent")

    def __init__(self, number: int, loop: ClosedLoop) -> None:
        self._number = number
        self._loop = loop
        self._began_ns = 0
        self._sent = 0
        self._asked_tok = 0

    def next(self, previous: Done | None) -> Send | None:
        """Return the next request, due at the start for the first and at once for the others."""
        due_ns: int | None = None
        loop, now = self._loop, now_ns()
        if previous is None:
            loop.start_ns = loop.start_ns or now
            due_ns = 0
        elif self._failed(previous):
            due_ns = max(0, previous.end_ns - loop.start_ns) + BACK_OFF_NS
        request = loop.take()
        if request is None:
            loop.exhausted = True
            return None
        self._asked_tok = request.asked_output_tok
        self._began_ns = now
        self._sent += 1
        loop.listener.issued(now)
        return Send(request, due_ns)

    def _failed(self, done: Done) -> bool:
        """Report the end; return whether it was none that a server at work gives."""
        took_ns = done.end_ns - self._began_ns
        quick = took_ns < IMPLAUSIBLE * self._asked_tok * self._loop.step_ns and done.reads <= 2
        failed = done.ending != "complete" or quick
        self._loop.listener.request_ended(
            self._number, done, took_ns=-1 if failed else took_ns, whole=self._sent > 1
        )
        return failed


class Ended(Struct, array_like=True):
    """One call of `Listener.request_ended`, to be made in another process."""

    worker: int
    done: Done
    took_ns: int
    whole: bool


class News(Struct, array_like=True):
    """What a share of a loop has to tell since it last did: a listener that writes all down."""

    issues_ns: list[int] = []
    ends: list[Ended] = []
    exhausted: bool = False

    def issued(self, at_ns: int) -> None:
        """Write a request down."""
        self.issues_ns.append(at_ns)

    def request_ended(self, worker: int, done: Done, *, took_ns: int, whole: bool) -> None:
        """Write an end down."""
        self.ends.append(Ended(worker, done, took_ns, whole))

    def drain(self, loop: ClosedLoop) -> News:
        """Return what was written down, and begin anew."""
        told = News(self.issues_ns, self.ends, loop.exhausted)
        self.issues_ns, self.ends = [], []
        return told


def tell(loop: ClosedLoop, news: News, first_worker: int, offset_ns: int = 0) -> None:
    """Repeat to the loop's listener what a share told.

    `first_worker` is the number of the share's worker 0 among all, `offset_ns` how far the share's
    clock is ahead of ours.
    """
    for at_ns in news.issues_ns:
        loop.listener.issued(at_ns - offset_ns)
    for end in news.ends:
        done = Done(end.done.number, end.done.end_ns - offset_ns, end.done.ending, end.done.reads)
        loop.listener.request_ended(
            first_worker + end.worker, done, took_ns=end.took_ns, whole=end.whole
        )
    loop.exhausted = loop.exhausted or news.exhausted

"""What a worker does next: a script is asked after every response, and says send or stop.

One loop serves every kind of load. A burst is N scripts with one request each; a closed loop
is N scripts that go on until told to stop; arrivals by schedule share one queue of due times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One request, rendered before the clock starts. `prompt` numbers the prompt it carries."""

    payload: bytes
    asked_output_tok: int
    prompt: int = -1
    stream: bool = True


@dataclass(frozen=True, slots=True)
class Send:
    """Send `request` at `due_ns` after the round's start; None means as soon as possible."""

    request: Outgoing
    due_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """How a request ended, as far as it is known while the load is on."""

    number: int
    end_ns: int
    ending: str
    reads: int


class Script(Protocol):
    """A worker's behaviour."""

    def next(self, previous: Done | None) -> Send | None:
        """Return what to send now, or None to end the worker. `previous` is None at first."""
        ...


class Once:
    """Sends one request at a given time, then ends. N of these due at 0 are a burst."""

    __slots__ = ("send",)

    def __init__(self, request: Outgoing, due_ns: int = 0) -> None:
        self.send: Send | None = Send(request, due_ns)

    def next(self, previous: Done | None) -> Send | None:
        """Return the one request the first time."""
        del previous
        send, self.send = self.send, None
        return send


class Refill:
    """A closed loop's worker: a new request as soon as the last one has ended.

    `requests` may be shared between workers; the loop ends when it is exhausted or `go_on`
    returns False.
    """

    __slots__ = ("_first", "_go_on", "_requests")

    def __init__(
        self,
        requests: Iterator[Outgoing],
        go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._requests = requests
        self._go_on = go_on
        self._first = True

    def next(self, previous: Done | None) -> Send | None:
        """Return the next request: due at the start for the first, at once for the others."""
        del previous
        if not self._go_on():
            return None
        request = next(self._requests, None)
        if request is None:
            return None
        due_ns = 0 if self._first else None
        self._first = False
        return Send(request, due_ns)


class Arrivals:
    """The due times of an open loop, in order, shared by all of its workers.

    A worker takes the next one as soon as it is free and waits for it, so the requests that wait
    are always the earliest ones, and one that nobody has taken shortly before it is due means that
    every worker is busy: the generator then adds one.
    """

    __slots__ = ("_sends", "taken")

    def __init__(self, requests: Sequence[Outgoing], due_ns: Sequence[int]) -> None:
        """Take requests with their due offsets from the start, ns. ValueError if not in order."""
        if any(later < earlier for earlier, later in pairwise(due_ns)):
            raise ValueError("due times must not decrease")
        self._sends = [Send(r, due) for r, due in zip(requests, due_ns, strict=True)]
        self.taken = 0

    @property
    def sends(self) -> Sequence[Send]:
        """All of them, taken or not."""
        return self._sends

    def take(self) -> Send | None:
        """Return the next request, or None when all are taken."""
        if self.taken >= len(self._sends):
            return None
        self.taken += 1
        return self._sends[self.taken - 1]

    def due_ns(self, ahead: int = 0) -> int | None:
        """Return when the request is due that comes `ahead` places after the next, or None."""
        place = self.taken + ahead
        return (self._sends[place].due_ns or 0) if place < len(self._sends) else None

    @property
    def last_due_ns(self) -> int:
        """When the last request is due, 0 where there is none."""
        return (self._sends[-1].due_ns or 0) if self._sends else 0

    def worker(self) -> Script:
        """Return the script of one more worker."""
        return _Queued(self)


class _Queued:
    """An open loop's worker: takes what is due next, until nothing is left."""

    __slots__ = ("_arrivals",)

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def next(self, previous: Done | None) -> Send | None:
        """Return the next request that nobody has taken."""
        del previous
        return self._arrivals.take()

"""What a worker does next: a script is asked after every response, and says send or stop.

One loop serves every kind of load. A burst is N scripts with one request each; a closed loop
is N scripts that go on until told to stop; arrivals by schedule share one queue of due times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

    __slots__ = ("_send",)

    def __init__(self, request: Outgoing, due_ns: int = 0) -> None:
        self._send: Send | None = Send(request, due_ns)

    def next(self, previous: Done | None) -> Send | None:
        """Return the one request the first time."""
        del previous
        send, self._send = self._send, None
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

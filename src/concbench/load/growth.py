"""An open loop's workers: one more whenever a request is nearly due and nobody is free for it.

A fixed number of workers would be a hidden cap on what is in flight: requests would wait in the
client, unseen by whoever reads the latencies.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from concbench.clock import now_ns
from concbench.errors import UsageError
from concbench.load.script import Arrivals, Script
from concbench.load.stream import RawRequest, Stream

LEAD_NS = 50_000_000
"""How long before a request is due a connection for it is opened."""

CONNECTING_AT_ONCE = 64
"""A listen queue is finite (often 128): more at once would be refused or resent late."""

GIVE_UP_S = 1.0


class Grower(Protocol):
    """What growing needs of the generator."""

    loop: asyncio.AbstractEventLoop
    requests: list[RawRequest]
    start_ns: int

    def add_worker(self, script: Script) -> Stream:
        """Add a worker. Raises UsageError where no more files can be open."""
        ...


class Growth:
    """Watches the queue. `added` workers so far; `refused` says why no more could be added."""

    def __init__(self, host: Grower, arrivals: Arrivals) -> None:
        self._host = host
        self._arrivals = arrivals
        self._connecting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.added = 0
        self.refused: str | None = None

    def watch(self) -> None:
        """Add workers for what is nearly due, and look again when the next request is."""
        while not self._ended and self.refused is None:
            due_ns = self._arrivals.due_ns(len(self._connecting))
            if due_ns is None:
                return
            left_ns = self._host.start_ns + due_ns - LEAD_NS - now_ns()
            if left_ns > 0:
                self._timer = self._host.loop.call_later(left_ns / 1e9 + 1e-3, self.watch)
                return
            if len(self._connecting) >= CONNECTING_AT_ONCE:
                return  # looked at again when one of them is connected
            self._add()

    def _add(self) -> None:
        try:
            stream = self._host.add_worker(self._arrivals.worker())
        except UsageError as error:
            self.refused = str(error)
            return
        self.added += 1
        task = self._host.loop.create_task(self._begin(stream))
        self._connecting.add(task)

    async def _begin(self, stream: Stream) -> None:
        await stream.connect()
        self._connecting -= {asyncio.current_task()}
        if self._ended or stream.ended:
            return
        stream.advance(None)
        if self._timer is not None:
            self._timer.cancel()
        self.watch()

    async def end(self) -> None:
        """Stop watching; wait shortly for connections that are being opened."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting:
            _, late = await asyncio.wait(self._connecting, timeout=GIVE_UP_S)
            for task in late:
                task.cancel()

    def unsent(self, end_ns: int) -> list[RawRequest]:
        """Return a record of each request that was due by then and that no worker could take."""
        found: list[RawRequest] = []
        while (send := self._arrivals.take()) is not None:
            due_ns = self._host.start_ns + (send.due_ns or 0)
            if due_ns > end_ns:
                break
            found.append(
                RawRequest(
                    number=len(self._host.requests) + len(found),
                    worker=-1,
                    prompt=send.request.prompt,
                    stream=send.request.stream,
                    asked_output_tok=send.request.asked_output_tok,
                    due_ns=due_ns,
                    end_ns=end_ns,
                    ending="stopped" if self.refused is None else "client_limit",
                    detail=self.refused,
                )
            )
        return found

"""Which sockets can be read or written: an epoll of our own, itself watched by the event loop.

uvloop drops the callback when a socket's error arrives together with its data (libuv reports it
as a bad descriptor and stops watching): a stream that the server resets would never end. Our own
epoll reports errors as what they are, and one wake-up serves all sockets that are ready.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

Callback = Callable[[], None]


class Poller:
    """Calls back when a descriptor is readable, writable or broken."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}

    def watch(self, fd: int, callback: Callback) -> None:
        """Call back whenever `fd` is readable or broken."""
        self._readers[fd] = callback
        self._update(fd)

    def watch_writing(self, fd: int, callback: Callback) -> None:
        """Call back whenever `fd` takes bytes or is broken."""
        self._writers[fd] = callback
        self._update(fd)

    def unwatch_writing(self, fd: int) -> None:
        """Stop calling back for writing; nothing where nobody waited."""
        if self._writers.pop(fd, None) is not None:
            self._update(fd)

    def forget(self, fd: int) -> None:
        """Stop calling back. To be called before the descriptor is closed."""
        known = self._readers.pop(fd, None) is not None
        if self._writers.pop(fd, None) is not None or known:
            self._update(fd)

    async def ready(self, fd: int, *, writing: bool = False) -> None:
        """Wait until `fd` can be read, or written; only where nobody watches it otherwise."""
        waiter = self._loop.create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        (self.watch_writing if writing else self.watch)(fd, wake)
        try:
            await waiter
        finally:
            self.forget(fd)

    def close(self) -> None:
        """Forget everything."""
        for fd in {*self._readers, *self._writers}:
            self.forget(fd)

    def _update(self, fd: int) -> None:
        raise NotImplementedError


class EpollPoller(Poller):
    """Linux."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._epoll = select.epoll()
        self._known: set[int] = set()
        loop.add_reader(self._epoll.fileno(), self._ready)

    def _ready(self) -> None:
        # Level-triggered: what is left out here, or is not drained, is reported again.
        readers, writers, plain = self._readers, self._writers, select.EPOLLIN
        for fd, events in self._epoll.poll(0):
            if events != plain and fd in writers and events & ~plain:
                writers[fd]()
            elif (read := readers.get(fd)) is not None:
                read()

    def _update(self, fd: int) -> None:
        mask = (select.EPOLLIN if fd in self._readers else 0) | (
            select.EPOLLOUT if fd in self._writers else 0
        )
        if not mask:
            self._known.discard(fd)
            self._epoll.unregister(fd)
        elif fd in self._known:
            self._epoll.modify(fd, mask)
        else:
            self._known.add(fd)
            self._epoll.register(fd, mask)

    def close(self) -> None:
        """Forget everything and close the epoll."""
        super().close()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()


class LoopPoller(Poller):
    """Where there is no epoll: the event loop's own."""

    def _update(self, fd: int) -> None:
        if fd in self._readers:
            self._loop.add_reader(fd, self._readers[fd])
        else:
            self._loop.remove_reader(fd)
        if fd in self._writers:
            self._loop.add_writer(fd, self._writers[fd])
        else:
            self._loop.remove_writer(fd)


def poller(loop: asyncio.AbstractEventLoop) -> Poller:
    """Return the platform's poller."""
    return EpollPoller(loop) if hasattr(select, "epoll") else LoopPoller(loop)

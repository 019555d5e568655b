"""One connection and the request in flight on it: send, stamp, keep, find the end."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from concbench.clock import now_ns
from concbench.domain import StampKind
from concbench.load import stamps
from concbench.load.log import NO_STAMP, STAMP_BYTES, ReadLog
from concbench.load.poller import Poller
from concbench.load.script import Done, Outgoing, Script, Send
from concbench.wire.http import ResponseFramer

RECEIVE_BYTES = 1 << 18
CONNECT_TIMEOUT_S = 30.0

_OURS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)


@dataclass(slots=True)
class RawRequest:
    """One request as the generator saw it. Stamps are monotonic ns, None where they never came.

    `ending`: `complete`, `truncated`, `reset`, `connect_refused`, `connect_timeout`,
    `connect_failed`, `client_limit`, `tls`, `timeout`, `inactive`, `stopped`, or a framing error.
    `lost`: the process that carried it died. `stale`: the server had closed the kept connection
    without a word, so the request was sent again on a new one; `sent_ns` is of that second sending.
    """

    number: int
    worker: int
    prompt: int
    stream: bool
    asked_output_tok: int
    due_ns: int
    sent_ns: int | None = None
    send_done_ns: int | None = None
    connect_ns: int | None = None
    end_ns: int | None = None
    ending: str = "stopped"
    detail: str | None = None
    excess_bytes: int = 0
    lost: bool = False
    stale: bool = False


class Host(Protocol):
    """What a stream needs of the generator that owns it."""

    loop: asyncio.AbstractEventLoop
    poller: Poller
    log: ReadLog
    requests: list[RawRequest]
    start_ns: int
    stamp: StampKind
    spill_bytes: int
    min_rtt_ns: int | None
    buffer: bytearray
    view: memoryview

    def worker_ended(self) -> None:
        """Count a worker whose script has ended."""
        ...

    def wake_at(self, due_ns: int, wake: Callable[[], None]) -> None:
        """Call `wake` at that monotonic time."""
        ...


@dataclass(frozen=True, slots=True)
class Peer:
    """Where to connect. `address` is a resolved socket address; `tls` None means plain.

    `ca` and `insecure` are what `tls` was made of, for a process that must make its own.
    """

    family: int
    address: tuple[object, ...]
    hostname: str
    tls: ssl.SSLContext | None = None
    ca: Path | None = None
    insecure: bool = False


def kind_of(error: OSError) -> str:
    """Return the kind that a socket error is recorded as: the server's fault, or ours."""
    if error.errno in _OURS:
        return "client_limit"
    if isinstance(error, ConnectionRefusedError):
        return "connect_refused"
    if isinstance(error, (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)):
        return "reset"
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return "connect_timeout"
    return "connect_failed"


class Stream:
    """A worker: one socket, one script, one request in flight at most."""

    def __init__(self, host: Host, peer: Peer, worker: int, script: Script) -> None:
        self._host = host
        self._peer = peer
        self._worker = worker
        self._script = script
        self._sock: socket.socket | None = None
        self._framer = ResponseFramer()
        self._unsent = memoryview(b"")
        self._request: Outgoing
        self.reads = 0
        self._connected_for: int | None = None
        self._connect_error: tuple[str, str] | None = None
        self._task: asyncio.Task[None] | None = None
        self._into = [host.buffer]
        self.current: RawRequest | None = None
        self.ended = False

    # -- connecting, outside the hot path ---------------------------------------------------

    async def connect(self) -> None:
        """Open the connection. A failure is kept and becomes the next request's ending."""
        began = now_ns()
        sock: socket.socket | None = None
        try:
            sock = socket.socket(self._peer.family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._host.stamp == "kernel":
                stamps.enable(sock)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._reach(sock)
                await self._secure(sock)
        except OSError as error:
            if sock is not None:
                sock.close()
            self._connect_error = (kind_of(error), str(error))
            return
        self._connect_error = None
        self._connected_for = now_ns() - began
        self._sock = sock
        self._host.poller.watch(sock.fileno(), self._readable)

    async def _reach(self, sock: socket.socket) -> None:
        """Connect, as `loop.sock_connect` does, but through our own poller."""
        failed = sock.connect_ex(self._peer.address)
        if failed == errno.EINPROGRESS:
            await self._host.poller.ready(sock.fileno(), writing=True)
            failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            raise OSError(failed, os.strerror(failed))

    async def _secure(self, sock: socket.socket) -> None:
        """Plain connections need no more than the connection."""

    # -- the cycle: script, due, send --------------------------------------------------------

    def advance(self, previous: Done | None) -> None:
        """Ask the script what to do next, and do it."""
        send = self._script.next(previous)
        if send is None:
            self.ended = True
            self.close()
            self._host.worker_ended()
            return
        now = now_ns()
        due_ns = now if send.due_ns is None else self._host.start_ns + send.due_ns
        self.current = RawRequest(
            number=len(self._host.requests),
            worker=self._worker,
            prompt=send.request.prompt,
            stream=send.request.stream,
            asked_output_tok=send.request.asked_output_tok,
            due_ns=due_ns,
        )
        self._host.requests.append(self.current)
        if due_ns > now:
            self._host.wake_at(due_ns, lambda: self._start(send))
        else:
            self._start(send)

    def _start(self, send: Send) -> None:
        if self.current is None:  # stopped while waiting
            return
        if self._sock is not None:
            self._send(send.request)
        elif self._connect_error is not None:
            kind, detail = self._connect_error
            self._connect_error = None
            self.finish(now_ns(), kind, detail)
        else:
            self._task = self._host.loop.create_task(self._reconnect(send))

    async def _reconnect(self, send: Send) -> None:
        await self.connect()
        self._task = None
        self._start(send)

    def _send(self, request: Outgoing) -> None:
        current = self.current
        assert current is not None
        current.connect_ns, self._connected_for = self._connected_for, None
        self._request = request
        self._framer = ResponseFramer()
        self.reads = 0
        self._unsent = memoryview(self._encode(request.payload))
        current.sent_ns = now_ns()
        self._push()

    def _encode(self, payload: bytes) -> bytes:
        return payload

    def _push(self) -> None:
        """Send what is left of the request; go on when the socket takes more."""
        sock, current = self._sock, self.current
        if sock is None or current is None:
            return
        try:
            sent = sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lost(error)
            return
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._host.poller.watch_writing(sock.fileno(), self._push)
            return
        if current.send_done_ns is None:
            current.send_done_ns = now_ns()
            self._host.poller.unwatch_writing(sock.fileno())

    # -- the hot path: one call a read ---------------------------------------------------------

    def _readable(self) -> None:
        host = self._host
        try:
            size, ancillary, _, _ = self._sock.recvmsg_into(self._into, 64)  # type: ignore[union-attr]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error)
            return
        user_ns = now_ns()
        if not size:
            self._closed_by_peer(user_ns)
            return
        self._keep(user_ns, ancillary, host.buffer, size, host.view[:size])

    def _keep(
        self,
        user_ns: int,
        ancillary: list[tuple[int, int, bytes]],
        data: bytes | bytearray,
        size: int,
        view: memoryview | bytes,
    ) -> None:
        """Log one read and see whether it ends the response."""
        current = self.current
        if current is None or current.sent_ns is None:
            self._unasked(size)
            return
        log = self._host.log
        log.request.append(current.number)
        log.user_ns.append(user_ns)
        log.size.append(size)
        stamp = ancillary[0][2] if ancillary else NO_STAMP
        log.kernel += stamp if len(stamp) == STAMP_BYTES else NO_STAMP
        payload = log.payload
        payload += view
        if len(payload) > self._host.spill_bytes:
            log.spill()
        self.reads += 1
        if self._framer.feed(data, size):
            self._responded(user_ns)

    # -- endings -----------------------------------------------------------------------------

    def _responded(self, user_ns: int) -> None:
        framer, current = self._framer, self.current
        assert current is not None
        current.excess_bytes = framer.excess
        self._note_rtt()
        if not framer.keep_alive or framer.excess:
            self._drop_socket()
        self.finish(user_ns, "complete" if framer.complete else framer.error or "bad_framing")

    def _closed_by_peer(self, user_ns: int) -> None:
        self._note_rtt()
        self._drop_socket()
        if self.current is None or self.current.sent_ns is None or self._sent_again():
            return
        ended = self._framer.eof()
        self.finish(user_ns, "complete" if ended else self._framer.error or "truncated")

    def _lost(self, error: OSError) -> None:
        self._drop_socket()
        if self.current is None or self.current.sent_ns is None or self._sent_again():
            return
        kind = kind_of(error)
        self.finish(now_ns(), "reset" if kind == "connect_failed" else kind, str(error))

    def _sent_again(self) -> bool:
        """Send the request on a new connection where a kept one was closed before any answer.

        Servers close kept connections when they like (llama.cpp after every stream, while it says
        keep-alive), and what was sent meanwhile was never read: RFC 9112, 9.3.1 and 9.6. On a new
        connection the same end is a failure.
        """
        current = self.current
        if current is None or current.connect_ns is not None or self.reads:
            return False
        current.sent_ns = current.send_done_ns = None
        current.stale = True
        self._task = self._host.loop.create_task(self._reconnect(Send(self._request)))
        return True

    def _unasked(self, size: int) -> None:
        """Bytes without a request: the last response went on after its end."""
        mine = [raw for raw in self._host.requests if raw.worker == self._worker and raw.end_ns]
        if mine:
            mine[-1].excess_bytes += size
        self._drop_socket()

    def finish(self, at_ns: int, ending: str, detail: str | None = None) -> None:
        """End the request in flight and go on with the script."""
        current, self.current = self.current, None
        if current is None:
            return
        current.end_ns, current.ending, current.detail = at_ns, ending, detail
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if ending == "stopped":
            self.ended = True
            return
        if ending != "complete":
            self._drop_socket()
        done = Done(current.number, at_ns, ending, self.reads)
        self._host.loop.call_soon(self._advance_unless_ended, done)

    def _advance_unless_ended(self, done: Done) -> None:
        if not self.ended:
            self.advance(done)

    def _note_rtt(self) -> None:
        rtt = stamps.min_rtt_ns(self._sock) if self._sock is not None else None
        host = self._host
        if rtt is not None and (host.min_rtt_ns is None or rtt < host.min_rtt_ns):
            host.min_rtt_ns = rtt

    def _drop_socket(self) -> None:
        if self._sock is None:
            return
        self._host.poller.forget(self._sock.fileno())
        self._sock.close()
        self._sock = None

    def close(self) -> None:
        """Close the connection and cancel what waits for it."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._drop_socket()

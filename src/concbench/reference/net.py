"""Sockets: accept, read with the kernel's stamp, write what fits, timers. One thread."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import ssl
import struct
from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path
from typing import Protocol

from concbench.clock import now_ns, realtime_offset_ns
from concbench.errors import PortTaken, UsageError
from concbench.reference.http import BadRequest, Request, parse_request

SO_TIMESTAMPNS = 35
"""Linux's number; the standard library has no name for it."""

_READ_BYTES = 256 * 1024
_STAMP = struct.Struct("@qq")
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_BLOCKED = (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError)


class Connection:
    """One accepted socket. `out` waits for room in the kernel, `held` for the proxy's timer."""

    __slots__ = (
        "closing",
        "fd",
        "handshaking",
        "held",
        "inbox",
        "need_bytes",
        "out",
        "received_kind",
        "received_ns",
        "sock",
        "stream",
    )

    def __init__(self, sock: socket.socket, *, handshaking: bool) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.inbox = bytearray()
        self.need_bytes = 0
        self.out = bytearray()
        self.held = bytearray()
        self.handshaking = handshaking
        self.closing = False
        self.received_ns = 0
        self.received_kind = "user"
        self.stream: object | None = None


class Handler(Protocol):
    """What the network calls."""

    def on_request(self, conn: Connection, request: Request) -> None:
        """Take a whole request; the connection is idle."""
        ...

    def on_gone(self, conn: Connection) -> None:
        """The peer went away or broke the protocol."""
        ...

    def tick(self, now: int) -> int | None:
        """Do what is due at `now` and return when the next thing is."""
        ...


class Network:
    """The listening socket and its connections."""

    def __init__(self, handler: Handler, *, coalesce_ns: int = 0) -> None:
        self.handler = handler
        self.connections: dict[int, Connection] = {}
        self.blocked_writes = 0
        self.min_wait_ns: Callable[[], int] = lambda: 0
        self._coalesce_ns = coalesce_ns
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._epoll = select.epoll()
        self._listener: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._watched: dict[int, Callable[[], None]] = {}
        self._offset_ns = 0
        self._offset_at_ns = 0
        self._stopping = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, _IN)

    def stop(self) -> None:
        """End `run` at once; safe in a signal handler and from another thread."""
        # The flag comes last: once it is set, the loop may close the descriptor at any moment.
        if self._wake_fd >= 0:
            os.eventfd_write(self._wake_fd, 1)
        self._stopping = True

    def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Bind and listen; return the port. Raises PortTaken or UsageError."""
        raise_file_limit()
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these; the listener also keeps the host's stamping switched on.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(f"port {port} on {host} is taken; give another --port") from None
            raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        except OverflowError:
            listener.close()
            raise UsageError(f"--port must be 0 to 65535, not {port}") from None
        listener.listen(8192)
        listener.setblocking(False)
        self._listener, self._tls = listener, tls
        self.watch(listener.fileno(), self._accept)
        return int(listener.getsockname()[1])

    def rest(self) -> None:
        """Close the port and reset every connection, as when the process is killed."""
        for conn in list(self.connections.values()):
            self.drop(conn, reset=True)
        if self._listener is not None:
            self._epoll.unregister(self._listener.fileno())
            self._watched.pop(self._listener.fileno(), None)
            self._listener.close()
            self._listener = None

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back whenever `fd` is readable. Raises PermissionError for a regular file."""
        self._epoll.register(fd, _IN)
        self._watched[fd] = callback

    def at(self, when_ns: int, callback: Callable[[], None]) -> None:
        """Call back once, at that time or soon after."""
        self._sequence += 1
        heappush(self._timers, (when_ns, self._sequence, callback))

    def run(self) -> None:
        """Serve until `stop` is called, then close everything."""
        timers = self._timers
        try:
            while not self._stopping:
                now = now_ns()
                # In the order of their times, so that lateness cannot swap what was planned.
                while timers and timers[0][0] <= now:
                    self.handler.tick(timers[0][0])
                    heappop(timers)[2]()
                due = self.handler.tick(now)
                if timers and (due is None or timers[0][0] < due):
                    due = timers[0][0]
                self._wait(due)
        finally:
            self.close()

    def write(self, conn: Connection, data: bytes) -> None:
        """Send now what fits and keep the rest; the proxy, if any, holds it first."""
        if self._coalesce_ns:
            if not conn.held:
                self.at(now_ns() + self._coalesce_ns, lambda: self._flush(conn))
            conn.held += data
            return
        self._send(conn, data)

    def end(self, conn: Connection) -> None:
        """Close the connection once all is written."""
        conn.closing = True
        if not conn.out and not conn.held:
            self.drop(conn)

    def half_close(self, conn: Connection) -> None:
        """End our direction only."""
        try:
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.drop(conn)

    def drop(self, conn: Connection, *, reset: bool = False) -> None:
        """Close at once, with RST where asked for. Safe to call twice."""
        if self.connections.pop(conn.fd, None) is None:
            return
        if reset:
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # TLS would send its own farewell first; the file descriptor alone gives the bare RST.
            socket.socket(fileno=conn.sock.detach()).close()
        else:
            conn.sock.close()
        self.handler.on_gone(conn)

    def resume(self, conn: Connection) -> None:
        """Look for a request that came while the connection was busy."""
        if conn.inbox and conn.fd in self.connections:
            self._parse(conn)

    def close(self) -> None:
        """Close every socket."""
        for conn in list(self.connections.values()):
            self.drop(conn)
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._wake_fd >= 0:
            self._epoll.close()
            wake_fd, self._wake_fd = self._wake_fd, -1
            os.close(wake_fd)

    def _wait(self, due_ns: int | None) -> None:
        timeout_ns = 1_000_000_000 if due_ns is None else due_ns - now_ns()
        floor_ns = self.min_wait_ns()
        if floor_ns and 0 < timeout_ns < floor_ns:
            timeout_ns = floor_ns
        if timeout_ns > 0:
            # epoll alone rounds up to whole milliseconds.
            select.select([self._epoll], (), (), min(timeout_ns, 1_000_000_000) / 1e9)
        for fd, mask in self._epoll.poll(0):
            conn = self.connections.get(fd)
            if conn is None:
                watcher = self._watched.get(fd)
                if watcher is not None:
                    watcher()
                continue
            if mask & _OUT:
                self._drain(conn)
            if mask & ~_OUT and conn.fd in self.connections:
                self._read(conn)

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                return  # the peer was gone already, or no descriptor is left: the client sees it
            sock.setblocking(False)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            conn = Connection(sock, handshaking=self._tls is not None)
            self.connections[conn.fd] = conn
            self._epoll.register(conn.fd, _IN)

    def _read(self, conn: Connection) -> None:
        try:
            if conn.handshaking:
                conn.sock.do_handshake()  # type: ignore[attr-defined]
                conn.handshaking = False
            data = self._receive(conn)
        except _BLOCKED:
            return
        except OSError:
            self.drop(conn)
            return
        if not data:
            self.drop(conn)
            return
        if conn.closing:
            return
        conn.inbox += data
        if conn.stream is None and len(conn.inbox) >= conn.need_bytes:
            self._parse(conn)

    def _receive(self, conn: Connection) -> bytes:
        if self._tls is not None:
            data = b"".join(iter_tls(conn.sock))
            conn.received_ns, conn.received_kind = now_ns(), "user"
            return data
        data, ancillary, _, _ = conn.sock.recvmsg(_READ_BYTES, 64)
        now = now_ns()
        conn.received_ns, conn.received_kind = now, "user"
        for level, kind, value in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(value) >= 16:
                seconds, nanos = _STAMP.unpack(value[:16])
                stamp = seconds * 1_000_000_000 + nanos - self._realtime_offset(now)
                # A step of the wall clock would put the stamp after the read: do not believe it.
                if now - 10_000_000_000 < stamp <= now + 100_000:
                    conn.received_ns, conn.received_kind = stamp, "kernel"
        return data

    def _realtime_offset(self, now: int) -> int:
        if now - self._offset_at_ns > 1_000_000_000 or not self._offset_at_ns:
            self._offset_ns, self._offset_at_ns = realtime_offset_ns(), now
        return self._offset_ns

    def _parse(self, conn: Connection) -> None:
        try:
            found = parse_request(conn.inbox)
        except BadRequest:
            self.write(conn, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            self.end(conn)
            return
        if isinstance(found, int):
            if conn.need_bytes == 0 and found and b"100-continue" in conn.inbox[:4096].lower():
                self._send(conn, b"HTTP/1.1 100 Continue\r\n\r\n")
            conn.need_bytes = found
            return
        conn.need_bytes = 0
        del conn.inbox[: found.size_bytes]
        self.handler.on_request(conn, found)

    def _flush(self, conn: Connection) -> None:
        if conn.fd in self.connections and conn.held:
            data, conn.held = bytes(conn.held), bytearray()
            self._send(conn, data)

    def _send(self, conn: Connection, data: bytes) -> None:
        if conn.fd not in self.connections:
            return
        if conn.out:
            conn.out += data
            return
        try:
            sent = conn.sock.send(data)
        except _BLOCKED:
            sent = 0
        except OSError:
            self.drop(conn)
            return
        if sent < len(data):
            self.keep(conn, data[sent:])
        elif conn.closing and not conn.held:
            self.drop(conn)

    def keep(self, conn: Connection, data: bytes) -> None:
        """Store what the kernel would not take, and go on when it will."""
        self.blocked_writes += 1
        conn.out += data
        self._epoll.modify(conn.fd, _IN | _OUT)

    def _drain(self, conn: Connection) -> None:
        try:
            sent = conn.sock.send(bytes(conn.out[:_READ_BYTES]))
        except _BLOCKED:
            return
        except OSError:
            self.drop(conn)
            return
        del conn.out[:sent]
        if not conn.out:
            self._epoll.modify(conn.fd, _IN)
            if conn.closing and not conn.held:
                self.drop(conn)


def iter_tls(sock: socket.socket) -> list[bytes]:
    """Read all that a TLS socket has; an empty list means that the peer ended."""
    out: list[bytes] = []
    while True:
        try:
            data = sock.recv(_READ_BYTES)
        except ssl.SSLWantReadError:
            if not out:
                raise
            return out
        if not data:
            return out
        out.append(data)


def raise_file_limit() -> None:
    """Allow as many open files as the system lets us: each stream needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def sharpen_timer() -> None:
    """Ask for wake-ups without the usual 50 µs of slack; where that is refused, they come late."""
    try:
        Path("/proc/self/timerslack_ns").write_text("1", encoding="ascii")
    except OSError:
        return


def tls_context(cert: str, key: str) -> ssl.SSLContext:
    """Return a server context. Raises UsageError for files that are no certificate and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:
        raise UsageError(f"cannot use --tls-cert {cert} with --tls-key {key}: {error}") from None
    return context

"""Small-message round trips over TCP, against an echo server of our own.

A connection begins with one line, `concbench-echo SIZE`; the server answers `ok`, then returns
every SIZE bytes that it is sent. Both ends switch Nagle's algorithm off.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from concbench.clock import now_ns
from concbench.errors import PortTaken, Unreachable

PORT = 5202
LARGEST_BYTES = 16 << 20
WARMUP = 20
_GREETING = b"concbench-echo "


class EchoServer:
    """Serves until `close`; a thread a connection. Raises PortTaken where the port is in use."""

    def __init__(self, address: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((address, port))
            self._socket.listen()
        except OSError as error:
            self._socket.close()
            raise PortTaken(f"cannot listen on {address}:{port}: {error.strerror}") from None
        self.port = int(self._socket.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return  # closed
            self._open.add(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            size = _size_of(_line(peer))
            if size is None:
                return
            peer.sendall(b"ok\n")
            buffer = bytearray(size)
            while _fill(peer, buffer):
                peer.sendall(buffer)
        except OSError:
            pass  # the other end is gone: its own affair
        finally:
            self._open.discard(peer)
            peer.close()

    def close(self) -> None:
        """Stop listening and end every connection."""
        for each in (self._socket, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


def round_trips_ns(
    host: str,
    port: int,
    size_bytes: int,
    count: int,
    *,
    timeout_s: float = 10.0,
    clock_ns: Callable[[], int] = now_ns,
) -> list[int]:
    """Return the times of `count` round trips of `size_bytes`, after 20 that are not counted.

    From the first byte handed to the kernel to the last byte read back. Raises Unreachable.
    """
    payload, buffer = bytes(size_bytes), bytearray(size_bytes)
    try:
        with socket.create_connection((host, port), timeout_s) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.sendall(_GREETING + str(size_bytes).encode() + b"\n")
            if _line(peer) != b"ok":
                raise Unreachable(f"{host}:{port} is no echo server of concbench")
            times = []
            for _ in range(WARMUP + count):
                began = clock_ns()
                peer.sendall(payload)
                if not _fill(peer, buffer):
                    raise Unreachable(f"{host}:{port} closed the connection in between")
                times.append(clock_ns() - began)
            return times[WARMUP:]
    except TimeoutError:
        raise Unreachable(f"{host}:{port} did not answer within {timeout_s:g} s") from None
    except OSError as error:
        raise Unreachable(
            f"no echo server at {host}:{port} ({error.strerror or error}): "
            f"run `concbench link --serve` there"
        ) from None


def _size_of(line: bytes) -> int | None:
    text = line.removeprefix(_GREETING)
    if text == line or not text.isdigit() or len(text) > 9:
        return None
    size = int(text)
    return size if 1 <= size <= LARGEST_BYTES else None


def _line(peer: socket.socket) -> bytes:
    """Return what comes before a newline, at most 64 bytes."""
    found = bytearray()
    while len(found) < 64:
        byte = peer.recv(1)
        if byte in (b"", b"\n"):
            break
        found += byte
    return bytes(found)


def _fill(peer: socket.socket, buffer: bytearray) -> bool:
    """Read until the buffer is full; False at the end of the stream."""
    view, at = memoryview(buffer), 0
    while at < len(buffer):
        got = peer.recv_into(view[at:])
        if not got:
            return False
        at += got
    return True

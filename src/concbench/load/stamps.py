"""Kernel receive stamps: switched on per socket, kept alive host-wide."""

from __future__ import annotations

import atexit
import functools
import socket
import sys

from concbench.clock import sleep_s
from concbench.domain import StampKind

SO_TIMESTAMPNS = 35
"""Linux's number; CPython has no name for it. Control message type and option are the same."""

ANCILLARY_BYTES = 64
_TCP_INFO_BYTES = 192
_MIN_RTT_AT = 148  # struct tcp_info, tcpi_min_rtt: u32, microseconds


def enable(sock: socket.socket) -> bool:
    """Ask for receive stamps on this socket; return whether the platform takes the option."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


@functools.cache
def hold() -> socket.socket:
    """Keep one stamped socket open for the life of the process.

    The kernel stamps packets only while some socket wants it, and switches that on lazily, some
    milliseconds after the first asks: without a socket that always wants it, the first reads of
    a round come unstamped.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    atexit.register(sock.close)
    enable(sock)
    return sock


@functools.cache
def available(tries: int = 40, pause_s: float = 0.005) -> StampKind:
    """Return `kernel` when bytes sent over loopback come back stamped within some tries."""
    if not sys.platform.startswith("linux"):
        return "user"
    hold()
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname(), timeout=2) as sender,
        ):
            receiver, _ = listener.accept()
            with receiver:
                receiver.settimeout(2)
                enable(receiver)
                for _ in range(tries):
                    sender.sendall(b"x")
                    if receiver.recvmsg(1, ANCILLARY_BYTES)[1]:
                        return "kernel"
                    sleep_s(pause_s)
    except OSError:
        pass
    return "user"


def min_rtt_ns(sock: socket.socket) -> int | None:
    """Return the smallest round trip that the kernel has seen on this connection, or None."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except (OSError, AttributeError):
        return None
    if len(info) < _MIN_RTT_AT + 4:
        return None
    micros = int.from_bytes(info[_MIN_RTT_AT : _MIN_RTT_AT + 4], sys.byteorder)
    return micros * 1000 if 0 < micros < 0xFFFFFFFF else None

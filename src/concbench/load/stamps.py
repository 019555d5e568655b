"""Kernel receive stamps: switched on per socket, kept alive host-wide, decoded after the round."""

from __future__ import annotations

import atexit
import functools
import socket
import struct
import sys
from array import array

from concbench.clock import sleep_s
from concbench.domain import StampKind
from concbench.load.log import STAMP_BYTES

SO_TIMESTAMPNS = 35
"""Linux's number; CPython has no name for it. Control message type and option are the same."""

ANCILLARY_BYTES = 64
_TIMESPEC = struct.Struct("=qq")
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


def to_monotonic(kernel: bytes | bytearray, offsets: list[tuple[int, int]]) -> array[int]:
    """Decode raw stamps to monotonic nanoseconds, 0 where there was none.

    `offsets` are samples `(monotonic_ns, realtime − monotonic in ns)`, at least one, in order;
    between two of them the offset is interpolated, outside it is held.
    """
    stamps = array("q")
    at = 0
    for start in range(0, len(kernel), STAMP_BYTES):
        seconds, nanos = _TIMESPEC.unpack_from(kernel, start)
        if not seconds:
            stamps.append(0)
            continue
        real_ns = seconds * 1_000_000_000 + nanos
        while at + 1 < len(offsets) and real_ns - offsets[at + 1][1] >= offsets[at + 1][0]:
            at += 1
        stamps.append(real_ns - _offset_at(real_ns - offsets[at][1], at, offsets))
    return stamps


def _offset_at(mono_ns: int, at: int, offsets: list[tuple[int, int]]) -> int:
    when, offset = offsets[at]
    if at + 1 >= len(offsets) or mono_ns <= when:
        return offset
    later, later_offset = offsets[at + 1]
    # Stamps come in order of reading, which is nearly but not strictly the order of time; a small
    # step back stays within the last segment and errs by less than the offset's own drift.
    return offset + (later_offset - offset) * (mono_ns - when) // max(1, later - when)

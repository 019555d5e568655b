"""Messages over pipes between a generator's process and the one that started it.

Down: the job, then the start (8 bytes, monotonic ns), then perhaps `STOP`, which may also come in
place of the start. Up: frames of a kind (one byte), a length (4 bytes) and the body.
"""

from __future__ import annotations

import os
import struct

READY, REPORT, NEWS, RESULT, REFUSED = b"R", b"P", b"N", b"E", b"X"
_HEAD = struct.Struct("=cI")
_START = struct.Struct("=q")
HEAD_BYTES = _HEAD.size
START_BYTES = _START.size
STOP = _START.pack(-1)


def frame(kind: bytes, body: bytes = b"") -> bytes:
    """Return a frame."""
    return _HEAD.pack(kind, len(body)) + body


def start_message(start_ns: int) -> bytes:
    """Return the bytes that say when to start."""
    return _START.pack(start_ns)


def start_of(message: bytes) -> int | None:
    """Return the start that a message says; None for `STOP`."""
    start_ns = int(_START.unpack(message)[0])
    return None if start_ns < 0 else start_ns


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes to a blocking descriptor. Raises OSError where nobody reads."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_exactly(fd: int, count: int) -> bytes:
    """Read that many bytes; raises EOFError where the other side closed before."""
    parts: list[bytes] = []
    while count:
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            raise EOFError("the other side of the pipe has closed")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Frames:
    """Frames out of bytes as they come."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Take bytes; return the frames that they complete, as kind and body."""
        self._data += data
        found: list[tuple[bytes, bytes]] = []
        while len(self._data) >= HEAD_BYTES:
            kind, length = _HEAD.unpack_from(self._data)
            if len(self._data) < HEAD_BYTES + length:
                break
            found.append((kind, bytes(self._data[HEAD_BYTES : HEAD_BYTES + length])))
            del self._data[: HEAD_BYTES + length]
        return found

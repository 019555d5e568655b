"""What is kept of every read: two stamps, a size and the bytes. 32 bytes a read, and the payload.

The payload of a round lies in one buffer in order of arrival and is spilled to an unlinked
temporary file as it grows, so that memory does not grow with it.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from typing import IO

SPILL_BYTES = 32 << 20
STAMP_BYTES = 16
NO_STAMP = bytes(STAMP_BYTES)


class ReadLog:
    """Columns with one row a read, appended to on the hot path.

    `request` is the request's number in the round, `user_ns` our monotonic stamp, `size` the
    bytes read. `kernel` holds the raw `struct timespec` (two native int64: s, ns of
    CLOCK_REALTIME) of each read, zeros where the kernel gave none; it is decoded after the round.
    """

    __slots__ = ("_file", "kernel", "payload", "request", "size", "spilled_bytes", "user_ns")

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self.request = array("i")
        self.user_ns = array("q")
        self.size = array("i")
        self.kernel = bytearray()
        self.payload = bytearray()
        self.spilled_bytes = 0
        self._file = file

    def __len__(self) -> int:
        return len(self.request)

    @property
    def payload_bytes(self) -> int:
        """Bytes received so far."""
        return self.spilled_bytes + len(self.payload)

    def spill(self) -> None:
        """Move the payload buffer to the temporary file. Raises OSError when the disk is full."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="concbench-", buffering=0)  # noqa: SIM115
        self._file.write(self.payload)
        self.spilled_bytes += len(self.payload)
        self.payload.clear()

    def replay(self) -> Iterator[tuple[int, bytes]]:
        """Yield `(row, bytes)` of every read in order of arrival. Single pass, bounded memory."""
        if self._file is not None:
            if self.payload:
                self.spill()
            self._file.seek(0)
        buffered, position = memoryview(bytes(self.payload)), 0
        for row, size in enumerate(self.size):
            if self._file is None:
                yield row, bytes(buffered[position : position + size])
                position += size
                continue
            while len(buffered) - position < size:
                more = self._file.read(SPILL_BYTES)
                buffered, position = memoryview(bytes(buffered[position:]) + more), 0
            yield row, bytes(buffered[position : position + size])
            position += size

    def save(self, columns: IO[bytes]) -> None:
        """Spill the payload and write the columns, for `load` in another process."""
        self.spill()
        for column in (self.request, self.user_ns, self.size, self.kernel):
            columns.write(column)

    @classmethod
    def load(cls, columns: IO[bytes], payload: IO[bytes], rows: int) -> ReadLog:
        """Return a log of that many rows that was saved. Raises EOFError where some are missing."""
        log = cls(payload)
        columns.seek(0)
        for column in (log.request, log.user_ns, log.size):
            column.fromfile(columns, rows)
        log.kernel += columns.read(rows * STAMP_BYTES)
        if len(log.kernel) != rows * STAMP_BYTES:
            raise EOFError("the stamps of some reads are missing")
        log.spilled_bytes = sum(log.size)
        return log

    def close(self) -> None:
        """Drop payload and file; the stamps and the count of bytes stay."""
        self.spilled_bytes += len(self.payload)
        self.payload.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

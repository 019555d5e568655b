"""The file between observer and tool: raw records, one after the other, and a slot of last values.

The file begins with one fixed slot, overwritten in place, that says how far records are whole and
carries the values that a display wants. A record is a header (kind, flag, send and receive stamp,
status, length) and its body, compressed where that pays. Only the observer writes; a reader
believes the slot's `end`, so that a record that was being written when the observer died is never
seen.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields, replace
from typing import Literal, get_args

Kind = Literal["metrics", "slots", "activity", "log", "host", "gpu", "note"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_HEADER = struct.Struct("<BBqqiI")
_SLOT = struct.Struct("<qqqdddd6q")
_CRC = struct.Struct("<I")
SLOT_BYTES = 256
_COMPRESS_FROM_BYTES = 512
_TRIES = 5


@dataclass(frozen=True, slots=True)
class RawSample:
    """What was read, as it came. Stamps are monotonic ns: asked, and wholly received.

    `status` is the HTTP status; 0 means that no answer came, and `body` then says why. Records
    that are no answer (`log`, `host`, `gpu`, `note`) have status 200.
    """

    kind: Kind
    sent_ns: int
    received_ns: int
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Slot:
    """The last values, as the observer wrote them. Unknown values are NaN.

    `base` is how many bytes of older records were dropped, `end` where the next record goes;
    both make an offset (`base + end`) that never goes back. `log_at` is the position in the log.
    """

    base: int = 0
    end: int = SLOT_BYTES
    stamp_ns: int = 0
    running: float = float("nan")
    waiting: float = float("nan")
    generated_tok: float = float("nan")
    generated_tok_per_s: float = float("nan")
    scrapes: int = 0
    skipped: int = 0
    failed: int = 0
    lost: int = 0
    cpu_ns: int = 0
    log_at: int = -1


class Writer:
    """The observer's end of the file; safe to use from several threads."""

    def __init__(self, fd: int) -> None:
        """Go on where an earlier observer of the same file stopped."""
        self._fd = fd
        self._lock = threading.Lock()
        found = read_slot(fd)
        self._slot = found or Slot()
        self.resumed = found is not None
        self._publish()

    @property
    def slot(self) -> Slot:
        """The values last published."""
        return self._slot

    def add(
        self, kind: Kind, sent_ns: int, received_ns: int, body: bytes, status: int = 200
    ) -> None:
        """Append a record. A full disk loses it and counts it as lost; nothing is raised."""
        packed = len(body) >= _COMPRESS_FROM_BYTES
        payload = zlib.compress(body, 1) if packed else body
        head = _HEADER.pack(KINDS.index(kind), packed, sent_ns, received_ns, status, len(payload))
        with self._lock:
            try:
                written = os.pwrite(self._fd, head + payload, self._slot.end)
            except OSError:
                written = 0
            if written == len(head) + len(payload):
                self._slot = replace(self._slot, end=self._slot.end + written)
            else:
                self._slot = replace(self._slot, lost=self._slot.lost + 1)
            self._publish()

    def tell(self, **values: float) -> None:
        """Publish last values by the names of `Slot`."""
        with self._lock:
            self._slot = replace(self._slot, **values)  # type: ignore[arg-type]
            self._publish()

    def count(self, **steps: int) -> None:
        """Add to the slot's counters."""
        with self._lock:
            grown = {name: getattr(self._slot, name) + step for name, step in steps.items()}
            self._slot = replace(self._slot, **grown)
            self._publish()

    def drop(self) -> None:
        """Forget all records. Offsets go on from where they were."""
        with self._lock:
            dropped = self._slot.end - SLOT_BYTES
            self._slot = replace(self._slot, base=self._slot.base + dropped, end=SLOT_BYTES)
            self._publish()
            os.ftruncate(self._fd, SLOT_BYTES)

    def _publish(self) -> None:
        body = _SLOT.pack(*astuple(self._slot))
        try:
            os.pwrite(self._fd, body + _CRC.pack(zlib.crc32(body)), 0)
        except OSError:
            return


def read_slot(fd: int) -> Slot | None:
    """Return the slot; None before the first was written. A torn one is read again."""
    for _ in range(_TRIES):
        body = os.pread(fd, _SLOT.size + _CRC.size, 0)
        if len(body) < _SLOT.size + _CRC.size:
            return None
        if _CRC.unpack_from(body, _SLOT.size)[0] == zlib.crc32(body[: _SLOT.size]):
            return Slot(*_SLOT.unpack_from(body))
    return None


def read_records(fd: int, since: int) -> Iterator[RawSample]:
    """Yield the records from an offset (`base + end` of a slot) on, oldest first.

    What was dropped meanwhile is left out; an offset that is none ends the iteration.
    """
    slot = read_slot(fd)
    if slot is None:
        return
    position = max(SLOT_BYTES, since - slot.base)
    while position + _HEADER.size <= slot.end:
        head = os.pread(fd, _HEADER.size, position)
        if len(head) < _HEADER.size:
            return
        number, packed, sent_ns, received_ns, status, length = _HEADER.unpack(head)
        position += _HEADER.size
        if number >= len(KINDS) or packed > 1 or position + length > slot.end:
            return
        body = os.pread(fd, length, position)
        position += length
        try:
            body = zlib.decompress(body) if packed else body
        except zlib.error:
            continue
        yield RawSample(KINDS[number], sent_ns, received_ns, status, body)


def offset(slot: Slot | None) -> int:
    """Return the offset behind the last record."""
    return SLOT_BYTES if slot is None else slot.base + slot.end


assert len(fields(Slot)) == len(_SLOT.unpack(bytes(_SLOT.size)))
assert _SLOT.size + _CRC.size <= SLOT_BYTES

"""The engine's log: followed as it grows, whole lines only, then read by the engine's grammar.

A chunk is what came between two looks; its lines were written between its two stamps.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from concbench.domain import ServerSample
from concbench.engines.reading import number
from concbench.engines.spec import LogRecord
from concbench.observe.events import LOG_UNPARSED, RESTARTED, event
from concbench.observe.spool import RawSample

READ_BYTES: Final = 1 << 20
"""Read at one look at most; the rest waits for the next."""

PARTIAL_BYTES: Final = 1 << 16
LINE_CHARS: Final = 16_384
"""A longer line is cut: no known report is that long, and patterns must not crawl over blobs."""

_BREAKS = re.compile(r"[\r\n]+")
# uvicorn's access lines: they say that requests come, not what the engine does.
_ACCESS = re.compile(r'"[A-Z]+ /\S* HTTP/\d')
_PREFIXES = {"window": "log_", "spec": "log_", "cache": "log_"}


class Lines:
    """Cuts a stream of bytes after its last line break and keeps the rest for later."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the whole lines so far; an endless line is let go in pieces."""
        data = self._rest + data
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - cut > PARTIAL_BYTES:
            cut = len(data)
        self._rest = data[cut:]
        return data[:cut]

    def flush(self) -> bytes:
        """Return what is left of a file that will not go on."""
        rest, self._rest = self._rest, b""
        return rest + b"\n" if rest else b""


class FileTail:
    """Follows a file through rotation and truncation. A file that is not there yet is awaited."""

    def __init__(self, path: Path, offset: int | None) -> None:
        """`offset` None starts at the end of what is there now; a later file from its start."""
        self._path = path
        self._lines = Lines()
        self._fd: int | None = None
        self._at = 0
        self._open()
        if self._fd is not None:
            size = os.fstat(self._fd).st_size
            self._at = size if offset is None else min(offset, size)

    @property
    def position(self) -> int:
        """How far the file is read."""
        return self._at

    def read(self) -> bytes:
        """Return the whole lines that were added since the last call."""
        if self._fd is None:
            self._open()
            if self._fd is None:
                return b""
        if os.fstat(self._fd).st_size < self._at:
            self._at = 0
            return self._lines.flush() + self._more()
        lines = self._more()
        if not lines and self._rotated():
            # What was written just before the file was renamed comes first.
            lines = self._more() + self._lines.flush()
            self.close()
            self._open()
            lines += self._more() if self._fd is not None else b""
        return lines

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _more(self) -> bytes:
        assert self._fd is not None
        data = os.pread(self._fd, READ_BYTES, self._at)
        self._at += len(data)
        return self._lines.feed(data)

    def _open(self) -> None:
        with suppress(OSError):
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
            self._at = 0

    def _rotated(self) -> bool:
        assert self._fd is not None
        try:
            there = self._path.stat()
        except OSError:
            return False
        mine = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)


class CommandTail:
    """Follows the output of a command such as `docker logs -f NAME`, both of its streams.

    It is not started again when it ends: it would repeat what it has said.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """Raises OSError when the command cannot be started."""
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        self._fd = self._process.stdout.fileno()
        os.set_blocking(self._fd, False)
        self._lines = Lines()
        self.ended = False

    def read(self) -> bytes:
        """Return the whole lines that came since the last call."""
        found = bytearray()
        while not self.ended and len(found) < READ_BYTES:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                self.ended = True
                found += self._lines.flush()
            found += self._lines.feed(data)
        return bytes(found)

    def close(self) -> None:
        """End the command."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


ParseLine = Callable[[str], LogRecord | None]


def log_rows(records: Sequence[RawSample], parse: ParseLine) -> Iterator[ServerSample]:
    """Yield rows of the log's chunks.

    Windows, speculation and cache reports are called `log_NAME`, others `log_KIND_NAME`, with
    the engine's rank or the task as `key=` label. At the end `log_lines` and `log_matched` count;
    when nothing in a log that says something was understood, there is an event `log_unparsed`.
    The server's own list of requests does not count as saying something.
    """
    seen = matched = telling = 0
    for chunk in records:
        for line in _BREAKS.split(chunk.body.decode("utf-8", "replace")):
            if not line.strip():
                continue
            seen += 1
            record = parse(line[:LINE_CHARS])
            if record is None:
                telling += _ACCESS.search(line[:LINE_CHARS]) is None
                continue
            matched += 1
            telling += 1
            yield from _record_rows(record, chunk)
    if not records:
        return
    first, last = records[0], records[-1]
    counts = {"log_lines": seen, "log_matched": matched}
    for name, count in counts.items():
        yield _row(last, name, float(count))
    if telling and not matched:
        yield event(LOG_UNPARSED, first.sent_ns, last.received_ns, float(seen), "log")


def _record_rows(record: LogRecord, chunk: RawSample) -> Iterator[ServerSample]:
    if record.kind == "startup":
        if record.values.get("ready") is True:
            yield event(RESTARTED, chunk.sent_ns, chunk.received_ns, source="log")
        return
    prefix = _PREFIXES.get(record.kind, f"log_{record.kind}_")
    key = f"key={_plain(record.key)}" if record.key else ""
    for name, value in record.values.items():
        if isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                place = f"position={index}"
                yield from _number_row(
                    chunk, prefix + name, item, f"{key},{place}" if key else place
                )
        else:
            yield from _number_row(chunk, prefix + name, value, key)


def _number_row(chunk: RawSample, name: str, value: object, labels: str) -> Iterator[ServerSample]:
    known = float(value) if isinstance(value, bool) else _finite(value)
    if known is not None:
        yield _row(chunk, name, known, labels)


def _finite(value: object) -> float | None:
    return number(value) if isinstance(value, (int, float)) else None


def _row(chunk: RawSample, name: str, value: float, labels: str = "") -> ServerSample:
    return ServerSample(
        sent_ns=chunk.sent_ns,
        received_ns=chunk.received_ns,
        source="log",
        name=name,
        labels=labels,
        value=value,
    )


def _plain(text: str) -> str:
    return re.sub(r"[,=\s]+", "_", text)

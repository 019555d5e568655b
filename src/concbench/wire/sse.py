"""Server-sent events: body bytes in, events out, the same for any split of the bytes.

Follows the event stream format of the HTML standard (section 9.2.6) with three departures, each
for servers that exist: an event whose data is blank is skipped (pings), a line `error: {…}` is an
event of its own (older llama.cpp), and a complete data line at the end of the stream counts even
without the blank line that should follow it.
"""

from __future__ import annotations

from msgspec import Struct

_BOM = b"\xef\xbb\xbf"
_LF, _CR = 10, 13


class SseEvent(Struct, frozen=True, gc=False):
    """One event. `event` is `message` unless the server named it; `data` is as it was sent."""

    event: str
    data: bytes


class SseParser:
    """Parses one stream. Never raises, and takes time linear in the bytes however they are cut.

    `comments` counts lines that begin with a colon, `unusable` lines that are no field of the
    format (a stray HTML page, JSON without `data:`).
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_between",
        "_data",
        "_event",
        "_tail",
        "comments",
        "unusable",
    )

    def __init__(self) -> None:
        self.comments = 0
        self.unusable = 0
        self._tail = bytearray()
        self._data: list[bytes] = []
        self._event = ""
        self._after_cr = False
        self._at_start = True
        self._between = False

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take the next bytes of the body and return the events that they complete."""
        # A server that streams writes one event at a time and a read mostly holds just that.
        if (
            self._between
            and data[:7] == b"data: {"
            and data[-2:] == b"\n\n"
            and data.find(b"\n") == len(data) - 2
            and b"\r" not in data
        ):
            return [SseEvent("message", data[6:-2])]
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == _LF:
                data = data[1:]
        if not data:
            return []
        lines = data.splitlines()
        last = data[-1]
        rest = b"" if last in (_LF, _CR) else lines.pop()
        self._after_cr = last == _CR
        if lines and self._tail:
            self._tail += lines[0]
            lines[0] = bytes(self._tail)
            self._tail.clear()
        events: list[SseEvent] = []
        self._take(lines, events)
        self._tail += rest
        self._between = not (
            self._at_start or self._after_cr or self._tail or self._data or self._event
        )
        return events

    def close(self) -> list[SseEvent]:
        """Say that the stream has ended and return what is still due.

        The standard drops an event that no blank line ends, but servers that leave it out exist,
        so a data line that is there in full counts. One without even its line end counts when it
        ends as JSON or `[DONE]` would.
        """
        events: list[SseEvent] = []
        tail = bytes(self._tail)
        self._tail.clear()
        if tail.rstrip().endswith((b"}", b"]")):
            self._take([tail], events)
        self._dispatch(events)
        return events

    def _take(self, lines: list[bytes], events: list[SseEvent]) -> None:
        """Take whole lines without their ends."""
        if self._at_start and lines:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        for line in lines:
            if not line:
                self._dispatch(events)
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line[0] == ord(":"):
                self.comments += 1
            else:
                self._take_field(line, events)

    def _take_field(self, line: bytes, events: list[SseEvent]) -> None:
        """Take a line that is neither data, comment nor blank."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"error":
            self._dispatch(events)
            self._event = "error"
            self._data.append(value)
        elif name == b"data":
            self._data.append(b"")
        elif name not in (b"id", b"retry"):
            self.unusable += 1

    def _dispatch(self, events: list[SseEvent]) -> None:
        """End the event that is being read."""
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            if data and not data.isspace():
                events.append(SseEvent(self._event or "message", data))
            self._data.clear()
        self._event = ""

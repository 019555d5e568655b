"""When one request has had enough: too long in all, or too long without a byte.

Looked at from the generator's tick, every 50 ms: a read pays nothing for it but the count of reads
that a stream keeps anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from concbench.load.stream import Stream

TIMEOUT = "timeout"
INACTIVE = "inactive"

LATE_NS = 500_000_000
"""A look that comes so late after the last one says nothing: what came meanwhile is not read."""


class Limits:
    """Ends requests after `timeout_ns` in all, and after `inactivity_ns` without a byte.

    None is no limit. The total counts from the sending, or from the due time where a request could
    not be sent; the silence from the end of the sending and then from the last read, which is known
    to a tick.
    """

    def __init__(self, timeout_ns: int | None, inactivity_ns: int | None) -> None:
        self._timeout_ns = timeout_ns
        self._inactivity_ns = inactivity_ns
        self._heard: dict[Stream, tuple[int, int, int]] = {}
        self._looked_ns: int | None = None

    def look(self, now: int, streams: Sequence[Stream]) -> None:
        """End what is over a limit at that monotonic time, ns."""
        if self._timeout_ns is not None:
            self._expire(now, self._timeout_ns, streams)
        if self._inactivity_ns is not None:
            late = self._looked_ns is not None and now - self._looked_ns > LATE_NS
            self._looked_ns = now
            if not late:
                self._quieten(now, self._inactivity_ns, streams)

    def _expire(self, now: int, limit_ns: int, streams: Sequence[Stream]) -> None:
        for stream in streams:
            current = stream.current
            if current is None:
                continue
            since = current.sent_ns if current.sent_ns is not None else current.due_ns
            if now - since > limit_ns:
                stream.finish(now, TIMEOUT)

    def _quieten(self, now: int, limit_ns: int, streams: Sequence[Stream]) -> None:
        for stream in streams:
            silent_ns = now - self._last_heard(stream, now)
            if silent_ns > limit_ns:
                reads = stream.reads
                told = f"no byte for {silent_ns / 1e9:.1f} s after {reads} reads"
                stream.finish(now, INACTIVE, told)

    def _last_heard(self, stream: Stream, now: int) -> int:
        """Return since when a request in flight is silent; now where none is."""
        current = stream.current
        if current is None or current.sent_ns is None:
            return now
        if not stream.reads:
            return current.sent_ns if current.send_done_ns is None else current.send_done_ns
        number, reads, since = self._heard.get(stream, (-1, 0, now))
        if (number, reads) != (current.number, stream.reads):
            since = now
            self._heard[stream] = (current.number, stream.reads, since)
        return since

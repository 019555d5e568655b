"""What really happened, request by request: the record that the instrument is checked against."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec


class Trace:
    """One request as the server lived it. Stamps are monotonic ns, -1 where it never came.

    `received_ns` is the kernel's stamp of the request's last byte (`received_kind` "kernel"), or
    ours ("user"). `first_ns` and `last_ns` are read right after the write that carried the first
    and the last token returned; `first_due_ns` and `last_due_ns` are what the schedule said.
    `lateness_max_ns` is the worst real − scheduled among them. Behind a buffering proxy or a
    client that does not read, a write is the hand-over to the buffer.
    """

    __slots__ = (
        "cached_tok",
        "client_id",
        "ended_ns",
        "fault",
        "finish",
        "first_due_ns",
        "first_ns",
        "id",
        "last_due_ns",
        "last_ns",
        "lateness_max_ns",
        "preemptions",
        "prompt_tok",
        "received_kind",
        "received_ns",
        "started_ns",
        "status",
        "streamed",
        "times",
        "tokens",
    )

    def __init__(self, number: int, received_ns: int, received_kind: str) -> None:
        self.id = number
        self.received_ns = received_ns
        self.received_kind = received_kind
        self.client_id: str | None = None
        self.started_ns = -1
        self.first_due_ns = -1
        self.last_due_ns = -1
        self.first_ns = -1
        self.last_ns = -1
        self.ended_ns = -1
        self.tokens = 0
        self.prompt_tok = 0
        self.cached_tok = 0
        self.lateness_max_ns = 0
        self.preemptions = 0
        self.status = 200
        self.streamed = False
        self.finish: str | None = None
        self.fault: str | None = None
        self.times: array[int] | None = None


_PLAIN = tuple(name for name in Trace.__slots__ if name != "times")
_STAMPS = frozenset(name for name in _PLAIN if name.endswith("_ns") and name != "lateness_max_ns")


def trace_dict(trace: Trace) -> dict[str, Any]:
    """Return the record for JSON; a stamp that never came is None."""
    out = {name: getattr(trace, name) for name in _PLAIN}
    for name in _STAMPS:
        if out[name] < 0:
            out[name] = None
    return out


class Truth:
    """All records since the last reset. Numbers go on through a reset."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.generated_tok = 0
        self.blocked_writes = 0
        self._numbers = 0

    def open(self, received_ns: int, received_kind: str) -> Trace:
        """Return a new record."""
        self._numbers += 1
        trace = Trace(self._numbers, received_ns, received_kind)
        self.traces.append(trace)
        return trace

    def reset(self) -> None:
        """Forget all records and set the sums to zero."""
        self.traces.clear()
        self.generated_tok = 0
        self.blocked_writes = 0

    def page(self, now_ns: int, since: int, running_tok: int) -> bytes:
        """Return the JSON of `GET /truth`: records with a number above `since`."""
        body = {
            "requests": [trace_dict(t) for t in self.traces if t.id > since],
            "generated": self.generated_tok + running_tok,
            "blocked_writes": self.blocked_writes,
            "mono_ns": now_ns,
        }
        return msgspec.json.encode(body)

    def token_times(self, number: int) -> bytes | None:
        """Return the JSON of `GET /truth/token_times`, None where no such record keeps them."""
        for trace in self.traces:
            if trace.id == number and trace.times is not None:
                times = trace.times
                body = {"id": number, "sent_ns": list(times[::2]), "tokens": list(times[1::2])}
                return msgspec.json.encode(body)
        return None

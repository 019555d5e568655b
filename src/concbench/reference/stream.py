"""One request for tokens on its connection, while it is being served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from concbench.reference.answer import Answer
from concbench.reference.net import Connection
from concbench.reference.parts import Part
from concbench.reference.schedule import Job
from concbench.reference.truth import Trace


class Stream:
    """The state of one answer.

    `fast` is set once the first token is out and the rest is plain; `head` and `tail` then stand
    round each text. `outbox` holds parts that wait, `written_ns` is when the last of them left.
    """

    __slots__ = (
        "answer",
        "conn",
        "fast",
        "head",
        "job",
        "keep_alive",
        "offset",
        "outbox",
        "reason",
        "send",
        "tail",
        "trace",
        "waiting",
        "worker",
        "written_ns",
    )

    def __init__(self, conn: Connection, trace: Trace, worker: int, *, keep_alive: bool) -> None:
        self.conn: Connection = conn
        self.trace = trace
        self.worker = worker
        self.keep_alive = keep_alive
        self.answer: Answer
        self.job: Job | None = None
        self.reason = "length"
        self.fast = False
        self.offset = 0
        self.head = b""
        self.tail = b""
        self.send: Callable[[bytes], int] = conn.sock.send
        self.outbox: deque[Part] = deque()
        self.waiting = False
        self.written_ns = 0

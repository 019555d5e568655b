"""Limits of single requests: in made-up time, and against a server that falls silent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from concbench.load import share
from concbench.load.generator import LoadPlan, RawRound, resolve, run
from concbench.load.limits import LATE_NS, Limits
from concbench.load.procs import run_split
from concbench.load.script import Once
from concbench.load.stream import RawRequest
from tests.load.server import SSE_HEAD, chunk, serving
from tests.load.test_generator import REQUEST

TICK_NS = 50_000_000
SECOND_NS = 1_000_000_000


def request(number: int, sent_ns: int | None = 0, send_done_ns: int | None = 0) -> RawRequest:
    return RawRequest(number, 0, -1, True, 8, 0, sent_ns=sent_ns, send_done_ns=send_done_ns)


@dataclass(eq=False)
class Fake:
    """What limits need of a stream."""

    current: RawRequest | None
    reads: int = 0
    ended: list[tuple[int, str, str | None]] = field(default_factory=list)

    def finish(self, at_ns: int, ending: str, detail: str | None = None) -> None:
        self.current = None
        self.ended.append((at_ns, ending, detail))


def ticks(
    limits: Limits, streams: list[Any], from_ns: int, until_ns: int, every_ns: int = TICK_NS
) -> None:
    for now in range(from_ns, until_ns + 1, every_ns):
        limits.look(now, streams)


def test_silence_before_the_first_byte_counts_from_the_end_of_sending() -> None:
    quick, slow = Fake(request(0)), Fake(request(1, 0, SECOND_NS))
    ticks(Limits(None, 2 * SECOND_NS), [quick, slow], 0, 5 * SECOND_NS)
    assert quick.ended == [(2 * SECOND_NS + TICK_NS, "inactive", "no byte for 2.0 s after 0 reads")]
    assert slow.ended[0][0] == 3 * SECOND_NS + TICK_NS


def test_each_read_starts_the_silence_anew_and_so_does_each_request() -> None:
    limits, stream = Limits(None, SECOND_NS), Fake(request(0))
    for second in range(1, 20):
        stream.reads += 1
        ticks(limits, [stream], second * SECOND_NS - TICK_NS, (second + 1) * SECOND_NS - TICK_NS)
    assert stream.ended == []
    # The next request on the same connection: as many reads, and none of them is the old one's.
    later = 21 * SECOND_NS
    stream.current, stream.reads = request(1, later, later), 0
    ticks(limits, [stream], later, later + SECOND_NS)
    stream.reads = 19
    ticks(limits, [stream], later + SECOND_NS, later + 2 * SECOND_NS)
    assert stream.ended == []
    ticks(limits, [stream], later + 2 * SECOND_NS, later + 3 * SECOND_NS)
    assert [(ending, detail) for _, ending, detail in stream.ended] == [
        ("inactive", "no byte for 1.1 s after 19 reads")
    ]


def test_what_is_not_sent_or_not_there_is_not_silent() -> None:
    waiting, idle = Fake(request(0, None, None)), Fake(None)
    ticks(Limits(None, SECOND_NS), [waiting, idle], 0, 60 * SECOND_NS)
    assert waiting.ended == idle.ended == []


def test_a_client_that_was_away_itself_gives_what_came_meanwhile_time_to_be_read() -> None:
    limits, stream = Limits(None, SECOND_NS), Fake(request(0))
    limits.look(0, [stream])  # type: ignore[list-item]
    limits.look(LATE_NS + 10 * SECOND_NS, [stream])  # type: ignore[list-item]
    assert stream.ended == []
    stream.reads = 1
    limits.look(LATE_NS + 10 * SECOND_NS + TICK_NS, [stream])  # type: ignore[list-item]
    assert stream.ended == []


def test_the_total_stands_beside_it() -> None:
    talking, silent = Fake(request(0)), Fake(request(1))
    limits = Limits(3 * SECOND_NS, SECOND_NS)
    for now in range(0, 5 * SECOND_NS, TICK_NS):
        talking.reads += 1
        limits.look(now, [talking, silent])  # type: ignore[list-item]
    assert [each[1] for each in talking.ended] == ["timeout"]
    assert [each[1] for each in silent.ended] == ["inactive"]
    never = Fake(request(2))
    ticks(Limits(None, None), [never], 0, 100 * SECOND_NS, SECOND_NS)
    assert never.ended == []


def plan(address: tuple[str, int], **options: object) -> LoadPlan:
    scripts = [Once(REQUEST) for _ in range(2)]
    return LoadPlan(peer=resolve(*address, None), scripts=scripts, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("carry", [run, lambda given: run_split(given, 2)], ids=["one", "two"])
def test_one_silent_request_does_not_hold_the_round(carry: Callable[[LoadPlan], RawRound]) -> None:
    lock, cut, first = threading.Lock(), threading.Event(), [True]

    def answer(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        with lock:
            silent, first[0] = first[0], False
        sock.sendall(SSE_HEAD + chunk(b"data: a\n\n"))
        if silent:
            sock.recv(1)  # until the client closes
            cut.set()
            return
        # This one goes on for as long as the other is borne.
        while not cut.wait(0.02):
            sock.sendall(chunk(b"data: b\n\n"))
        sock.sendall(b"0\r\n\r\n")

    with serving(answer) as address:
        # The total is only a net under the test.
        raw = carry(plan(address, inactivity_ns=2 * SECOND_NS, timeout_ns=60 * SECOND_NS))
        cut.set()
    for part in raw.parts():
        part.open_log().close()
    assert sorted(one.ending for one in raw.requests) == ["complete", "inactive"]
    (silent,) = [one for one in raw.requests if one.ending == "inactive"]
    assert "no byte for" in (silent.detail or "")
    assert silent.end_ns is not None
    assert silent.sent_ns is not None
    assert silent.end_ns - silent.sent_ns >= 2 * SECOND_NS


def test_the_limit_goes_with_a_share_to_another_machine() -> None:
    made = plan(("127.0.0.1", 9), inactivity_ns=7 * SECOND_NS)
    for job in share.split(made, 2):
        assert job.inactivity_ns == 7 * SECOND_NS
        assert share.plan_of(job, lambda: None, None).inactivity_ns == 7 * SECOND_NS  # type: ignore[arg-type]

"""The generator against servers whose every byte is known."""

from __future__ import annotations

import os
import signal
import socket
import threading
from itertools import count

import pytest

from concbench.errors import UsageError
from concbench.load import generator, stamps
from concbench.load.generator import LoadPlan, Progress, RawRound, resolve, run
from concbench.load.script import Once, Outgoing, Refill
from concbench.wire.http import render_request
from tests.load.server import SSE_HEAD, chunk, serving

REQUEST = Outgoing(
    render_request("POST", "/v1/chat/completions", "test", {"Accept-Encoding": "identity"}, b"{}"),
    asked_output_tok=3,
)


def stream_three(sock: socket.socket, request: bytes, number: int) -> None:
    del request, number
    sock.sendall(SSE_HEAD)
    for word in (b"a", b"b", b"c"):
        sock.sendall(chunk(b"data: " + word + b"\n\n"))
    sock.sendall(b"0\r\n\r\n")


def go(address: tuple[str, int], scripts: list, **options: object) -> RawRound:
    plan = LoadPlan(peer=resolve(*address, None), scripts=scripts, **options)  # type: ignore[arg-type]
    return run(plan)


def bodies(raw: RawRound) -> dict[int, bytes]:
    kept: dict[int, bytes] = {}
    for row, data in raw.log.replay():
        number = raw.log.request[row]
        kept[number] = kept.get(number, b"") + data
    return kept


def test_a_burst_keeps_every_byte_and_its_order_in_time() -> None:
    with serving(stream_three) as address:
        raw = go(address, [Once(REQUEST) for _ in range(20)])
    assert [r.ending for r in raw.requests] == ["complete"] * 20
    assert all(b"data: c\n\n\r\n0\r\n\r\n" in body for body in bodies(raw).values())
    for request in raw.requests:
        assert request.due_ns == raw.start_ns
        assert request.sent_ns is not None
        assert request.end_ns is not None
        assert request.due_ns <= request.sent_ns <= request.end_ns <= raw.end_ns
        assert request.connect_ns is not None
        assert request.connect_ns > 0


@pytest.mark.skipif(stamps.available() == "user", reason="no kernel stamps here")
def test_kernel_stamps_lie_between_sending_and_reading() -> None:
    with serving(stream_three) as address:
        raw = go(address, [Once(REQUEST) for _ in range(4)])
    stamped = stamps.to_monotonic(raw.log.kernel, raw.offsets)
    assert len(stamped) == len(raw.log)
    sent = {r.number: r.sent_ns or 0 for r in raw.requests}
    slack_ns = 2_000_000  # the two clocks are compared by a bracketed offset
    for number, kernel_ns, user_ns in zip(raw.log.request, stamped, raw.log.user_ns, strict=True):
        assert kernel_ns > 0
        assert sent[number] - slack_ns <= kernel_ns <= user_ns + slack_ns


def test_user_stamps_alone_where_asked() -> None:
    with serving(stream_three) as address:
        raw = go(address, [Once(REQUEST)], stamp="user")
    assert set(stamps.to_monotonic(raw.log.kernel, raw.offsets)) == {0}


def test_a_closed_loop_refills_on_the_same_connection() -> None:
    left = count()
    with serving(stream_three) as address:
        shared = (REQUEST for _ in range(12))
        raw = go(address, [Refill(shared, lambda: next(left) < 100) for _ in range(3)])
    assert [r.ending for r in raw.requests] == ["complete"] * 12
    fresh = [r for r in raw.requests if r.connect_ns is not None]
    assert len(fresh) == 3


def test_a_server_that_closes_is_reconnected_to_and_the_connect_is_recorded() -> None:
    def closing(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        sock.shutdown(socket.SHUT_RDWR)

    with serving(closing) as address:
        raw = go(address, [Refill(iter([REQUEST] * 3))])
    assert [r.ending for r in raw.requests] == ["complete"] * 3
    assert all(r.connect_ns for r in raw.requests)


@pytest.mark.parametrize(
    ("tail", "ending"),
    [
        (b"", "truncated"),
        (b"zz\r\n", "bad_chunk"),
        (b"5\r\nabcdeXX", "bad_chunk"),
    ],
)
def test_a_body_that_breaks_off_is_named(tail: bytes, ending: str) -> None:
    def broken(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.sendall(SSE_HEAD + chunk(b"data: a\n\n") + tail)
        sock.shutdown(socket.SHUT_RDWR)

    with serving(broken) as address:
        raw = go(address, [Once(REQUEST)])
    assert [r.ending for r in raw.requests] == [ending]


def test_a_reset_is_named() -> None:
    def resetting(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.sendall(SSE_HEAD)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()

    with serving(resetting) as address:
        raw = go(address, [Once(REQUEST)])
    assert raw.requests[0].ending == "reset"


def test_nobody_listening_is_a_row_not_an_exception() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    raw = go(address, [Once(REQUEST) for _ in range(2)])
    assert [r.ending for r in raw.requests] == ["connect_refused"] * 2
    assert [r.sent_ns for r in raw.requests] == [None, None]


def test_the_total_time_limit_ends_a_silent_request() -> None:
    release = threading.Event()

    def silent(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.sendall(SSE_HEAD)
        release.wait(20)

    with serving(silent) as address:
        raw = go(address, [Once(REQUEST)], timeout_ns=200_000_000)
        release.set()
    assert raw.requests[0].ending == "timeout"
    assert raw.requests[0].end_ns is not None
    assert raw.requests[0].sent_ns is not None
    assert 200_000_000 <= raw.requests[0].end_ns - raw.requests[0].sent_ns < 5_000_000_000


def test_a_signal_stops_at_once_and_what_was_in_flight_is_incomplete() -> None:
    release = threading.Event()

    def half(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.sendall(SSE_HEAD + chunk(b"data: a\n\n"))
        release.wait(20)

    def on_tick(progress: Progress) -> None:
        if progress.reads >= 8:
            os.kill(os.getpid(), signal.SIGINT)

    with serving(half) as address:
        raw = go(address, [Once(REQUEST) for _ in range(8)], on_tick=on_tick)
        release.set()
    assert raw.interrupted
    assert [r.ending for r in raw.requests] == ["stopped"] * 8
    assert len(raw.log) >= 8


def test_due_times_are_absolute() -> None:
    with serving(stream_three) as address:
        raw = go(address, [Once(REQUEST, due_ns=k * 30_000_000) for k in range(5)])
    for k, request in enumerate(raw.requests):
        assert request.due_ns == raw.start_ns + k * 30_000_000
        assert request.sent_ns is not None
        assert request.sent_ns >= request.due_ns


def test_bytes_after_the_end_are_counted_and_the_connection_is_not_used_again() -> None:
    def chatty(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokEXTRA")

    with serving(chatty) as address:
        raw = go(address, [Refill(iter([REQUEST] * 2))])
    assert [r.excess_bytes for r in raw.requests] == [5, 5]
    assert all(r.connect_ns for r in raw.requests)


def test_payload_spills_and_replays_the_same() -> None:
    with serving(stream_three) as address:
        small = go(address, [Once(REQUEST) for _ in range(6)], spill_bytes=64)
    assert small.log.spilled_bytes > 0
    assert all(body.count(b"data: ") == 3 for body in bodies(small).values())
    small.log.close()


def test_too_many_streams_for_the_hard_limit_is_said_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generator.resource, "getrlimit", lambda _: (100, 100))
    with pytest.raises(UsageError, match="hard limit is 100"):
        generator.ensure_files(1000)


def test_a_kept_connection_that_was_closed_unsaid_is_no_failure_and_on_record() -> None:
    def closing_unsaid(sock: socket.socket, request: bytes, number: int) -> None:
        stream_three(sock, request, number)
        sock.shutdown(socket.SHUT_RDWR)

    with serving(closing_unsaid) as address:
        raw = go(address, [Refill(iter([REQUEST] * 30)) for _ in range(3)])
    assert [r.ending for r in raw.requests] == ["complete"] * 90
    assert all(r.connect_ns for r in raw.requests)


def test_a_server_that_drops_a_request_on_a_new_connection_failed_it() -> None:
    def dropping(sock: socket.socket, request: bytes, number: int) -> None:
        if number:
            sock.shutdown(socket.SHUT_RDWR)
            return
        stream_three(sock, request, number)

    with serving(dropping) as address:
        raw = go(address, [Refill(iter([REQUEST] * 4))])
    # Each second request on a connection meets its end, and is answered on a new one.
    assert [r.ending for r in raw.requests] == ["complete"] * 4
    assert [r.stale for r in raw.requests] == [False, True, True, True]

    def never(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.shutdown(socket.SHUT_RDWR)

    with serving(never) as address:
        raw = go(address, [Refill(iter([REQUEST] * 2))])
    assert {r.ending for r in raw.requests} <= {"no_response", "reset"}
    assert not any(r.stale for r in raw.requests)

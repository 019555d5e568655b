"""Open loops: workers share one queue, more are added at need, and nothing due is forgotten."""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading

import pytest

from concbench.load import generator
from concbench.load.generator import LoadPlan, Progress, RawRound, resolve, run
from concbench.load.script import Arrivals, Once, Outgoing, Refill
from concbench.wire.http import render_request
from tests.load.server import SSE_HEAD, chunk, serving

MS = 1_000_000
REQUEST = Outgoing(
    render_request("POST", "/v1/chat/completions", "test", {"Accept-Encoding": "identity"}, b"{}"),
    asked_output_tok=3,
)


def open_loop(
    address: tuple[str, int], due_ns: list[int], workers: int, **options: object
) -> RawRound:
    arrivals = Arrivals([REQUEST] * len(due_ns), due_ns)
    scripts = [arrivals.worker() for _ in range(workers)]
    plan = LoadPlan(resolve(*address, None), scripts, arrivals=arrivals, **options)  # type: ignore[arg-type]
    return run(plan)


def answer(sock: socket.socket, request: bytes, number: int) -> None:
    del request, number
    sock.sendall(SSE_HEAD + chunk(b"data: a\n\n") + b"0\r\n\r\n")


class Holding:
    """Answers once it is released; counts how many it holds at once."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.held = 0
        self.most = 0
        self._lock = threading.Lock()

    def __call__(self, sock: socket.socket, request: bytes, number: int) -> None:
        with self._lock:
            self.held += 1
            self.most = max(self.most, self.held)
        self.release.wait(20)
        with self._lock:
            self.held -= 1
        answer(sock, request, number)


def test_requests_leave_when_they_are_due_in_order() -> None:
    due = [k * 10 * MS for k in range(12)]
    with serving(answer) as address:
        raw = open_loop(address, due, workers=8)
    assert [r.ending for r in raw.requests] == ["complete"] * 12
    assert [r.due_ns - raw.start_ns for r in raw.requests] == due
    assert all(r.sent_ns is not None and r.sent_ns >= r.due_ns for r in raw.requests)
    assert len({r.worker for r in raw.requests}) <= 8
    assert raw.added_workers == 0


def test_workers_are_added_when_all_are_busy_and_their_connect_is_recorded() -> None:
    holding = Holding()

    def on_tick(progress: Progress) -> None:
        if progress.in_flight == 30:
            holding.release.set()

    with serving(holding) as address:
        raw = open_loop(address, [k * 2 * MS for k in range(30)], workers=2, on_tick=on_tick)
        holding.release.set()
    assert holding.most == 30
    assert raw.added_workers >= 28
    assert [r.ending for r in raw.requests] == ["complete"] * 30
    assert all(r.connect_ns for r in raw.requests)


def test_where_no_more_files_can_be_open_what_was_due_is_still_on_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = (resource.RLIM_INFINITY, 0)
    monkeypatch.setattr(generator.resource, "getrlimit", lambda _: limits)
    holding = Holding()
    calls = 0

    def few(streams: int) -> None:
        nonlocal calls
        calls += 1
        if streams > 4:
            raise generator.UsageError("no more files")

    monkeypatch.setattr(generator, "ensure_files", few)
    with serving(holding) as address:
        raw = open_loop(
            address,
            [k * MS for k in range(10)],
            workers=2,
            stop_when=lambda progress: progress.elapsed_ns > 150 * MS,
        )
        holding.release.set()
    assert calls > 1
    assert raw.growth_refused == "no more files"
    assert len(raw.requests) == 10
    assert [r.number for r in raw.requests] == list(range(10))
    unsent = [r for r in raw.requests if r.sent_ns is None]
    assert len(unsent) == 6
    assert {r.ending for r in unsent} == {"client_limit"}
    assert {r.ending for r in raw.requests if r.sent_ns is not None} == {"stopped"}


def test_after_the_drain_what_is_in_flight_is_cut() -> None:
    holding = Holding()
    with serving(holding) as address:
        raw = open_loop(
            address,
            [0, 10 * MS],
            workers=2,
            stop_when=lambda progress: progress.elapsed_ns >= 110 * MS,
        )
        holding.release.set()
    assert [r.ending for r in raw.requests] == ["stopped", "stopped"]
    assert not raw.interrupted
    assert raw.end_ns - raw.start_ns >= 110 * MS


def test_an_interrupt_leaves_out_what_was_not_yet_due() -> None:
    def on_tick(progress: Progress) -> None:
        if progress.ended >= 2:
            os.kill(os.getpid(), signal.SIGINT)

    with serving(answer) as address:
        raw = open_loop(address, [0, MS, 60_000 * MS, 60_001 * MS], workers=4, on_tick=on_tick)
    assert raw.interrupted
    assert [r.ending for r in raw.requests] == ["complete", "complete"]


def test_waiting_for_a_due_time_is_not_in_flight() -> None:
    seen: list[Progress] = []
    with serving(answer) as address:
        peer = resolve(*address, None)
        run(LoadPlan(peer, [Once(REQUEST, 250 * MS) for _ in range(3)], on_tick=seen.append))
    assert seen[0].in_flight == 0
    assert seen[0].ended == 0
    assert seen[0].received_bytes == 0


def test_stop_when_cuts_a_closed_loop() -> None:
    with serving(answer) as address:
        endless = iter(lambda: REQUEST, None)
        raw = run(
            LoadPlan(
                resolve(*address, None),
                [Refill(endless) for _ in range(3)],
                stop_when=lambda progress: progress.ended >= 20,
            )
        )
    assert not raw.interrupted
    assert sum(r.ending == "complete" for r in raw.requests) >= 20


def test_due_times_must_not_go_back() -> None:
    with pytest.raises(ValueError, match="decrease"):
        Arrivals([REQUEST, REQUEST], [5, 4])

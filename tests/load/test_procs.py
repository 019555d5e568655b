"""Generators in processes of their own, against servers whose every byte is known."""

from __future__ import annotations

import os
import signal
import socket
import threading

import psutil
import pytest

from concbench.errors import UsageError
from concbench.load.generator import LoadPlan, Progress, RawRound, resolve
from concbench.load.procs import auto_procs, run_split
from concbench.load.script import Arrivals, Once, Outgoing, Refill
from tests.load.server import SSE_HEAD, chunk, serving
from tests.load.test_generator import REQUEST, stream_three


def split(address: tuple[str, int], scripts: list, procs: int, **options: object) -> RawRound:
    plan = LoadPlan(peer=resolve(*address, None), scripts=scripts, **options)  # type: ignore[arg-type]
    return run_split(plan, procs)


def generators() -> list[psutil.Process]:
    """The generators among our children; other tests' engines may be waiting there to be reaped."""
    alive = [c for c in psutil.Process().children() if c.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "concbench.load.worker" in child.cmdline()]


def bodies(raw: RawRound) -> dict[int, bytes]:
    kept: dict[int, bytes] = {}
    for share in raw.parts():
        log = share.open_log()
        for row, data in log.replay():
            number = share.first + log.request[row]
            kept[number] = kept.get(number, b"") + data
        log.close()
    return kept


def test_a_burst_over_two_processes_is_one_round_with_one_start() -> None:
    requests = [Outgoing(REQUEST.payload, 3, prompt=k) for k in range(7)]
    with serving(stream_three) as address:
        raw = split(address, [Once(request) for request in requests], 2)
    assert [r.ending for r in raw.requests] == ["complete"] * 7
    assert [r.number for r in raw.requests] == list(range(7))
    assert sorted(r.worker for r in raw.requests) == list(range(7))
    assert [r.prompt for r in raw.requests] == list(range(7))
    assert {r.due_ns for r in raw.requests} == {raw.start_ns}
    assert all(raw.start_ns <= (r.sent_ns or 0) <= (r.end_ns or 0) for r in raw.requests)
    assert len(raw.shares) == 2
    assert all(share.offsets for share in raw.shares)
    assert raw.client_cpu_ns > 0
    read = bodies(raw)
    assert sorted(read) == list(range(7))
    assert all(b"data: c\n\n\r\n0\r\n\r\n" in body for body in read.values())


def test_more_processes_than_requests_are_not_started() -> None:
    with serving(stream_three) as address:
        raw = split(address, [Once(REQUEST)], 4)
    assert len(raw.shares) == 1
    bodies(raw)


def test_the_payload_may_be_larger_than_what_is_kept_in_memory() -> None:
    with serving(stream_three) as address:
        raw = split(address, [Once(REQUEST) for _ in range(4)], 2, spill_bytes=64)
    assert all(body.count(b"data: ") == 3 for body in bodies(raw).values())


def test_an_open_loop_is_shared_out_by_due_time() -> None:
    due_ns = [k * 20_000_000 for k in range(6)]
    arrivals = Arrivals([REQUEST] * 6, due_ns)
    with serving(stream_three) as address:
        raw = split(address, [arrivals.worker()], 2, arrivals=arrivals)
    assert [r.ending for r in raw.requests] == ["complete"] * 6
    assert sorted(r.due_ns - raw.start_ns for r in raw.requests) == due_ns
    bodies(raw)


class Held:
    """A server that sends one event and waits until it is released."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def __call__(self, sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.sendall(SSE_HEAD + chunk(b"data: a\n\n"))
        self.release.wait(20)
        sock.sendall(b"0\r\n\r\n")


def test_a_process_that_dies_costs_its_own_requests_only() -> None:
    held = Held()

    def on_tick(progress: Progress) -> None:
        if progress.reads >= 6 and not held.release.is_set():
            os.kill(min(child.pid for child in generators()), signal.SIGKILL)
            held.release.set()

    with serving(held) as address:
        raw = split(address, [Once(REQUEST) for _ in range(6)], 2, on_tick=on_tick)
    assert [r.number for r in raw.requests] == list(range(6))
    assert [r.ending for r in raw.requests].count("complete") == 3
    lost = [r for r in raw.requests if r.lost]
    assert len(lost) == 3
    assert {r.ending for r in lost} == {"stopped"}
    assert not raw.interrupted
    bodies(raw)


def test_a_signal_stops_all_in_order_and_what_came_is_kept() -> None:
    held = Held()

    def on_tick(progress: Progress) -> None:
        if progress.reads >= 6:
            os.kill(os.getpid(), signal.SIGINT)

    with serving(held) as address:
        raw = split(address, [Once(REQUEST) for _ in range(6)], 2, on_tick=on_tick)
        held.release.set()
    assert raw.interrupted
    assert [r.ending for r in raw.requests] == ["stopped"] * 6
    assert all(b"data: a" in body for body in bodies(raw).values())
    assert len(bodies_left := generators()) == 0, bodies_left


def test_a_stop_rule_sees_the_sum_of_all_processes() -> None:
    held = Held()
    seen: list[int] = []

    def stop_when(progress: Progress) -> bool:
        seen.append(progress.in_flight)
        return progress.in_flight == 4 and progress.reads >= 4

    with serving(held) as address:
        raw = split(address, [Once(REQUEST) for _ in range(4)], 2, stop_when=stop_when)
        held.release.set()
    assert max(seen) == 4
    assert not raw.interrupted
    assert [r.ending for r in raw.requests] == ["stopped"] * 4
    bodies(raw)


def test_a_server_that_is_not_there_is_rows_not_an_exception() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    raw = split(address, [Once(REQUEST) for _ in range(2)], 2)
    assert [r.ending for r in raw.requests] == ["connect_refused"] * 2
    bodies(raw)


def test_scripts_that_share_what_comes_next_are_refused() -> None:
    with serving(stream_three) as address, pytest.raises(UsageError, match="cannot be split"):
        split(address, [Refill(iter([REQUEST])) for _ in range(2)], 2)


def test_auto_takes_a_process_a_thousand_streams_and_leaves_the_server_half() -> None:
    assert auto_procs(1, 64) == 1
    assert auto_procs(1025, 64) == 2
    assert auto_procs(100_000, 2) == 1
    assert auto_procs(10_000, 64) == 10

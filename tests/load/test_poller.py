"""Errors on a socket are reported, whatever comes together with them."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from concbench.load.generator import resolve, run
from concbench.load.poller import LoopPoller, Poller, poller
from concbench.load.script import Once
from tests.load.server import SSE_HEAD, serving
from tests.load.test_generator import REQUEST, LoadPlan

MAKERS = [poller, LoopPoller]


@pytest.fixture
def loop() -> asyncio.AbstractEventLoop:
    made = uvloop.new_event_loop()
    yield made
    made.close()


@pytest.mark.parametrize("make", MAKERS)
def test_readable_and_writable_are_told(loop: asyncio.AbstractEventLoop, make: type) -> None:
    watched: Poller = make(loop)
    left, right = socket.socketpair()
    with left, right:

        async def go() -> bytes:
            await watched.ready(left.fileno(), writing=True)
            right.send(b"x")
            await watched.ready(left.fileno())
            return left.recv(10)

        assert loop.run_until_complete(asyncio.wait_for(go(), 5)) == b"x"
    watched.close()


def test_a_forgotten_descriptor_is_silent_and_may_be_closed(
    loop: asyncio.AbstractEventLoop,
) -> None:
    watched = poller(loop)
    left, right = socket.socketpair()
    with left, right:
        watched.watch(left.fileno(), lambda: pytest.fail("called back"))
        watched.watch_writing(left.fileno(), lambda: None)
        watched.unwatch_writing(left.fileno())
        watched.forget(left.fileno())
        watched.forget(left.fileno())
        right.send(b"x")
        loop.run_until_complete(asyncio.sleep(0.01))
    watched.close()


def test_a_reset_that_comes_together_with_data_ends_the_request_every_time() -> None:
    def resetting(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.sendall(SSE_HEAD)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()

    with serving(resetting) as address:
        peer = resolve(*address, None)
        plan = LoadPlan(peer, [Once(REQUEST) for _ in range(40)], timeout_ns=10_000_000_000)
        raw = run(plan)
    assert [r.ending for r in raw.requests] == ["reset"] * 40

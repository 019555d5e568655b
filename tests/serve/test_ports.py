from __future__ import annotations

import os
import socket

import pytest

from concbench.errors import PortTaken
from concbench.serve import ports


def test_a_free_port_is_free():
    assert ports.is_free(ports.free_port())


def test_a_taken_port_names_its_holder():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
        assert [holder.pid for holder in ports.holders(port)] == [os.getpid()]
        with pytest.raises(PortTaken, match=rf"port {port} is taken by .*pid {os.getpid()}"):
            ports.require_free(port)
    ports.require_free(port)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_both_ways_to_find_a_holder_agree(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("no such address family here")
    with server:
        port = server.getsockname()[1]
        assert ports._listening_linux(port) == ports._listening_anywhere(port) == {os.getpid()}
        with socket.create_connection((host, port)):
            assert ports._listening_linux(port) == {os.getpid()}
    assert ports._listening_linux(port) == set()


def test_holders_that_cannot_be_seen(monkeypatch):
    monkeypatch.setattr(ports, "holders", lambda _: [])
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(PortTaken, match="another user"),
    ):
        ports.require_free(server.getsockname()[1])

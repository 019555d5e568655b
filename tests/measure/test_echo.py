import socket

import pytest

from concbench.errors import PortTaken, Unreachable
from concbench.measure.echo import EchoServer, round_trips_ns


@pytest.fixture
def server():
    found = EchoServer("127.0.0.1", 0)
    yield found
    found.close()


@pytest.mark.parametrize("size", [1, 16 * 1024, 3_000_000])
def test_round_trips_are_timed(server, size):
    times = round_trips_ns("127.0.0.1", server.port, size, 5)
    assert len(times) == 5
    assert all(time > 0 for time in times)


def test_several_clients_one_after_another(server):
    for _ in range(3):
        assert len(round_trips_ns("127.0.0.1", server.port, 64, 2)) == 2


@pytest.mark.parametrize(
    "greeting", [b"GET / HTTP/1.1\r\n", b"concbench-echo x\n", b"concbench-echo 99999999\n", b"\n"]
)
def test_other_greetings_are_hung_up_on(server, greeting):
    with socket.create_connection(("127.0.0.1", server.port), 5) as peer:
        peer.sendall(greeting)
        assert peer.recv(10) == b""


def test_nobody_there(server):
    port = server.port
    server.close()
    with pytest.raises(Unreachable, match="link --serve"):
        round_trips_ns("127.0.0.1", port, 10, 1, timeout_s=5)


def test_a_server_that_is_none_of_ours():
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Unreachable, match="did not answer"):
            round_trips_ns("127.0.0.1", port, 10, 1, timeout_s=0.2)


def test_a_taken_port(server):
    with pytest.raises(PortTaken):
        EchoServer("127.0.0.1", server.port)

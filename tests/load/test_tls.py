"""TLS over the same path, with a certificate made for the test."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from concbench.errors import UsageError
from concbench.load import tls
from concbench.load.generator import LoadPlan, resolve, run
from concbench.load.script import Refill
from concbench.wire.http import ResponseFramer
from tests.load.server import SSE_HEAD, chunk, read_request
from tests.load.test_generator import REQUEST


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server(authority: trustme.CA) -> Iterator[tuple[str, int]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=handle, args=(raw,), daemon=True).start()

    def handle(raw: socket.socket) -> None:
        try:
            with context.wrap_socket(raw, server_side=True) as sock:
                while read_request(sock):
                    sock.sendall(SSE_HEAD)
                    for word in (b"a", b"b" * 40_000, b"c"):
                        sock.sendall(chunk(b"data: " + word + b"\n\n"))
                    sock.sendall(b"0\r\n\r\n")
        except OSError:
            return

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


def test_the_body_arrives_whole_and_the_connection_is_kept(
    server: tuple[str, int], authority: trustme.CA, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    peer = resolve("localhost", server[1], tls.context(ca))
    raw = run(LoadPlan(peer=peer, scripts=[Refill(iter([REQUEST] * 2))]))
    assert [r.ending for r in raw.requests] == ["complete", "complete"]
    assert [r.connect_ns is not None for r in raw.requests] == [True, False]
    framer, body = ResponseFramer(), bytearray()
    for row, data in raw.log.replay():
        if raw.log.request[row] == 0:
            framer.feed(data, len(data), body)
    assert body == b"data: a\n\ndata: " + b"b" * 40_000 + b"\n\ndata: c\n\n"


def test_an_unknown_authority_is_a_tls_failure_and_insecure_goes_through(
    server: tuple[str, int],
) -> None:
    strict = resolve("localhost", server[1], tls.context())
    raw = run(LoadPlan(peer=strict, scripts=[Refill(iter([REQUEST]))]))
    assert raw.requests[0].ending == "tls"
    lax = resolve("localhost", server[1], tls.context(insecure=True))
    raw = run(LoadPlan(peer=lax, scripts=[Refill(iter([REQUEST]))]))
    assert raw.requests[0].ending == "complete"


def test_an_unreadable_ca_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a readable PEM file"):
        tls.context(tmp_path / "none.pem")

"""A tiny threaded HTTP server whose answers a test scripts byte by byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Answer = Callable[[socket.socket, bytes, int], None]


def read_request(sock: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        body += sock.recv(65536)
    return head + b"\r\n\r\n" + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, int]]:
    """Serve until the block ends; every request on a connection is answered in turn."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def handle(sock: socket.socket) -> None:
        count = 0
        with sock:
            while True:
                try:
                    request = read_request(sock)
                    if not request:
                        return
                    answer(sock, request, count)
                except OSError:
                    return
                count += 1

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            connections.append(sock)
            thread = threading.Thread(target=handle, args=(sock,), daemon=True)
            threads.append(thread)
            thread.start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield listener.getsockname()
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(5)
        for sock in connections:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(5)

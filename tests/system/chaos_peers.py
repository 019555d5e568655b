"""Beside a server that misbehaves: a peer that speaks no protocol, and clients that speak none."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

MANNERS = ("close", "reset", "noise", "silent", "echo", "short echo", "trickle")
LONGEST_S = 30.0


def noise(rng: random.Random) -> bytes:
    """Return bytes of no protocol, or of the wrong one."""
    kinds = (
        b"",
        b"\x00" * rng.randrange(1, 5000),
        rng.randbytes(rng.randrange(1, 70_000)),
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"GET " + b"/" * rng.randrange(1, 20_000) + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n{",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 4\r\n\r\n[[[[",
        b"GET /metrics HTTP/1.1\r\nHost: \xff\xfe\r\nX: " + b"y" * rng.randrange(1, 90_000),
        b"SSH-2.0-nothing\r\n",
    )
    return rng.choice(kinds)


def _behave(sock: socket.socket, manner: str, said: bytes, ended: threading.Event) -> None:
    with sock, suppress(OSError):
        sock.settimeout(LONGEST_S)
        if manner == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        elif manner == "silent":
            ended.wait(LONGEST_S)
        elif manner == "noise":
            sock.recv(65536)
            sock.sendall(said)
        elif manner == "trickle":
            for byte in said[:600]:
                sock.sendall(bytes([byte]))
                ended.wait(0.05)
        elif manner != "close":
            while data := sock.recv(65536):
                sock.sendall(data if manner == "echo" else data[: len(data) // 2])


@contextmanager
def gibberish(seed: int) -> Iterator[int]:
    """Yield the port of a peer that behaves differently, and badly, at each connection."""
    rng, ended = random.Random(f"{seed}/peer"), threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)

    def accept() -> None:
        while not ended.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                continue
            given = sock, rng.choice(MANNERS), noise(rng), ended
            threading.Thread(target=_behave, args=given, daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        ended.set()
        thread.join()
        listener.close()


def pester(url: str, seed: int, times: int) -> None:
    """Send that many requests that are none to a server; leave some of them hanging."""
    rng, parts = random.Random(f"{seed}/client"), urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or 80)
    left: list[socket.socket] = []
    for _ in range(times):
        with suppress(OSError):
            sock = socket.create_connection(address, 5)
            left.append(sock)
            sock.settimeout(0.2)
            sock.sendall(noise(rng))
            if rng.random() < 0.5:
                sock.recv(65536)
            if rng.random() < 0.7:
                sock.close()
    for sock in left:
        sock.close()

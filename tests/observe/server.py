"""A scripted HTTP/1.1 server in a thread, a reference server, and waiting without sleeping."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from concbench.clock import now_ns

FIXTURES = Path(__file__).parent.parent / "fixtures"
Page = tuple[int, bytes]


def until(condition: Callable[[], bool], what: str, deadline_s: float = 20.0) -> None:
    """Look again until the condition holds. Raises AssertionError when it never does."""
    pause = threading.Event()
    end_ns = now_ns() + int(deadline_s * 1e9)
    while not condition():
        assert now_ns() < end_ns, f"never happened: {what}"
        pause.wait(0.005)


@dataclass
class Fake:
    url: str
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)

    def times(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)


@contextmanager
def serving(
    pages: dict[str, Callable[[int], Page]], tls: ssl.SSLContext | None = None
) -> Iterator[Fake]:
    """Answer each path by a function of how often it was asked before; others with 404."""
    counts: dict[str, int] = {}
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            with lock:
                number = counts.get(self.path, 0)
                counts[self.path] = number + 1
                fake.asked.append((self.path, self.headers.get("authorization")))
                fake.connections.add(self.client_address)
            status, body = pages.get(self.path, lambda _: (404, b"no"))(number)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def handle(self) -> None:
            # A killed observer resets its connection.
            with suppress(ConnectionError):
                super().handle()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    fake = Fake(f"{scheme}://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def reference(*options: str) -> Iterator[str]:
    """Run the known-truth server as a child; give its URL."""
    argv = [sys.executable, "-m", "concbench", "reference", "--until-stdin-closes", *options]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            yield json.loads(child.stdout.readline())["url"]
        finally:
            child.stdin.close()
            child.wait(10)


def generate(url: str, tokens: int) -> None:
    """Ask for a completion and read it to its end."""
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    body = {"model": "reference", "prompt": "a b c", "max_tokens": tokens, "stream": True}
    connection.request(
        "POST",
        "/v1/completions",
        json.dumps({**body, "ignore_eos": True}),
        {"Content-Type": "application/json"},
    )
    answer = connection.getresponse()
    assert answer.status == 200
    answer.read()
    connection.close()

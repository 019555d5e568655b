"""A scripted HTTP server in a thread: paths to answers, and what was asked of it."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Reply:
    status: int = 200
    body: bytes | dict | list = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Script = Reply | Callable[[Asked], Reply]


@dataclass
class Server:
    url: str
    port: int
    asked: list[Asked]


@contextmanager
def serving(script: Mapping[str, Script], tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Answer paths as scripted, anything else with 404."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            named = {name.lower(): value for name, value in self.headers.items()}
            one = Asked(self.command, self.path, named, self.rfile.read(size))
            asked.append(one)
            reply = script.get(self.path, Reply(404, {"detail": "Not Found"}))
            if callable(reply):
                reply = reply(one)
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            kind = "text/plain" if isinstance(reply.body, bytes) else "application/json"
            for name, value in {
                "Content-Type": kind,
                "Content-Length": str(len(body)),
                **reply.headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815 - the names that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    scheme = "https" if tls else "http"
    try:
        port = server.server_address[1]
        yield Server(f"{scheme}://127.0.0.1:{port}", port, asked)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def models(*ids: str) -> Reply:
    return Reply(body={"object": "list", "data": [{"id": one, "object": "model"} for one in ids]})


def token(text: str = "Hi", tokens: int | None = 1) -> Reply:
    usage = {} if tokens is None else {"usage": {"completion_tokens": tokens}}
    return Reply(body={"choices": [{"message": {"content": text}}], **usage})

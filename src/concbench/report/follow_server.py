"""A page server for this machine alone: loopback, a random token, no other host or origin.

Whoever does not know the token gets 403 and learns nothing else. The Host header must be this
server's own, which keeps out pages of other sites whose name was made to point here.
"""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from concbench.errors import PortTaken

TEXT = "text/plain; charset=utf-8"
LOOPBACK = "127.0.0.1"
TOKEN_BYTES = 24
CLIENT_TIMEOUT_S = 15
LONGEST_TARGET = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What a path gives. `policy` is its content security policy, `tag` its ETag."""

    body: bytes
    kind: str
    status: int = 200
    policy: str = "default-src 'none'; frame-ancestors 'none'"
    tag: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


Site = Callable[[str, Mapping[str, str]], Answer | None]
"""Path below the token, and query → answer, or None for 404."""


def not_found(what: str = "there is no such page here") -> Answer:
    """Return a 404 in plain text."""
    return Answer(f"{what}\n".encode(), TEXT, status=404)


class _Server(ThreadingHTTPServer):
    """Says nothing on the terminal of clients that left: a browser does so at every reload."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - inherited
        """Let pass what a connection did; show anything else, which is a fault of ours."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class FollowServer:
    """Serves a site on 127.0.0.1 until `stop`. Raises PortTaken where the port is not free."""

    def __init__(self, site: Site, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        try:
            self._server = _Server((LOOPBACK, port), _handler(self, site))
        except OSError as error:
            raise PortTaken(
                f"port {port} of {LOOPBACK}: {error.strerror}; choose another with --port"
            ) from error
        self.port = self._server.server_address[1]
        self.hosts = {f"{name}:{self.port}" for name in (LOOPBACK, "localhost")}

    @property
    def url(self) -> str:
        """The address with its token."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"

    def serve(self) -> None:
        """Answer requests until `stop` is called or the main thread is interrupted."""
        try:
            self._server.serve_forever(poll_interval=0.2)
        finally:
            self._server.server_close()

    def stop(self) -> None:
        """End `serve`, from any thread; safe also in a signal handler of the serving thread."""
        threading.Thread(target=self._server.shutdown, daemon=True).start()

    def admits(self, host: str, origin: str | None, token: str) -> bool:
        """Whether a request with these headers and this first path segment may see anything."""
        known = secrets.compare_digest(token.encode("utf-8", "replace"), self.token.encode())
        own = {f"http://{name}" for name in self.hosts}
        return known and host.lower() in self.hosts and (origin is None or origin in own)

    def found(self, target: str, headers: Message, site: Site) -> Answer:
        """Return the answer to a request for `target`: 403 before anything is looked at."""
        hosts = headers.get_all("Host") or [""]
        try:
            parts = urlsplit(target[:LONGEST_TARGET])
            query = dict(parse_qsl(parts.query, max_num_fields=8))
        except ValueError:  # half an IPv6 address, or too many fields
            return Answer(b"forbidden\n", TEXT, status=403)
        token, slash, path = parts.path.lstrip("/").partition("/")
        if len(hosts) != 1 or not self.admits(hosts[0], headers.get("Origin"), token):
            return Answer(b"forbidden\n", TEXT, status=403)
        return (site(path, query) if slash else None) or not_found()

    def refusal(self, code: int, request: BaseHTTPRequestHandler) -> Answer:
        """Return the answer to what is not served, with 403 for a request without the token."""
        if code == HTTPStatus.NOT_IMPLEMENTED:  # else there is no whole request
            found = self.found(request.path, request.headers, lambda *_: None)
            code = found.status if found.status == HTTPStatus.FORBIDDEN else code
        words = f"{HTTPStatus(code).phrase.lower()}\n".encode()
        return Answer(words, TEXT, status=code, headers={"Connection": "close"})


def _handler(server: FollowServer, site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One connection."""

        protocol_version = "HTTP/1.1"
        timeout = CLIENT_TIMEOUT_S

        def do_GET(self) -> None:
            """Answer with a body."""
            self._answer(body=True)

        def do_HEAD(self) -> None:
            """Answer without one."""
            self._answer(body=False)

        def send_error(
            self, code: int, message: str | None = None, explain: str | None = None
        ) -> None:
            """Answer what is no request of ours in a word; without the token with 403 alone."""
            # A body may follow that nobody reads.
            self.close_connection = True
            _send(self, server.refusal(code, self), body=True)

        def version_string(self) -> str:
            """Say no more than the program's name."""
            return "concbench"

        def log_message(self, format: str, *words: Any) -> None:  # noqa: A002, ANN401 - inherited
            """Say nothing: the terminal belongs to the command."""

        def _answer(self, *, body: bool) -> None:
            answer = server.found(self.path, self.headers, site)
            if answer.tag and self.headers.get("If-None-Match") == answer.tag:
                answer = Answer(b"", answer.kind, status=304, policy=answer.policy, tag=answer.tag)
            _send(self, answer, body=body)

    return Handler


def _send(request: BaseHTTPRequestHandler, answer: Answer, *, body: bool) -> None:
    request.send_response(answer.status)
    for name, value in _headers(answer).items():
        request.send_header(name, value)
    request.end_headers()
    if body and answer.status != HTTPStatus.NOT_MODIFIED:
        request.wfile.write(answer.body)


def _headers(answer: Answer) -> dict[str, str]:
    headers = {
        "Content-Type": answer.kind,
        "Content-Length": str(len(answer.body)),
        "Content-Security-Policy": answer.policy,
        "Cache-Control": "no-cache" if answer.tag else "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        **answer.headers,
    }
    return {**headers, "ETag": answer.tag} if answer.tag else headers

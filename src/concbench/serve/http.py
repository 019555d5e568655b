"""A small blocking HTTP client for probes: one connection a request, nothing followed.

A redirect is reported, never followed, so a key cannot reach another host. What goes wrong on the
way is a value (`NoAnswer`), because a server that still loads is refused connections all the time.
The key is in no repr, no exception text and no excerpt.
"""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from concbench.clock import now_ns
from concbench.engines.spec import Answer
from concbench.errors import UsageError

MAX_BODY_BYTES = 64 << 20

Reason = Literal[
    "refused", "timeout", "no_such_host", "no_route", "tls", "reset", "not_http", "cut"
]


@dataclass(frozen=True, slots=True)
class NoAnswer(Answer):
    """Why no whole answer came. `status` is 0; `detail` is the system's own wording."""

    reason: Reason = "reset"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a server. `timeout_s` bounds one request; without a key none is sent."""

    api_key: str | None = field(default=None, repr=False)
    ca: Path | None = None
    insecure: bool = False
    timeout_s: float = 10.0


class Http:
    """Requests against one root URL. Not for the measured load."""

    def __init__(self, base_url: str, access: Access | None = None) -> None:
        """Raises UsageError for a CA file that cannot be read or a key that no header can hold."""
        self.base_url = base_url.rstrip("/")
        self.access = access or Access()
        parts = urlsplit(self.base_url)
        self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path
        self._tls = _tls_context(self.access) if parts.scheme == "https" else None
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "concbench"}
        key = self.access.api_key
        if key is not None:
            if not key or not key.isascii() or not key.isprintable():
                raise UsageError(
                    "the API key is empty or holds characters no HTTP header can carry"
                )
            self._headers["Authorization"] = f"Bearer {key}"

    def __repr__(self) -> str:
        return f"Http({self.base_url!r})"

    def get(self, path: str, *, timeout_s: float | None = None) -> Answer:
        """GET the path under the root."""
        return self._ask("GET", path, None, timeout_s)

    def post_json(self, path: str, body: object, *, timeout_s: float | None = None) -> Answer:
        """POST a JSON body to the path under the root."""
        return self._ask("POST", path, json.dumps(body).encode(), timeout_s)

    def excerpt(self, answer: Answer, limit: int = 200) -> str:
        """Return the beginning of what was said, on one line and without the key."""
        if isinstance(answer, NoAnswer):
            return answer.detail
        text = error_message(answer) or answer.body[:4096].decode("utf-8", "replace")
        text = " ".join(text.split())
        if self.access.api_key:
            text = text.replace(self.access.api_key, "***")
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def _ask(self, method: str, path: str, body: bytes | None, timeout_s: float | None) -> Answer:
        limit_s = self.access.timeout_s if timeout_s is None else timeout_s
        connection = self._connection(limit_s)
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        deadline_ns = now_ns() + int(limit_s * 1e9)
        watchdog: threading.Timer | None = None
        try:
            connection.connect()
            # The socket's own limit begins anew with every byte: a head that trickles has no end.
            watchdog = threading.Timer(
                max(0.0, deadline_ns - now_ns()) / 1e9, _cut, [connection.sock]
            )
            watchdog.start()
            connection.request(method, self._path + path, body, headers)
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, _read_body(response, deadline_ns))
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            late = now_ns() >= deadline_ns
            reason, detail = _classify(TimeoutError() if late else error)
            return NoAnswer(0, {}, b"", reason, detail)
        finally:
            if watchdog is not None:
                watchdog.cancel()
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout_s, context=self._tls
        )


def parse_json(answer: Answer) -> Any:  # noqa: ANN401 - JSON has no narrower type
    """Return the body's JSON value, or None where it is none."""
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def error_message(answer: Answer) -> str | None:
    """Return the server's own words from an error body: wrapped, flat, or FastAPI's `detail`."""
    value = parse_json(answer)
    if not isinstance(value, dict):
        return None
    inner = value.get("error", value)
    if isinstance(inner, str):
        return inner
    if not isinstance(inner, dict):
        return None
    said = inner.get("message") or inner.get("detail")
    return said if isinstance(said, str) else None


def _tls_context(access: Access) -> ssl.SSLContext:
    """Return the context; without `ca` the system's store and SSL_CERT_FILE count."""
    try:
        context = ssl.create_default_context(cafile=str(access.ca) if access.ca else None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--ca {access.ca}: not a readable PEM file ({error})") from None
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _read_body(response: http.client.HTTPResponse, deadline_ns: int) -> bytes:
    """Return the whole body. Raises HTTPException when it is cut short or too long."""
    body = bytearray()
    while part := response.read1(1 << 16):
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise _BodyTooLong
        if now_ns() > deadline_ns:
            raise TimeoutError("the body took too long")
    if response.length:
        raise http.client.IncompleteRead(bytes(body[:64]), response.length)
    return bytes(body)


class _BodyTooLong(http.client.HTTPException):
    def __str__(self) -> str:
        return f"the body is longer than {MAX_BODY_BYTES >> 20} MiB"


def _cut(sock: socket.socket) -> None:
    """End what is being read; the reader then finds the connection closed."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _classify(error: Exception) -> tuple[Reason, str]:
    """Return the reason and the wording for what went wrong on the way."""
    if isinstance(error, UnicodeError):
        return "no_such_host", "the host's name is no valid name"
    if isinstance(error, socket.gaierror):
        return "no_such_host", error.strerror or "no such host"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "tls", error.verify_message
    if isinstance(error, ssl.SSLError):
        return "tls", error.reason or str(error)
    if isinstance(error, TimeoutError):
        return "timeout", "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "refused", "connection refused"
    if isinstance(error, http.client.IncompleteRead | _BodyTooLong):
        return "cut", "the answer was cut short" if not isinstance(error, _BodyTooLong) else str(
            error
        )
    if isinstance(error, http.client.HTTPException) and not isinstance(error, ConnectionError):
        return "not_http", f"the answer is not HTTP ({type(error).__name__})"
    if isinstance(error, OSError) and error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return "no_route", error.strerror or "no route to host"
    return "reset", str(error) or type(error).__name__

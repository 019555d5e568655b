"""Asking the server for its own accounting over one connection that is kept open."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from concbench.clock import now_ns
from concbench.observe.job import Job
from concbench.observe.spool import Kind, Writer

MAX_PAGE_BYTES: Final = 8 << 20
KEPT_OF_A_REFUSAL_BYTES = 512
RENEW_EVERY = 8
"""Rounds of polling per connection: workers that share a port only show on a new connection."""

ABSENT_STATUSES = frozenset({404, 405, 501})
ABSENT_EVERY = 40
"""A page that is not there is asked for only so seldom: it may come with a restart."""

ACTIVITY_EVERY = 8
"""The list of finished requests is long and changes seldom."""


class Poller:
    """Polls the job's pages in their order. Failures are records, never exceptions."""

    def __init__(
        self, job: Job, writer: Writer, on_page: Callable[[Kind, int, bytes], None]
    ) -> None:
        """`on_page(kind, received_ns, body)` is told of every page that came."""
        self._job = job
        self._writer = writer
        self._on_page = on_page
        parts = urlsplit(job.base_url)
        self._host, self._port, self._prefix = parts.hostname or "", parts.port, parts.path
        self._tls = _tls(job) if parts.scheme == "https" else None
        self._headers = {
            "Accept-Encoding": "identity",
            "User-Agent": "concbench",
            **job.headers,
        }
        self._connection: http.client.HTTPConnection | None = None
        self._rounds = 0
        self._absent: set[str] = set()

    def step(self, asked: bool) -> None:  # noqa: FBT001 - Ticker's
        """Ask for every page once; when asked to, also for those that are not polled so often."""
        if self._rounds % RENEW_EVERY == 0:
            self._close()
        job = self._job
        pages: tuple[tuple[Kind, str | None, int], ...] = (
            ("metrics", job.metrics_path, 1),
            ("slots", job.slots_path, 1),
            ("activity", job.activity_path, ACTIVITY_EVERY),
        )
        for kind, path, every in pages:
            if path is None:
                continue
            every = ABSENT_EVERY if path in self._absent else every
            if self._rounds % every == 0 or (asked and path not in self._absent):
                self._ask(kind, path)
        self._rounds += 1

    def _ask(self, kind: Kind, path: str) -> None:
        sent_ns = now_ns()
        try:
            sent_ns, status, body = self._answer(path)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            self._close()
            self._writer.add(kind, sent_ns, now_ns(), _why(error).encode(), 0)
            self._writer.count(failed=1)
            return
        received_ns = now_ns()
        if 200 <= status < 300:
            self._absent.discard(path)
            self._writer.add(kind, sent_ns, received_ns, body, status)
            self._writer.count(scrapes=1)
            self._on_page(kind, received_ns, body)
            return
        if status in ABSENT_STATUSES:
            self._absent.add(path)
        kept = body[:KEPT_OF_A_REFUSAL_BYTES]
        self._writer.add(kind, sent_ns, received_ns, kept, status)
        self._writer.count(failed=1)

    def _answer(self, path: str) -> tuple[int, int, bytes]:
        """Return when it was sent, status and body; once more where an old connection had died."""
        reused = self._connection is not None
        try:
            return self._once(path)
        except (ConnectionError, http.client.RemoteDisconnected):
            if not reused:
                raise
            self._close()
            return self._once(path)

    def _once(self, path: str) -> tuple[int, int, bytes]:
        deadline_ns = now_ns() + int(self._job.timeout_s * 1e9)
        connection = self._connection or self._connect()
        self._connection = connection
        sent_ns = now_ns()
        connection.request("GET", self._prefix + path, headers=self._headers)
        response = connection.getresponse()
        body = bytearray()
        while part := response.read1(1 << 16):
            body += part
            if len(body) > MAX_PAGE_BYTES:
                raise http.client.HTTPException("page too long")
            if now_ns() > deadline_ns:
                raise TimeoutError
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        response.close()  # of the answer, not of the connection: read1 leaves it open
        if response.will_close:
            self._close()
        return sent_ns, response.status, bytes(body)

    def _connect(self) -> http.client.HTTPConnection:
        timeout_s = self._job.timeout_s
        made = (
            http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
            if self._tls is None
            else http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=self._tls
            )
        )
        made.connect()
        return made

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _tls(job: Job) -> ssl.SSLContext:
    """Return the client's context. Raises OSError for a CA file that cannot be read."""
    context = ssl.create_default_context(cafile=job.ca)
    if job.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _why(error: Exception) -> str:
    """Return one word for what went wrong, never the server's or the user's own text."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, http.client.HTTPException) and not isinstance(error, ConnectionError):
        return "not_http"
    return "reset" if isinstance(error, ConnectionError) else "unreachable"

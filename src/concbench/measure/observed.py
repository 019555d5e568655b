"""The observer beside the load: started with a session, asked around every round, never trusted.

Whatever goes wrong with it costs the server's side of a result and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from concbench.domain import ServerSample
from concbench.measure.session import Session
from concbench.observe.job import job_for
from concbench.observe.observer import LiveView, Observer
from concbench.serve.http import Access

LOCAL: Final = ("127.0.0.1", "localhost", "::1")
_BROKEN: Final = (OSError, ValueError, RuntimeError)


@contextmanager
def observing(
    session: Session,
    access: Access,
    *,
    log: Path | Sequence[str] | None = None,
    engine_pids: Sequence[int] = (),
) -> Iterator[None]:
    """Keep an observer of the session's server for the block; none where it cannot be started.

    `log` is the engine's log file, or a command that follows it. `engine_pids` are the roots of
    the engine's processes, where it runs on this machine.
    """
    inner = session.inner
    job = job_for(
        session.spec if inner is None else inner.spec,
        session.http.base_url,
        prefix="" if inner is None else inner.prefix,
        query="" if inner is None else inner.query,
        proxy=session.spec,
        api_key=access.api_key,
        ca=access.ca,
        insecure=access.insecure,
        log=log,
        own={"engine": list(engine_pids), "client": [os.getpid()]},
        local=bool(engine_pids) or (urlsplit(session.http.base_url).hostname or "") in LOCAL,
    )
    try:
        session.observer = Observer.start(job)
    except _BROKEN:
        session.observer = None
    try:
        yield
    finally:
        observer, session.observer = session.observer, None
        if observer is not None:
            with suppress(*_BROKEN):
                observer.stop()


def mark(session: Session) -> int | None:
    """Have the server read now; return where the round's samples begin, None without observer."""
    try:
        return None if session.observer is None else session.observer.mark()
    except _BROKEN:
        return None


def samples(session: Session, since: int | None) -> list[ServerSample]:
    """Return what was seen of the server since the mark, two last readings made now included."""
    if session.observer is None or since is None:
        return []
    try:
        inner = session.inner
        return session.observer.samples(since, session.spec if inner is None else inner.spec)
    except _BROKEN:
        return []


def live(session: Session) -> LiveView | None:
    """Return the last values for a display; cheap, and None where nothing is known."""
    try:
        return None if session.observer is None else session.observer.live()
    except _BROKEN:
        return None

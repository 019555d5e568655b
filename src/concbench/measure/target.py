"""From what a person typed to a session that is ready: attach, or start the embedded lane."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from concbench.measure.session import Session, calibrate, open_session, with_first_request
from concbench.serve.embedded import start_embedded
from concbench.serve.http import Access
from concbench.serve.probe import attach

EMBEDDED = "embedded"
EMBEDDED_SPARE_TOK = 64
EMBEDDED_LEAST_CONTEXT_TOK = 1024


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """How to reach a target and what every request has in common."""

    target: str
    access: Access
    model: str | None = None
    ask: dict[str, Any] = field(default_factory=dict)
    content: str = "prose"
    seed: int = 0


def is_embedded(target: str) -> bool:
    """Return whether the target is the engine that comes with the tool."""
    return target.strip().lower() == EMBEDDED


def embedded_context_tok(prompt_tok: int, output_tok: int | None) -> int:
    """Return a context a slot that holds the workload: prompt, answer and some spare tokens."""
    need = prompt_tok + (output_tok or 600) + EMBEDDED_SPARE_TOK
    return max(EMBEDDED_LEAST_CONTEXT_TOK, -(-need // 256) * 256)


@contextmanager
def ready(
    options: TargetOptions, *, slots: int, context_tok: int, log_folder: Path
) -> Iterator[Session]:
    """Yield a calibrated session; the embedded engine is started before and always stopped after.

    `slots` and `context_tok` (a slot) count for the embedded engine only. Raises what attaching,
    starting and the first request raise.
    """
    if not is_embedded(options.target):
        attached = attach(options.target, options.access, options.model)
        yield _prepared(open_session(attached, options.access, dict(options.ask)), options)
        return
    log_folder.mkdir(parents=True, exist_ok=True)
    with start_embedded(slots, context_tok, log_folder / "embedded.log") as lane:
        session = open_session(lane.attached, Access(), dict(options.ask))
        session.alive = lane.alive
        session.facts = lane.facts
        yield _prepared(session, options)
    session.facts = msgspec.structs.replace(session.facts, teardown=lane.facts.teardown)


def _prepared(session: Session, options: TargetOptions) -> Session:
    calibrate(session, options.content, options.seed)
    facts = session.facts
    if facts.first_request_s is None:
        session.facts = with_first_request(facts, session.first_request)
    return session

"""llama-swap's own part: one model at a time, loaded when it is asked for, unloaded when told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from concbench.reference.http import Request

HELD = object()
"""Stands as a connection's stream while its request waits for a model."""

_UPSTREAM = "/upstream/"
_TOKENS = ("/v1/chat/completions", "/v1/completions")


class _Asked(msgspec.Struct):
    model: Any = None


@dataclass(slots=True)
class Swap:
    """Which of the models is held. The first is loaded from the start; times are in ns.

    A load takes `load_ns`; after `ttl_ns` without a request the model is let go (0: never).
    """

    models: Sequence[str]
    load_ns: int = 0
    ttl_ns: int = 0
    held: str | None = None
    ready_ns: int = 0
    used_ns: int = 0

    def due_ns(self, request: Request, now_ns: int, *, busy: bool) -> int:
        """Return when a request can be answered: now, or when the model that it needs is loaded."""
        self.expire(now_ns, busy=busy)
        model = self.wanted(request)
        return now_ns if model is None else self.ask(model, now_ns)

    def states(self, now_ns: int) -> dict[str, str]:
        """Return `ready` or `starting` for the model that is held; empty where none is."""
        if self.held is None:
            return {}
        return {self.held: "ready" if now_ns >= self.ready_ns else "starting"}

    def expire(self, now_ns: int, *, busy: bool) -> None:
        """Let the model go where nothing was asked of it for too long."""
        if busy:
            self.used_ns = now_ns
        idle_ns = now_ns - max(self.used_ns, self.ready_ns)
        if self.ttl_ns and self.held is not None and idle_ns >= self.ttl_ns:
            self.held = None

    def ask(self, model: str, now_ns: int) -> int:
        """Return when a model is there; one that is not held takes the place of the other."""
        if self.held != model:
            self.held, self.ready_ns = model, now_ns + self.load_ns
        self.used_ns = max(now_ns, self.ready_ns)
        return self.ready_ns

    def unload(self, model: str | None = None) -> None:
        """Let a model go, or whichever is held."""
        if model in (None, self.held):
            self.held = None

    def wanted(self, request: Request) -> str | None:
        """Return the model that a request needs loaded; None for the proxy's own pages."""
        if request.path.startswith(_UPSTREAM):
            model: Any = request.path.removeprefix(_UPSTREAM).partition("/")[0]
        elif request.method == "POST" and request.path in _TOKENS:
            try:
                model = msgspec.json.decode(request.body, type=_Asked).model
            except msgspec.MsgspecError:
                return None
        else:
            return None
        return model if model in self.models else None

    def inner_path(self, path: str) -> str:
        """Return a path below `/upstream/MODEL` as the engine behind sees it, others unchanged."""
        model, slash, rest = path.removeprefix(_UPSTREAM).partition("/")
        inner = path.startswith(_UPSTREAM) and slash and model in self.models
        return f"/{rest}" if inner else path

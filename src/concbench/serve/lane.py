"""A lane that was started here: launched, met, proven by a token, and stopped whatever happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import msgspec

from concbench.domain import TargetFacts
from concbench.engines.registry import by_name
from concbench.engines.spec import Fact
from concbench.errors import NotReady, PortTaken
from concbench.serve import ports
from concbench.serve.http import Access
from concbench.serve.probe import Attached, Launch, Met, await_attached, fill_facts
from concbench.serve.process import Child, spawn
from concbench.serve.readiness import FirstToken, wait_for_token
from concbench.serve.urls import parse_target


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is needed to start one engine. `described_as` is the argv in the engine's own spelling,
    where `argv` is not; `facts` are those known from how it is started.
    """

    lane: str
    engine: str
    argv: tuple[str, ...]
    url: str
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    described_as: Sequence[str] | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    endpoint: Literal["chat", "completions"] = "chat"


@dataclass(slots=True)
class RunningLane:
    """A started engine that has given a token. Leaving its `with` block stops it.

    `cold_start`: `listening_s`, `ready_s` (models listed), `first_token_s`, all from the spawn, and
    `first_request_s`, which the first request took by itself.
    """

    attached: Attached
    child: Child
    cold_start: dict[str, float]
    host: str
    port: int

    @property
    def log_path(self) -> Path:
        """The file that the engine's output goes to."""
        return self.child.log_path

    @property
    def facts(self) -> TargetFacts:
        """What is known of the lane, with its start and, once stopped, its end."""
        return msgspec.structs.replace(
            self.attached.facts,
            cold_start_s=self.cold_start["first_token_s"],
            first_request_s=self.cold_start["first_request_s"],
            teardown=self.child.teardown,
        )

    def alive(self) -> str | None:
        """Return None while the engine lives, otherwise how it ended and what it last said."""
        return self.child.alive()

    def stop(self) -> dict[str, Any]:
        """End the engine; return the teardown: see `Child.stop`, and `port_free`."""
        teardown = self.child.stop()
        teardown.setdefault("port_free", ports.is_free(self.port, self.host))
        return teardown

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def start(
    recipe: Recipe, log_path: Path, deadline_s: float, access: Access | None = None
) -> RunningLane:
    """Start an engine and return it once a token has come.

    Raises PortTaken when another program has the port, NotReady when the engine dies or is too
    late, and what `attach` raises. Whatever is raised, the engine has been stopped.
    """
    parts = urlsplit(parse_target(recipe.url).root)
    host, port = parts.hostname or ports.LOOPBACK, parts.port or 80
    ports.require_free(port, host)
    child = spawn(
        recipe.argv, log_path, recipe.env, recipe.cwd, by_name(recipe.engine).start_failures
    )
    try:
        met = await_attached(
            recipe.url,
            access or Access(),
            recipe.model,
            recipe.engine,
            deadline_s=deadline_s,
            alive=child.alive,
            lane=recipe.lane,
            launch=lambda: Launch(recipe.described_as or recipe.argv, child.log_lines()),
        )
        _require_ours(child, port)
        token = wait_for_token(met.attached, deadline_s, child.alive, recipe.endpoint)
    except BaseException as error:
        known = child.failure() if isinstance(error, NotReady) and child.alive() else None
        child.stop()
        if known and known.outcome == "port_taken":
            raise PortTaken(str(error)) from None
        raise
    attached = _with_recipe(met.attached, recipe)
    return RunningLane(attached, child, _cold_start(child, met, token), host, port)


def _require_ours(child: Child, port: int) -> None:
    """Raise PortTaken when it is not this engine that answers on its port."""
    found = ports.holders(port)
    mine = {process.pid for process in child.members()}
    if found and not any(holder.pid in mine for holder in found):
        raise PortTaken(
            f"port {port} is answered by {ports.describe(found)}, not by the engine started here"
        )


def _with_recipe(attached: Attached, recipe: Recipe) -> Attached:
    """Return it with what the recipe knows, and with the argv that really ran."""
    facts, more = fill_facts(attached.facts, recipe.facts)
    launched = msgspec.structs.replace(facts, launch=list(recipe.argv))
    return Attached(
        attached.url,
        attached.http,
        attached.spec,
        attached.answers,
        launched,
        attached.model,
        {**attached.extra, **more},
    )


def _cold_start(child: Child, met: Met, token: FirstToken) -> dict[str, float]:
    began = child.spawned_ns
    return {
        "listening_s": (met.listening_ns - began) / 1e9,
        "ready_s": (met.ready_ns - began) / 1e9,
        "first_token_s": (token.first_token_ns - began) / 1e9,
        "first_request_s": token.first_request_ns / 1e9,
    }

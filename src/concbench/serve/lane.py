"""A lane that was started here: launched, met, proven by a token, and stopped whatever happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import msgspec

from concbench.domain import TargetFacts
from concbench.engines.registry import by_name
from concbench.engines.spec import Fact
from concbench.errors import ConcbenchError, NotReady, PortTaken, StartFailed, TargetError
from concbench.serve import memory, ports
from concbench.serve.container import Container, ContainerRecipe, start_container
from concbench.serve.enrich import confirm_engine, enriched
from concbench.serve.http import Access
from concbench.serve.logfile import tail
from concbench.serve.probe import Attached, Launch, Met, await_attached
from concbench.serve.process import Child, spawn
from concbench.serve.readiness import FirstToken, wait_for_token
from concbench.serve.swap import ready_model
from concbench.serve.urls import parse_target
from concbench.serve.words import masked


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is needed to start one engine. `described_as` is the argv in the engine's own spelling,
    where `argv` is not; `facts` are those known from how it is started. With `container`, `argv` is
    empty: the runtime's words are made when it starts.
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
    container: ContainerRecipe | None = None

    def replaced(self, **changes: Any) -> Recipe:  # noqa: ANN401 - a field's value
        """Return it with some fields changed."""
        return replace(self, **changes)

    @property
    def spoken(self) -> Sequence[str]:
        """The command line in the engine's own spelling."""
        return self.argv if self.described_as is None else self.described_as


@dataclass(slots=True)
class RunningLane:
    """A started engine that has given a token. Leaving its `with` block stops it.

    `cold_start`: `listening_s`, `ready_s` (models listed), `first_token_s`, all from the spawn, and
    `first_request_s`, which the first request took by itself.
    """

    attached: Attached
    child: Child | Container
    cold_start: dict[str, float]
    host: str
    port: int
    recipe: Recipe
    gpu_before: Mapping[int, int] | None = None

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
        """End the engine; return the teardown.

        It holds what `Child.stop` or `Container.stop` tells, `port_free`, the GPU's memory before
        the start and now (see `memory.gpu_teardown`), and `memory_back`.
        """
        first = self.child.teardown is None
        teardown = self.child.stop()
        if first:
            complete_teardown(teardown, self.port, self.host, self.gpu_before)
        return teardown

    def detach(self) -> None:
        """Let the engine live on when the tool ends."""
        self.child.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def complete_teardown(
    teardown: dict[str, Any], port: int, host: str, gpu_before: Mapping[int, int] | None
) -> None:
    """Add `port_free`, the GPU's memory, and `memory_back` to what is known of an end."""
    teardown["port_free"] = ports.is_free(port, host)
    teardown |= memory.gpu_teardown(gpu_before)
    teardown["memory_back"] = not teardown["rss_after_bytes"] and teardown.get("gpu_back", True)


def start(
    recipe: Recipe, log_path: Path, deadline_s: float, access: Access | None = None
) -> RunningLane:
    """Start an engine and return it once a token has come.

    Raises PortTaken when another program has the port, StartFailed when the engine dies or is too
    late, WrongPath when another engine answers than the recipe says, and what `attach` raises.
    Whatever is raised, the engine has been stopped.
    """
    parts = urlsplit(parse_target(recipe.url).root)
    host, port = parts.hostname or ports.LOOPBACK, parts.port or 80
    ports.require_free(port, host)
    gpu_before = memory.gpu_used_bytes()
    child = _launch(recipe, log_path)
    try:
        met = await_attached(
            recipe.url,
            access or Access(),
            recipe.model,
            recipe.engine,
            deadline_s=deadline_s,
            alive=child.alive,
            lane=recipe.lane,
            launch=lambda: Launch(recipe.spoken, child.log_lines()),
        )
        if isinstance(child, Child):
            _require_ours(child, port)
        confirm_engine(met.attached)
        attached = ready_model(met.attached, access or Access(), deadline_s)
        token = wait_for_token(attached, deadline_s, child.alive, recipe.endpoint)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the engine is ended first
        raise _failed(error, child, recipe) from None
    return RunningLane(
        _described(attached, recipe, child, gpu_before),
        child,
        _cold_start(child, met, token),
        host,
        port,
        recipe,
        gpu_before,
    )


def _launch(recipe: Recipe, log_path: Path) -> Child | Container:
    failures = by_name(recipe.engine).start_failures
    if recipe.container is None:
        return spawn(recipe.argv, log_path, recipe.env, recipe.cwd, failures)
    return start_container(
        recipe.container, recipe.lane, log_path, recipe.env, recipe.cwd, failures
    )


def _failed(error: BaseException, child: Child | Container, recipe: Recipe) -> BaseException:
    """Stop the engine; return the error to raise: with its cause where known, and its last lines.

    A signal stays what it is.
    """
    dead = child.alive() is not None
    known = child.failure() if isinstance(error, NotReady) and dead else None
    lines = child.log_lines()
    child.stop()
    if not isinstance(error, TargetError):
        return error
    told = str(error)
    if f"lane {recipe.lane}" not in told:
        told = f"lane {recipe.lane}: {told}"
    made: ConcbenchError = type(error)(told)
    if known and known.outcome == "port_taken":
        made = PortTaken(told)
    elif isinstance(error, NotReady):
        if not dead and recipe.container is not None and recipe.container.host_port:
            told += "; inside a container it must listen on 0.0.0.0, not on 127.0.0.1"
        made = StartFailed(told, "oom" if known and known.outcome == "oom" else "crashed")
    if said := tail(lines):
        made.add_note("\n".join([f"last lines of {child.log_path}:", *said]))
    return made


def _require_ours(child: Child, port: int) -> None:
    """Raise PortTaken when it is not this engine that answers on its port."""
    found = ports.holders(port)
    mine = {process.pid for process in child.members()}
    if found and not any(holder.pid in mine for holder in found):
        raise PortTaken(
            f"port {port} is answered by {ports.describe(found)}, not by the engine started here"
        )


def _described(
    attached: Attached,
    recipe: Recipe,
    child: Child | Container,
    gpu_before: Mapping[int, int] | None,
) -> Attached:
    """Return it with what the recipe, the machine and the model's files tell, and the real argv."""
    pids = [process.pid for process in child.members()]
    full = enriched(attached, pids, gpu_before, recipe.facts)
    launched = msgspec.structs.replace(
        full.facts,
        launch=masked(child.argv),
        container=child.facts if isinstance(child, Container) else None,
    )
    return replace(full, facts=launched)


def _cold_start(child: Child | Container, met: Met, token: FirstToken) -> dict[str, float]:
    began = child.spawned_ns
    return {
        "listening_s": (met.listening_ns - began) / 1e9,
        "ready_s": (met.ready_ns - began) / 1e9,
        "first_token_s": (token.first_token_ns - began) / 1e9,
        "first_request_s": token.first_request_ns / 1e9,
    }

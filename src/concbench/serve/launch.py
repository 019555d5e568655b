"""A lane of the plan file becomes a recipe: what to run, where it will listen, how to stop it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from concbench.engines.registry import ENGINES, of_command
from concbench.errors import UsageError
from concbench.plan.model import LanePlan
from concbench.serve import ports
from concbench.serve.container import ContainerRecipe
from concbench.serve.embedded import check_flags, child_recipe, find_model
from concbench.serve.lane import Recipe
from concbench.serve.llamacpp_child import ROUTER_FLAGS
from concbench.serve.runtime import RUNTIMES, host_network, runtime_path
from concbench.serve.words import (
    PORT_WORD,
    address_in,
    flags_in,
    named,
    takes_port,
    with_flags,
    with_port,
)

EMBEDDED_MODEL = "embedded"
"""As `model` of a llamacpp lane: the one that comes with the tool."""

DEADLINES_S = {"vllm": 1800.0, "sglang": 1800.0, "trtllm": 3600.0}
DEADLINE_S = 600.0
"""How long an engine may take from its start to its first token, unless told otherwise."""

COUNTERS = {"llamacpp": "metrics", "sglang": "enable-metrics"}
"""Flags added to lanes that are started by their flags: without them the server counts nothing."""

_BIN = "bin"
_CHILD_REFUSED = {"model": "the lane's model"}


def engine_of(lane: LanePlan) -> str:
    """Return the engine's name: as given, else by the program or image, else `openai`."""
    if lane.engine is not None:
        return lane.engine
    words: Sequence[str] = lane.command or ()
    if lane.container is not None:
        words = [lane.container.runtime, "run", lane.container.image, *lane.container.args]
    found = of_command(words) if words else None
    return found.name if found else "openai"


def deadline_s(lane: LanePlan) -> float:
    """Return how long this lane may take until its first token."""
    return DEADLINES_S.get(engine_of(lane), DEADLINE_S)


def varied(lane: LanePlan, changes: Mapping[str, Any]) -> LanePlan:
    """Return the lane with flags changed, however it is started; a flag that is None goes.

    Raises UsageError for a URL.
    """
    if lane.url is not None:
        raise UsageError(f"lane {lane.name} runs already: its flags cannot be changed")
    engine = engine_of(lane)
    if lane.command is not None:
        return msgspec.structs.replace(lane, command=with_flags(lane.command, changes, engine))
    if lane.container is not None:
        args = with_flags(lane.container.args, changes, engine)
        box = msgspec.structs.replace(lane.container, args=args)
        return msgspec.structs.replace(lane, container=box)
    flags = {**lane.flags, **changes}
    kept = {name: value for name, value in flags.items() if value is not None}
    return msgspec.structs.replace(lane, flags=kept)


def recipe_of(lane: LanePlan, folder: Path) -> Recipe:
    """Return how the lane is started; relative paths count from `folder`, the plan's own.

    Raises UsageError or MissingExtra when the program or the model is not there, or no port can
    be told.
    """
    if lane.url is not None:
        raise UsageError(f"lane {lane.name} is attached to ({lane.url}), never started")
    env = {name: str(value) for name, value in lane.env.items()}
    cwd = _folder(lane, folder)
    if lane.container is not None:
        return _boxed(lane, env, cwd)
    if lane.command is not None:
        return _commanded(lane, env, cwd)
    starters = {"llamacpp": _llamacpp, "vllm": _vllm, "sglang": _sglang}
    made = starters[engine_of(lane)](lane, folder)
    return made.replaced(env=env, cwd=cwd)


def flags_of(lane: LanePlan) -> dict[str, Any]:
    """Return what the plan sets, by the engine's canonical names; empty for a lane with `url`."""
    engine = engine_of(lane)
    if lane.command is not None:
        return flags_in(lane.command, engine)
    if lane.container is not None:
        return flags_in(lane.container.args, engine)
    if lane.url is not None:
        return {}
    return named({name: value for name, value in lane.flags.items() if name != _BIN}, engine)


def added_words(engine: str, words: Sequence[str]) -> list[str]:
    """Return what is added to an engine's words, unless they speak of it themselves."""
    flag = COUNTERS.get(engine)
    return [f"--{flag}"] if flag and flag not in flags_in(words, engine) else []


def program_of(name: str, folder: Path, given: object = None) -> str | None:
    """Return a program's path: the one given, on PATH, or in `.venv-NAME` or `.venv` nearby.

    Raises UsageError for a given one that is not there.
    """
    if given is not None:
        path = shutil.which(str(given)) or shutil.which(str((folder / str(given)).resolve()))
        if path is None:
            raise UsageError(f"bin = {given!r}: no such program, on PATH or as a path")
        return path
    if found := shutil.which(name):
        return found
    for base in (folder, Path.cwd()):
        for environment in (f".venv-{name}", ".venv"):
            candidate = base.resolve() / environment / "bin" / name
            if candidate.is_file():
                return str(candidate)
    return None


def model_word(model: str, folder: Path) -> str:
    """Return a model's absolute path where it is one seen from the plan, else the name as it is."""
    path = folder / Path(model).expanduser()
    return str(path.resolve()) if path.exists() else model


def _llamacpp(lane: LanePlan, folder: Path) -> Recipe:
    flags = dict(lane.flags)
    program = program_of("llama-server", folder, flags.pop(_BIN, None))
    model = lane.model or EMBEDDED_MODEL
    path = str(find_model()) if model == EMBEDDED_MODEL else model_word(model, folder)
    if program is None:
        return child_recipe(Path(path), check_flags(flags, _CHILD_REFUSED), lane=lane.name)
    words = ENGINES["llamacpp"].to_argv(flags)
    given = flags_in(words, "llamacpp")
    router = bool(ROUTER_FLAGS & set(given))
    if not router:
        is_file = path.endswith(".gguf") or Path(path).is_file() or "/" not in path
        words = ["--model" if is_file else "--hf-repo", path, *words]
    words += added_words("llamacpp", words)
    # A router is asked by name; a single model answers to whatever name it lists.
    return _listening(lane, [program, *words], model=model if router else None)


def _vllm(lane: LanePlan, folder: Path) -> Recipe:
    flags = dict(lane.flags)
    program = program_of("vllm", folder, flags.pop(_BIN, None))
    if program is None:
        raise UsageError(
            f"lane {lane.name}: `vllm` is neither on PATH nor in .venv-vllm/bin: install it there, "
            "give flags.bin, or use a container or a url"
        )
    words = ENGINES["vllm"].to_argv(flags)
    return _listening(lane, [program, "serve", model_word(lane.model or "", folder), *words])


def _sglang(lane: LanePlan, folder: Path) -> Recipe:
    flags = dict(lane.flags)
    program = program_of("sglang", folder, flags.pop(_BIN, None))
    if program is None:
        raise UsageError(
            f"lane {lane.name}: `sglang` is neither on PATH nor in .venv-sglang/bin: install it "
            "there, give flags.bin, or use a container or a url"
        )
    words = ENGINES["sglang"].to_argv(flags)
    words += added_words("sglang", words)
    model = model_word(lane.model or "", folder)
    return _listening(lane, [program, "serve", "--model-path", model, *words])


def _listening(lane: LanePlan, words: list[str], model: str | None = None) -> Recipe:
    """Return the recipe of words of our own making: host and port are added where they lack."""
    engine = engine_of(lane)
    host, port = address_in(words, {}, engine)
    if "host" not in flags_in(words, engine):
        words = [*words, "--host", ports.LOOPBACK]
    if port is None:
        port = ports.free_port()
        words, _ = with_port(words, {}, engine, port)
    url = f"http://{host}:{port}"
    return Recipe(lane.name, engine, tuple(words), url, model)


def _commanded(lane: LanePlan, env: dict[str, str], cwd: Path | None) -> Recipe:
    engine = engine_of(lane)
    words = list(lane.command or ())
    if Path(words[0]).name in RUNTIMES:
        raise UsageError(
            f"lane {lane.name}: a container that `command` starts would outlive its client: write "
            "container = { runtime, image, args, options } instead"
        )
    if any(PORT_WORD in word for word in (*words, *env.values())):
        port: int | None = ports.free_port()
        words = [word.replace(PORT_WORD, str(port)) for word in words]
        env = {name: value.replace(PORT_WORD, str(port)) for name, value in env.items()}
        host, _ = address_in(words, env, engine)
    else:
        host, port = address_in(words, env, engine)
        if port is None and takes_port(words, engine):
            port = ports.free_port()
            words, env = with_port(words, env, engine, port)
        elif port is None and engine == "openai":
            raise UsageError(
                f"lane {lane.name}: its command does not tell where it listens: write {PORT_WORD} "
                'in it, as in ["serve", "--port", "{port}"], or name its engine'
            )
    port = port or ENGINES[engine].default_port
    words[0] = _program_word(words[0], cwd)
    url = f"http://{host}:{port}"
    return Recipe(lane.name, engine, tuple(words), url, lane.model, env, cwd)


def _program_word(word: str, cwd: Path | None) -> str:
    """Return a relative path as an absolute one: it counts from the lane's folder."""
    if "/" in word and not word.startswith("/") and cwd is not None:
        return str((cwd / word).absolute())
    return word


def _boxed(lane: LanePlan, env: dict[str, str], cwd: Path | None) -> Recipe:
    assert lane.container is not None
    engine = engine_of(lane)
    plan = lane.container
    _, inside = address_in(plan.args, env, engine)
    args, shared = list(plan.args), host_network(plan.options)
    inside = plan.port or inside
    if inside is None and shared:
        inside = ports.free_port()
        args, env = with_port(args, env, engine, inside)
    inside = inside or ENGINES[engine].default_port
    port = inside if shared else ports.free_port()
    box = ContainerRecipe(
        runtime=runtime_path(plan.runtime),
        image=plan.image,
        args=tuple(args),
        options=tuple(plan.options),
        name=plan.name,
        host_port=None if shared else port,
        inside_port=inside,
        log=tuple(lane.log or ()),
        stop=tuple(lane.stop or ()),
    )
    url = f"http://{ports.LOOPBACK}:{port}"
    return Recipe(
        lane.name, engine, (), url, lane.model, env, cwd, described_as=args, container=box
    )


def _folder(lane: LanePlan, folder: Path) -> Path | None:
    base = folder.absolute()
    return base / Path(lane.cwd).expanduser() if lane.cwd else base

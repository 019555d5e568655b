"""Command lines of engines: their flags by canonical names, and where they will listen. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines import llamacpp_words, sglang_words, tgi, trtllm, vllm
from concbench.engines.reading import positive
from concbench.engines.registry import ENGINES
from concbench.engines.spelling import Dialect, canonical, command_words, read_words

DIALECTS: Mapping[str, Dialect] = {
    "llamacpp": llamacpp_words.DIALECT,
    "vllm": vllm.DIALECT,
    "sglang": sglang_words.DIALECT,
    "trtllm": trtllm.DIALECT,
    "tgi": tgi.DIALECT,
}

PORT_WORD = "{port}"
"""Stands in a command or an environment for the port that is chosen."""

_PORT_VARIABLES = {"llamacpp": "LLAMA_ARG_PORT", "tgi": "PORT"}
_SECRETS = ("key", "token", "secret", "password")
_FLAG = re.compile(r"--?[A-Za-z]")
_ANYWHERE = ("0.0.0.0", "::", "[::]", "*", "")


def dialect(engine: str) -> Dialect:
    """Return how an engine spells its flags; plain long options where that is not known."""
    return DIALECTS.get(engine, Dialect())


def flags_in(argv: Sequence[str], engine: str) -> dict[str, Any]:
    """Return a command line's flags by canonical name."""
    return read_words(argv, dialect(engine))


def named(flags: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """Return flags of a plan or a recipe by canonical name, as a command line would carry them."""
    return flags_in(ENGINES[engine].to_argv(flags), engine)


def address_in(argv: Sequence[str], env: Mapping[str, str], engine: str) -> tuple[str, int | None]:
    """Return host and port that a command line or its environment sets; None where it does not.

    A server that listens everywhere is reached by the loopback.
    """
    flags = flags_in(argv, engine)
    host, port = flags.get("host"), positive(flags.get("port"))
    joined = {
        "ollama": env.get("OLLAMA_HOST"),
        "llama-swap": flags.get("listen"),
    }.get(engine)
    if isinstance(joined, str):
        host, _, digits = joined.rpartition(":")
        port = positive(digits)
    variable = _PORT_VARIABLES.get(engine)
    if port is None and variable:
        port = positive(env.get(variable))
    shown = host if isinstance(host, str) and host not in _ANYWHERE else "127.0.0.1"
    return ("127.0.0.1" if shown == "localhost" else shown), port


def with_port(
    argv: Sequence[str], env: Mapping[str, str], engine: str, port: int
) -> tuple[list[str], dict[str, str]]:
    """Return command line and environment with the port added in the engine's own spelling."""
    if engine == "ollama":
        return list(argv), {**env, "OLLAMA_HOST": f"127.0.0.1:{port}"}
    if engine == "llama-swap":
        return [*argv, "--listen", f"127.0.0.1:{port}"], dict(env)
    return [*argv, "--port", str(port)], dict(env)


def takes_port(argv: Sequence[str], engine: str) -> bool:
    """Return whether words can be added: not to a shell's script, nor to an unknown program."""
    return engine != "openai" and command_words(argv) == list(argv)


def with_flags(argv: Sequence[str], changes: Mapping[str, Any], engine: str) -> list[str]:
    """Return the command line with these flags changed: old mentions go, new ones come last.

    A flag whose new value is None is left out altogether.
    """
    spelling = dialect(engine)
    names = {_head(name, spelling) for name in changes}
    kept: list[str] = []
    words = list(argv)
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name = _head(word.partition("=")[0], spelling) if _FLAG.match(word) else None
        if name not in names:
            kept.append(word)
            continue
        switch = "=" in word or name in spelling.switches or word.startswith("--no-")
        most = 0 if switch else len(words) if name in spelling.many else 1
        while most and index < len(words) and not _FLAG.match(words[index]):
            index, most = index + 1, most - 1
    added = {name: value for name, value in changes.items() if value is not None}
    return [*kept, *ENGINES[engine].to_argv(added)]


def _head(name: str, spelling: Dialect) -> str:
    """Return a flag's canonical name without `no-` and without what follows a dot."""
    return canonical(name, spelling).partition(".")[0].removeprefix("no-")


def masked(argv: Sequence[str]) -> list[str]:
    """Return the words with the values of keys and tokens hidden, for records."""
    shown: list[str] = []
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        secret = name.startswith("-") and any(part in _SECRETS for part in _parts(name))
        shown.append("***" if hide else f"{name}=***" if secret and equals else word)
        hide = secret and not equals
    return shown


def masked_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables with the values of keys and tokens hidden."""
    return {
        name: "***" if any(part in _SECRETS for part in _parts(name)) else value
        for name, value in env.items()
    }


def masked_extra(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return a lane's further facts; a command line among them has its keys hidden."""
    words = extra.get("upstream_launch")
    return {**extra, "upstream_launch": masked(words)} if isinstance(words, list) else dict(extra)


def _parts(name: str) -> list[str]:
    return name.lower().lstrip("-").replace("_", "-").split("-")

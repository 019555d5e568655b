"""All engines, and which of them answers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from concbench.engines import (
    llama_swap,
    llamacpp,
    lmstudio,
    ollama,
    openai,
    sglang,
    tgi,
    trtllm,
    vllm,
)
from concbench.engines.spec import Answer, EngineSpec, LogRecord
from concbench.errors import UsageError

# A proxy comes before what it may let through, and the catch-all last.
ENGINES: dict[str, EngineSpec] = {
    module.ENGINE.name: module.ENGINE
    for module in (
        llama_swap,
        ollama,
        lmstudio,
        trtllm,
        tgi,
        sglang,
        vllm,
        llamacpp,
        openai,
    )
}

ALL_PROBES: tuple[str, ...] = tuple(
    dict.fromkeys(path for engine in ENGINES.values() for path in engine.probes)
)
"""Every path to ask (GET) before `recognise`; none of them generates or changes anything."""

_OTHER_NAMES = {
    "llamaserver": "llamacpp",
    "tensorrtllm": "trtllm",
    "trtllmserve": "trtllm",
    "textgenerationinference": "tgi",
}
_PROGRAMS = {
    "llama-swap": "llama-swap",
    "llama-server": "llamacpp",
    "llama_cpp": "llamacpp",
    "llama.cpp": "llamacpp",
    "trtllm-serve": "trtllm",
    "text-generation-launcher": "tgi",
    "sglang": "sglang",
    "vllm": "vllm",
    "ollama": "ollama",
    "lms": "lmstudio",
}


def recognise(answers: Mapping[str, Answer]) -> EngineSpec:
    """Return the engine whose own marks the answers carry; `openai` where there are none."""
    scores = {name: engine.recognise(answers) for name, engine in ENGINES.items()}
    best = max(scores.values())
    if best == 0:
        return ENGINES["openai"]
    return next(ENGINES[name] for name, score in scores.items() if score == best)


def by_name(name: str) -> EngineSpec:
    """Return an engine by its name, however it is hyphenated. Raises UsageError."""
    wanted = _squeezed(name)
    known = {_squeezed(key): key for key in ENGINES} | _OTHER_NAMES
    if wanted in known:
        return ENGINES[known[wanted]]
    near = difflib.get_close_matches(wanted, known, n=1)
    hint = f"did you mean {known[near[0]]!r}?" if near else f"known are {', '.join(ENGINES)}"
    raise UsageError(f"no engine is called {name!r}: {hint}")


def of_command(argv: Sequence[str]) -> EngineSpec | None:
    """Return the engine that a command line starts, judged by its program's name."""
    for word in " ".join(argv).split():
        base = word.rsplit("/", 1)[-1].partition(":")[0]
        for program, name in _PROGRAMS.items():
            if base == program or base.startswith((f"{program}.", f"{program}-openai")):
                return ENGINES[name]
    return None


def parse_any_log(line: str) -> LogRecord | None:
    """Return what any engine reads in a line: for a proxy's log, which carries those behind it."""
    for engine in ENGINES.values():
        if (record := engine.parse_log(line)) is not None:
            return record
    return None


def _squeezed(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())

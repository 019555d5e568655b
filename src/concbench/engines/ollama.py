"""Ollama: configured by environment variables, no metrics page.

`describe` knows beyond `TargetFacts`: `memory_vram_bytes`, `size_bytes`, `parameters_label`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines.failures import COMMON, GPU
from concbench.engines.reading import (
    as_json,
    as_object,
    clean,
    dig,
    duration_ms,
    facts,
    first_model,
    merge,
    objects,
    owner,
    plain,
    positive,
    whole,
    word,
)
from concbench.engines.spec import Answer, EngineSpec, Fact, LogRecord, StartFailure, Trap
from concbench.errors import UsageError

DEFAULT_PARALLEL = 1
DEFAULT_QUEUE = 512
_GIN = re.compile(r'\[GIN\] .*?\| (\d{3}) \|\s*(\S+) \|\s*\S+ \| (\w+)\s+"([^"]+)"')
_STARTUP = (
    (re.compile(r"Listening on \S+ \(version ([\w.+-]+)\)"), "engine_version"),
    (re.compile(r"OLLAMA_NUM_PARALLEL:(\d+)"), "slots"),
    (re.compile(r"OLLAMA_CONTEXT_LENGTH:(\d+)"), "max_context_tok"),
    (re.compile(r"OLLAMA_KV_CACHE_TYPE:(\w+)"), "kv_cache_dtype"),
)


def recognise(answers: Mapping[str, Answer]) -> int:
    """Surely by its root page or its list of loaded models; `/api/version` others have too."""
    root = answers.get("/")
    if root is not None and root.ok and b"Ollama is running" in root.body:
        return 2
    loaded = dig(as_json(answers.get("/api/ps")), "models")
    if loaded == [] or any("digest" in model for model in objects(loaded)):
        return 2
    if "version" not in as_object(answers.get("/api/version")):
        return 0
    return 2 if owner(answers) == "library" else 1


def describe(
    answers: Mapping[str, Answer],
    argv: Sequence[str] | None,
    log_lines: Sequence[str],
) -> dict[str, Fact]:
    """Return what is loaded now; before the first request nothing is, and little is known."""
    loaded = dig(as_json(answers.get("/api/ps")), "models", 0)
    log: dict[str, Any] = {}
    for line in log_lines:
        record = parse_log(line)
        if record is not None and record.kind == "startup":
            log |= record.values
    log.pop("ready", None)
    return merge(
        facts(
            "endpoint:/api/ps",
            model=word(dig(loaded, "name")),
            quantization=word(dig(loaded, "details", "quantization_level")),
            parameters_label=word(dig(loaded, "details", "parameter_size")),
            max_context_tok=positive(dig(loaded, "context_length")),
            memory_vram_bytes=positive(dig(loaded, "size_vram")),
            size_bytes=positive(dig(loaded, "size")),
        ),
        facts(
            "endpoint:/api/version",
            engine_version=word(as_object(answers.get("/api/version")).get("version")),
        ),
        facts("endpoint:/v1/models", model=word(first_model(answers).get("id"))),
        facts("log", **log),
        {} if argv is None else facts("default", slots=DEFAULT_PARALLEL, prefix_caching=True),
    )


def to_argv(flags: Mapping[str, Any]) -> list[str]:
    """Return no words. Raises UsageError for any flag: `ollama serve` takes none."""
    if flags:
        raise UsageError(
            f"`ollama serve` takes no flags ({', '.join(flags)}): set environment variables, as in "
            'env = { OLLAMA_NUM_PARALLEL = "8" }'
        )
    return []


def parse_log(line: str) -> LogRecord | None:
    """Return a finished request or a start-up setting, else None."""
    text = clean(line)
    if match := _GIN.search(text):
        status, took, _, path = match.groups()
        values: dict[str, Any] = {"path": path, "status": whole(status)}
        if (took_ms := duration_ms(took)) is not None:
            values["total_ms"] = took_ms
        return LogRecord("request", values)
    settings: dict[str, Any] = {}
    for pattern, name in _STARTUP:
        if match := pattern.search(text):
            found = match.group(1)
            value = positive(found) if name in ("slots", "max_context_tok") else word(found)
            settings |= {} if value is None else {name: value}
    if "Listening on " in text:
        settings["ready"] = True
    return LogRecord("startup", settings) if settings else None


def request_fields(ignore_eos: bool, stream: bool) -> dict[str, Any]:  # noqa: FBT001
    """Ask for usage at the stream's end; there is no way to ignore the end of text."""
    return {"stream_options": {"include_usage": True}} if stream else {}


def traps(
    facts: Mapping[str, Any],
    argv: Sequence[str] | None,
    env: Mapping[str, str],
    concurrency: int | None,
) -> list[Trap]:
    """Return what to warn of; the settings count only where the environment is known."""
    launched = argv is not None
    found = [
        Trap(
            "truncates_silently",
            "unfair",
            "a prompt over the context is cut without a word; keep it well below, and compare the "
            "prompt tokens that were counted with those sent",
        ),
        Trap(
            "ends_early",
            "unfair",
            "the end of text cannot be ignored: answers may be shorter than asked for",
        ),
    ]
    known = plain(facts)
    parallel = positive(env.get("OLLAMA_NUM_PARALLEL")) or positive(known.get("slots"))
    if parallel is None and launched:
        parallel = DEFAULT_PARALLEL
    if parallel is None or concurrency is None or concurrency > parallel:
        told = "an unknown number of" if parallel is None else str(parallel)
        found.append(
            Trap(
                "slots_below_concurrency",
                "cap",
                f"{told} request(s) run at once (OLLAMA_NUM_PARALLEL, 1 unless set, and forced to "
                f"1 for some models): the rest waits",
            )
        )
    return [*found, *_limits(env, concurrency, launched=launched)]


def _limits(env: Mapping[str, str], concurrency: int | None, *, launched: bool) -> list[Trap]:
    found: list[Trap] = []
    queue = positive(env.get("OLLAMA_MAX_QUEUE")) or DEFAULT_QUEUE
    if concurrency is not None and concurrency > queue:
        found.append(
            Trap(
                "queue_limit",
                "cap",
                f"more than {queue} waiting requests get 503; raise OLLAMA_MAX_QUEUE",
            )
        )
    if launched and "OLLAMA_KEEP_ALIVE" not in env:
        found.append(
            Trap(
                "unloads_when_idle",
                "unfair",
                "the model is unloaded after 5 minutes without a request; set OLLAMA_KEEP_ALIVE=-1",
            )
        )
    return found


START_FAILURES: tuple[StartFailure, ...] = (
    StartFailure(
        r"model '[^']+' not found|pull model manifest: file does not exist",
        "the model is not there",
        "fetch it first (`ollama pull`)",
        "model_missing",
    ),
    StartFailure(
        r"model requires more system memory|llama runner process has terminated: .*memory",
        "the model does not fit into memory",
        "use a smaller model or less context",
        "oom",
    ),
    *GPU,
    *COMMON,
)

ENGINE = EngineSpec(
    name="ollama",
    label="Ollama",
    default_port=11434,
    probes=("/", "/api/version", "/api/ps", "/v1/models"),
    recognise=recognise,
    describe=describe,
    to_argv=to_argv,
    parse_log=parse_log,
    request_fields=request_fields,
    traps=traps,
    start_failures=START_FAILURES,
)

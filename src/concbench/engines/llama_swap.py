"""llama-swap: a proxy that starts and stops engines on demand.

Its `/running` tells which engines run and how they were started; `upstream_launch` is that
command line, for `describe` of the engine behind it (`registry.of_command` names it). Asking
`/upstream/<model>/…` would load a model, so no probe does.

`describe` knows beyond `TargetFacts`: `upstream_launch`, `upstream_url`, `upstream_state`,
`loaded`, `ttl_s`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines.failures import COMMON
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
from concbench.engines.spelling import Dialect, spell

CONCURRENCY_LIMIT = 10
_REQUEST = re.compile(r'Request \S+ "(\w+) (\S+) HTTP/[\d.]+" (\d{3}) (\d+) "[^"]*" (\S+)')


def recognise(answers: Mapping[str, Answer]) -> int:
    """Surely by `/running`, by `owned_by`, or by the models' `llamaswap` entry, also as a proxy."""
    if isinstance(as_object(answers.get("/running")).get("running"), list):
        return 2
    card = first_model(answers)
    return 2 if owner(answers) == "llama-swap" or dig(card, "meta", "llamaswap") else 0


def describe(
    answers: Mapping[str, Answer],
    argv: Sequence[str] | None,
    log_lines: Sequence[str],
) -> dict[str, Fact]:
    """Return what runs behind the proxy; its own flags say nothing about the model."""
    engines = objects(dig(as_json(answers.get("/running")), "running"))
    ready = next((item for item in engines if item.get("state") == "ready"), None)
    shown = ready or (engines[0] if engines else {})
    version = as_object(answers.get("/api/version")).get("version")
    return merge(
        facts(
            "endpoint:/running",
            model=word(shown.get("model")),
            upstream_launch=_words(shown.get("cmd")),
            upstream_url=word(shown.get("proxy")),
            upstream_state=word(shown.get("state")),
            loaded=ready is not None if "/running" in answers else None,
            ttl_s=whole(shown.get("ttl")),
        ),
        facts("endpoint:/api/version", engine_version=word(version)),
        facts("endpoint:/v1/models", model=word(first_model(answers).get("id"))),
    )


def _words(command: object) -> list[str] | None:
    if not isinstance(command, str) or not command.strip():
        return None
    try:
        return shlex.split(command.replace("\\\n", " "))
    except ValueError:
        return command.split()


def to_argv(flags: Mapping[str, Any]) -> list[str]:
    """Return the words for `llama-swap` (`--config FILE --listen ADDRESS`)."""
    return spell(flags, Dialect())


def parse_log(line: str) -> LogRecord | None:
    """Return a finished request of the proxy's own log, else None."""
    match = _REQUEST.search(clean(line))
    if match is None:
        return None
    _, path, status, size, took = match.groups()
    values: dict[str, Any] = {"path": path, "status": whole(status), "sent_bytes": whole(size)}
    if (took_ms := duration_ms(took)) is not None:
        values["total_ms"] = took_ms
    return LogRecord("request", values)


def request_fields(ignore_eos: bool, stream: bool) -> dict[str, Any]:  # noqa: FBT001 - EngineSpec's
    """Send what llama.cpp, the usual engine behind it, needs; vLLM ignores `cache_prompt`."""
    fields: dict[str, Any] = {"cache_prompt": False}
    if ignore_eos:
        fields["ignore_eos"] = True
    if stream:
        fields["stream_options"] = {"include_usage": True}
    return fields


def traps(
    facts: Mapping[str, Any],
    argv: Sequence[str] | None,
    env: Mapping[str, str],
    concurrency: int | None,
) -> list[Trap]:
    """Return what to warn of; the proxy's configuration cannot be read over HTTP."""
    known = plain(facts)
    found = [
        Trap(
            "loading_state_sent",
            "unfair",
            "with sendLoadingState the proxy sends reasoning of its own before the model's first "
            "token, and filters may rewrite parameters; set neither for this model",
        )
    ]
    if concurrency is None or concurrency > CONCURRENCY_LIMIT:
        found.append(
            Trap(
                "concurrency_limit",
                "cap",
                f"more than {CONCURRENCY_LIMIT} requests at once get 429 unless the model's "
                f"concurrencyLimit is raised",
            )
        )
    ttl_s = positive(known.get("ttl_s"))
    if ttl_s is not None:
        found.append(
            Trap(
                "unloads_when_idle",
                "unfair",
                f"the model is unloaded after {ttl_s} s without a request, and the next one pays "
                f"for loading it; set ttl: 0",
            )
        )
    return found


START_FAILURES: tuple[StartFailure, ...] = (
    StartFailure(
        r"(?i)(?:error|failed) (?:loading|reading|parsing) config|yaml: ",
        "the proxy's configuration cannot be read",
        "check the file given with --config",
        "other",
    ),
    StartFailure(
        r"(?i)health ?check timed? ?out|upstream (?:command )?exited prematurely",
        "the engine behind the proxy did not come up",
        "read that engine's log (/logs), or raise healthCheckTimeout",
        "other",
    ),
    *COMMON,
)

ENGINE = EngineSpec(
    name="llama-swap",
    label="llama-swap",
    default_port=8080,
    probes=("/running", "/api/version", "/v1/models"),
    recognise=recognise,
    describe=describe,
    to_argv=to_argv,
    parse_log=parse_log,
    request_fields=request_fields,
    traps=traps,
    ignores_eos=True,
    start_failures=START_FAILURES,
    loading=lambda answer: answer.status in (0, 502, 503, 504),
)

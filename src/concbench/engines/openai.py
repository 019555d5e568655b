"""Any other server that speaks the OpenAI API: nothing is assumed beyond it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines.failures import COMMON, GPU
from concbench.engines.reading import as_json, dig, facts, first_model, positive, word
from concbench.engines.spec import Answer, EngineSpec, Fact, LogRecord, Trap
from concbench.engines.spelling import Dialect, spell


def recognise(answers: Mapping[str, Answer]) -> int:
    """Could be, whenever `/v1/models` answers with a list; also where it only wants a key."""
    answer = answers.get("/v1/models")
    if answer is None:
        return 0
    return 1 if isinstance(dig(as_json(answer), "data"), list) or answer.status == 401 else 0


def describe(
    answers: Mapping[str, Answer],
    argv: Sequence[str] | None,
    log_lines: Sequence[str],
) -> dict[str, Fact]:
    """Return the model and, where the server tells it under a usual name, its context."""
    card = first_model(answers)
    context = next(
        (
            size
            for key in ("max_model_len", "context_length", "context_window", "max_context_length")
            if (size := positive(card.get(key))) is not None
        ),
        None,
    )
    return facts("endpoint:/v1/models", model=word(card.get("id")), max_context_tok=context)


def to_argv(flags: Mapping[str, Any]) -> list[str]:
    """Return `--name value` words; names with underscores keep none."""
    return spell(flags, Dialect())


def parse_log(line: str) -> LogRecord | None:
    """Return None: nothing is known of the log."""
    return None


def request_fields(ignore_eos: bool, stream: bool) -> dict[str, Any]:  # noqa: FBT001
    """Ask for usage at the stream's end; the API has no way to ignore the end of text."""
    return {"stream_options": {"include_usage": True}} if stream else {}


def traps(
    facts: Mapping[str, Any],
    argv: Sequence[str] | None,
    env: Mapping[str, str],
    concurrency: int | None,
) -> list[Trap]:
    """Say that the server's own account is missing."""
    return [
        Trap(
            "unknown_engine",
            "lane_incomplete",
            "the engine was not recognised: its counters, KV cache and settings are unknown, and "
            "answers can end before the length asked for",
        )
    ]


ENGINE = EngineSpec(
    name="openai",
    label="OpenAI-compatible server",
    default_port=8000,
    probes=("/v1/models",),
    recognise=recognise,
    describe=describe,
    to_argv=to_argv,
    parse_log=parse_log,
    request_fields=request_fields,
    traps=traps,
    start_failures=(*GPU, *COMMON),
)

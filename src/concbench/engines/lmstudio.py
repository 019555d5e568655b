"""LM Studio: closed source, known from its documentation alone; no metrics page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines.failures import COMMON, GPU
from concbench.engines.reading import (
    as_json,
    dig,
    facts,
    first_model,
    merge,
    objects,
    positive,
    word,
)
from concbench.engines.spec import Answer, EngineSpec, Fact, LogRecord, Trap
from concbench.engines.spelling import Dialect, spell

MODELS = "/api/v0/models"


def recognise(answers: Mapping[str, Answer]) -> int:
    """Surely by its own list of models, whose entries carry a state."""
    models = dig(as_json(answers.get(MODELS)), "data")
    if not isinstance(models, list):
        return 0
    return 2 if not models or dig(models, 0, "state") is not None else 1


def describe(
    answers: Mapping[str, Answer],
    argv: Sequence[str] | None,
    log_lines: Sequence[str],
) -> dict[str, Fact]:
    """Return what the list of models tells of the loaded one, else of the only one."""
    cards = objects(dig(as_json(answers.get(MODELS)), "data"))
    loaded = [card for card in cards if card.get("state") == "loaded"]
    card = loaded[0] if loaded else (cards[0] if len(cards) == 1 else {})
    return merge(
        facts(
            f"endpoint:{MODELS}",
            model=word(card.get("id")),
            quantization=word(card.get("quantization")),
            max_context_tok=positive(card.get("loaded_context_length")),
            trained_context_tok=positive(card.get("max_context_length")),
            loaded=bool(loaded) if cards else None,
        ),
        facts("endpoint:/v1/models", model=word(first_model(answers).get("id"))),
    )


def to_argv(flags: Mapping[str, Any]) -> list[str]:
    """Return the words for `lms server start`."""
    return spell(flags, Dialect())


def parse_log(line: str) -> LogRecord | None:
    """Return None: the log's form is not documented."""
    return None


def request_fields(ignore_eos: bool, stream: bool) -> dict[str, Any]:  # noqa: FBT001
    """Ask for usage at the stream's end; there is no documented way to ignore the end of text."""
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
            "no_metrics",
            "lane_incomplete",
            "the server has no counters: its own rate, queue and KV cache are unknown",
        ),
        Trap(
            "ends_early",
            "unfair",
            "the end of text cannot be ignored: answers may be shorter than asked for",
        ),
    ]


ENGINE = EngineSpec(
    name="lmstudio",
    label="LM Studio",
    default_port=1234,
    probes=(MODELS, "/v1/models"),
    recognise=recognise,
    describe=describe,
    to_argv=to_argv,
    parse_log=parse_log,
    request_fields=request_fields,
    traps=traps,
    start_failures=(*GPU, *COMMON),
)

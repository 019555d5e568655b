"""Hugging Face's Text Generation Inference.

`describe` knows beyond `TargetFacts`: `model_path`, `max_input_tok`, `total_context_tok`,
`max_concurrent_requests`, `weights_dtype`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines.failures import COMMON, GPU
from concbench.engines.reading import (
    as_object,
    body_has,
    clean,
    duration_ms,
    facts,
    first_model,
    merge,
    plain,
    positive,
    told,
    whole,
    word,
)
from concbench.engines.spec import Answer, EngineSpec, Fact, LogRecord, Metric, StartFailure, Trap
from concbench.engines.spelling import Dialect, read_words, spell

DEFAULT_CONCURRENT = 128
DIALECT = Dialect(switches=frozenset({"trust-remote-code", "disable-custom-kernels"}))

METRICS: dict[str, Metric] = {
    "generated_tok": Metric(("tgi_request_generated_tokens_sum",), moves="request"),
    "prompt_tok": Metric(("tgi_request_input_length_sum",), moves="request"),
    "running": Metric(("tgi_batch_current_size",)),
    "waiting": Metric(("tgi_queue_size",)),
    "kv_used_tok": Metric(("tgi_batch_current_max_tokens",)),
    "kv_capacity_tok": Metric(("tgi_batch_max_total_tokens",)),
    "requests_ok": Metric(("tgi_request_success", "tgi_request_success_total"), moves="request"),
    "requests_failed": Metric(
        ("tgi_request_failure", "tgi_request_failure_total"), moves="request"
    ),
    "requests_started": Metric(("tgi_request_count", "tgi_request_count_total")),
    "spec_skipped_tok": Metric(("tgi_request_skipped_tokens_sum",), moves="request"),
    "queue_s": Metric(("tgi_request_queue_duration",)),
    "e2e_s": Metric(("tgi_request_duration",)),
    "inference_s": Metric(("tgi_request_inference_duration",)),
    "tpot_s": Metric(("tgi_request_mean_time_per_token_duration",)),
    "request_generated_tok": Metric(("tgi_request_generated_tokens",)),
    "request_prompt_tok": Metric(("tgi_request_input_length",)),
}
"""Canonical name → where it is found; there is no time to first token."""

_SPAN = re.compile(
    r"\b(total_time|validation_time|queue_time|inference_time|time_per_token)"
    r"=(?:Some\()?\"?([\d.]+(?:ns|µs|us|ms|s))\"?"
)
_SPAN_NAMES = {
    "total_time": "total_ms",
    "validation_time": "validation_ms",
    "queue_time": "queue_ms",
    "inference_time": "inference_ms",
    "time_per_token": "token_ms",
}
_BATCH_TOTAL = re.compile(r"Setting max batch total tokens to (\d+)")


def recognise(answers: Mapping[str, Answer]) -> int:
    """Surely by `/info` with its two limits, or by a `tgi_` metric."""
    info = as_object(answers.get("/info"))
    if "model_id" in info and {"max_total_tokens", "max_concurrent_requests"} & set(info):
        return 2
    return 2 if body_has(answers.get("/metrics"), b"tgi_") else 0


def describe(
    answers: Mapping[str, Answer], argv: Sequence[str] | None, log_lines: Sequence[str]
) -> dict[str, Fact]:
    """Return what the server, its start-up log and its command line tell, in that order."""
    info = as_object(answers.get("/info"))
    flags = read_words(argv, DIALECT)
    log: dict[str, Any] = {}
    for line in log_lines:
        record = parse_log(line)
        if record is not None and record.kind == "startup":
            log |= record.values
    log.pop("ready", None)
    known = merge(
        facts(
            "endpoint:/info",
            engine_version=word(info.get("version")),
            model=word(info.get("model_id")),
            max_context_tok=positive(info.get("max_total_tokens")),
            max_input_tok=positive(info.get("max_input_tokens") or info.get("max_input_length")),
            max_concurrent_requests=positive(info.get("max_concurrent_requests")),
            kv_capacity_tok=positive(info.get("max_batch_total_tokens")),
            weights_dtype=word(info.get("model_dtype")),
        ),
        facts("endpoint:/v1/models", model=word(first_model(answers).get("id"))),
        facts("log", **log),
        facts(
            "argv",
            model=word(flags.get("model-id")),
            model_path=word(flags.get("model-id")),
            quantization=word(flags.get("quantize")),
            kv_cache_dtype=word(flags.get("kv-cache-dtype")),
            max_context_tok=positive(flags.get("max-total-tokens")),
            max_concurrent_requests=positive(flags.get("max-concurrent-requests")),
            speculation=word(flags.get("speculate")),
        ),
        {}
        if argv is None
        else facts("default", max_concurrent_requests=DEFAULT_CONCURRENT, prefix_caching=True),
    )
    if "kv_capacity_tok" in known:
        known.setdefault("total_context_tok", known["kv_capacity_tok"])
    return known


def to_argv(flags: Mapping[str, Any]) -> list[str]:
    """Return the words for `text-generation-launcher`."""
    return spell(flags, DIALECT)


def parse_log(line: str) -> LogRecord | None:
    """Return a finished request's times or what start-up tells, else None. Never raises."""
    text = clean(line)
    values: dict[str, Any] = {}
    for name, found in _SPAN.findall(text):
        if (took_ms := duration_ms(found)) is not None:
            values[_SPAN_NAMES[name]] = took_ms
    if "total_ms" in values:
        return LogRecord("request", values)
    started: dict[str, Any] = {}
    if match := _BATCH_TOTAL.search(text):
        started["kv_capacity_tok"] = whole(match.group(1))
    if re.search(r"text_generation_router.*\bConnected\b", text):
        started["ready"] = True
    return LogRecord("startup", told(started)) if started else None


def request_fields(ignore_eos: bool, stream: bool) -> dict[str, Any]:  # noqa: FBT001
    """Ask for usage at the stream's end; the end of text cannot be ignored."""
    return {"stream_options": {"include_usage": True}} if stream else {}


def traps(
    facts: Mapping[str, Any],
    argv: Sequence[str] | None,
    env: Mapping[str, str],
    concurrency: int | None,
) -> list[Trap]:
    """Return what to warn of for this lane, at this concurrency where it is known."""
    known = plain(facts)
    limit = positive(known.get("max_concurrent_requests")) or DEFAULT_CONCURRENT
    found = [
        Trap(
            "ends_early",
            "unfair",
            "the end of text cannot be ignored: answers may be shorter than asked for",
        )
    ]
    if concurrency is not None and concurrency > limit:
        found.append(
            Trap(
                "queue_limit",
                "cap",
                f"more than {limit} requests at once get 429 (--max-concurrent-requests); raise it",
            )
        )
    if known.get("prefix_caching") is True:
        found.append(
            Trap(
                "prefix_caching_on",
                "unfair",
                "prefixes may be cached: keep prompts distinct, or set PREFIX_CACHING=0",
            )
        )
    return found


ENGINE = EngineSpec(
    name="tgi",
    label="Text Generation Inference",
    default_port=3000,
    probes=("/info", "/metrics", "/v1/models"),
    recognise=recognise,
    describe=describe,
    to_argv=to_argv,
    parse_log=parse_log,
    request_fields=request_fields,
    traps=traps,
    metrics_path="/metrics",
    metrics=METRICS,
    start_failures=(
        StartFailure(
            r"Not enough memory to handle \d+ (?:prefill|total) tokens",
            "no memory is left for one full-length request",
            "lower --max-total-tokens or --max-batch-prefill-tokens",
            "oom",
        ),
        *GPU,
        *COMMON,
    ),
)

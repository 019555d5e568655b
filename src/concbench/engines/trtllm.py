"""TensorRT-LLM: `trtllm-serve`.

Its `/metrics` is a JSON list of iteration statistics that a read consumes, and `/perf_metrics`
drains too; only `/prometheus/metrics` (with `return_perf_metrics`) can be read repeatedly.
`metrics.read_page` reads both. `describe` knows beyond `TargetFacts`: `kv_bytes`,
`total_context_tok`, `max_batched_tok`, `tensor_parallel`, `kv_memory_fraction`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines.failures import COMMON, GPU
from concbench.engines.metrics import pick, read_page
from concbench.engines.reading import (
    GIB,
    as_object,
    body_has,
    bytes_of,
    clean,
    facts,
    first_model,
    merge,
    number,
    owner,
    plain,
    positive,
    told,
    truth,
    whole,
    word,
)
from concbench.engines.spec import Answer, EngineSpec, Fact, LogRecord, Metric, StartFailure, Trap
from concbench.engines.spelling import Dialect, positional, read_words, spell

PROMETHEUS = "/prometheus/metrics"
DIALECT = Dialect(
    aliases={
        "tp-size": "tensor-parallel-size",
        "free-gpu-memory-fraction": "kv-cache-free-gpu-memory-fraction",
        "extra-llm-api-options": "config",
    },
    switches=frozenset({"trust-remote-code"}),
    separator="_",
)

METRICS: dict[str, Metric] = {
    "generated_tok": Metric(("trtllm_generation_tokens_total",), moves="request"),
    "prompt_tok": Metric(("trtllm_prompt_tokens_total",), moves="request"),
    "cached_tok": Metric(("trtllm_prompt_cached_tokens_total",), moves="request"),
    "running": Metric(("trtllm_num_requests_running", "numActiveRequests")),
    "waiting": Metric(("trtllm_num_requests_waiting", "numQueuedRequests")),
    "paused": Metric(("trtllm_num_paused_requests", "inflightBatchingStats.numPausedRequests")),
    "kv_usage": Metric(("trtllm_kv_cache_utilization",), combine="max"),
    "kv_max_blocks": Metric(("trtllm_kv_cache_max_blocks", "kvCacheStats.maxNumBlocks")),
    "kv_used_blocks": Metric(("trtllm_kv_cache_used_blocks", "kvCacheStats.usedNumBlocks")),
    "kv_block_tok": Metric(
        ("trtllm_kv_cache_tokens_per_block", "kvCacheStats.tokensPerBlock"), combine="first"
    ),
    "prefix_hit_rate": Metric(
        ("trtllm_kv_cache_hit_rate", "kvCacheStats.cacheHitRate"), combine="max"
    ),
    "step_ms": Metric(("iterLatencyMS",), combine="first"),
    "requests_ok": Metric(
        ("trtllm_request_success_total",),
        labels={"finished_reason": "stop|length|"},
        moves="request",
    ),
    "spec_draft_tok": Metric(("trtllm_spec_decode_num_draft_tokens_total",), moves="request"),
    "spec_accepted_tok": Metric(("trtllm_spec_decode_num_accepted_tokens_total",), moves="request"),
    "spec_accept_len": Metric(("specDecodingStats.acceptanceLength",), combine="first"),
    "queue_s": Metric(("trtllm_request_queue_time_seconds",)),
    "ttft_s": Metric(("trtllm_time_to_first_token_seconds",)),
    "tpot_s": Metric(("trtllm_time_per_output_token_seconds",)),
    "e2e_s": Metric(("trtllm_e2e_request_latency_seconds",)),
}
"""Canonical name → where it is found; dotted names are those of the JSON page."""


def recognise(answers: Mapping[str, Answer]) -> int:
    """Surely by `owned_by` or a `trtllm_` metric."""
    if owner(answers).replace("-", "_") in ("tensorrt_llm", "trtllm"):
        return 2
    return 2 if body_has(answers.get(PROMETHEUS), b"trtllm_") else 0


def describe(
    answers: Mapping[str, Answer], argv: Sequence[str] | None, log_lines: Sequence[str]
) -> dict[str, Fact]:
    """Return what the server, its start-up log and its command line tell, in that order."""
    log: dict[str, Any] = {}
    for line in log_lines:
        record = parse_log(line)
        if record is None or record.kind != "startup":
            continue
        for key, value in record.values.items():
            smaller = key == "kv_capacity_tok" and key in log
            log[key] = min(log[key], value) if smaller else value
    log.pop("ready", None)
    known = merge(
        _from_endpoints(answers),
        facts("log", **log),
        facts("argv", **_from_flags(argv)),
        {} if argv is None else facts("default", prefix_caching=True, tensor_parallel=1),
    )
    if "kv_capacity_tok" in known:
        known.setdefault("total_context_tok", known["kv_capacity_tok"])
    return known


def _from_endpoints(answers: Mapping[str, Answer]) -> dict[str, Fact]:
    page = answers.get(PROMETHEUS)
    samples = read_page(page.body.decode("utf-8", "replace")) if page and page.ok else []
    blocks, size = pick(samples, METRICS["kv_max_blocks"]), pick(samples, METRICS["kv_block_tok"])
    return merge(
        facts(
            "endpoint:/version",
            engine_version=word(as_object(answers.get("/version")).get("version")),
        ),
        facts("endpoint:/v1/models", model=word(first_model(answers).get("id"))),
        facts(
            f"endpoint:{PROMETHEUS}",
            kv_capacity_tok=None if blocks is None or size is None else positive(blocks * size),
        ),
    )


def _from_flags(argv: Sequence[str] | None) -> dict[str, Any]:
    flags = read_words(argv, DIALECT)
    model = positional(argv, "serve") or positional(argv, "trtllm-serve")
    return {
        "model": model,
        "model_path": model,
        "slots": positive(flags.get("max-batch-size")),
        "max_context_tok": positive(flags.get("max-seq-len")),
        "max_batched_tok": positive(flags.get("max-num-tokens")),
        "tensor_parallel": positive(flags.get("tensor-parallel-size")),
        "kv_memory_fraction": number(flags.get("kv-cache-free-gpu-memory-fraction")),
        "kv_cache_dtype": word(flags.get("kv-cache-dtype")),
    }


def to_argv(flags: Mapping[str, Any]) -> list[str]:
    """Return the words for `trtllm-serve MODEL`, with underscores in names."""
    return spell(flags, DIALECT)


_ITERATION = re.compile(r"\biter = (\d+), (?:global_)?rank = (\d+)")
_STATES = {
    "num_ctx_requests": "prefilling",
    "num_ctx_tokens": "prompt_tok",
    "num_generation_tokens": "output_tok",
}
_KV_ALLOCATED = re.compile(
    r"Allocated (\d+(?:\.\d+)?) GiB for max tokens in paged KV cache \((\d+)\)"
)
_LIMITS = re.compile(r"max_seq_len=(\d+), max_num_requests=(\d+), max_num_tokens=(\d+)")


def parse_log(line: str) -> LogRecord | None:
    """Return an iteration or what start-up tells, else None. Never raises."""
    text = clean(line)
    if match := _ITERATION.search(text):
        return LogRecord("iteration", _iteration(text, match.group(1)), match.group(2))
    values: dict[str, Any] = {}
    if match := _KV_ALLOCATED.search(text):
        values["kv_bytes"] = bytes_of(match.group(1), GIB)
        values["kv_capacity_tok"] = whole(match.group(2))
    if match := _LIMITS.search(text):
        names = ("max_context_tok", "slots", "max_batched_tok")
        values |= dict(zip(names, map(whole, match.groups()), strict=True))
    if "Application startup complete" in text:
        values["ready"] = True
    return LogRecord("startup", told(values)) if values else None


def _iteration(text: str, iteration: str) -> dict[str, Any]:
    values: dict[str, Any] = {"iteration": whole(iteration)}
    if match := re.search(r"num_scheduled_requests(?: =|:) (\d+)", text):
        values["running"] = whole(match.group(1))
    if match := re.search(r"currank_total_requests = (\d+)/(\d+)", text):
        values["active"], values["total"] = map(whole, match.groups())
    if match := re.search(r"kv_cache_util = ([\d.]+)", text):
        values["kv_usage"] = number(match.group(1))
    if match := re.search(r"host_step_time = ([\d.]+)ms", text):
        values["step_ms"] = number(match.group(1))
    if match := re.search(r"prev_device_step_time = ([\d.]+)ms", text):
        values["device_step_ms"] = number(match.group(1))
    if match := re.search(r"elapsed_time = ([\d.]+)s", text):
        seconds = number(match.group(1))
        values["step_ms"] = None if seconds is None else seconds * 1e3
    for name, key in _STATES.items():
        if match := re.search(rf"'{name}': (\d+)", text):
            values[key] = whole(match.group(1))
    return told(values)


def request_fields(ignore_eos: bool, stream: bool) -> dict[str, Any]:  # noqa: FBT001 - EngineSpec's
    """Return only fields that the server knows: it rejects a request with any other."""
    fields: dict[str, Any] = {"ignore_eos": True} if ignore_eos else {}
    if stream:
        fields["stream_options"] = {"include_usage": True}
    return fields


def traps(
    facts: Mapping[str, Any],
    argv: Sequence[str] | None,
    env: Mapping[str, str],
    concurrency: int | None,
) -> list[Trap]:
    """Return what to warn of for this lane, at this concurrency where it is known."""
    known = plain(facts)
    slots = positive(known.get("slots"))
    found = [
        Trap(
            "metrics_consumed",
            "lane_incomplete",
            "/metrics hands each iteration's statistics out once: no other reader may poll it; "
            "for counters set return_perf_metrics (and enable_iter_perf_stats) in the server's "
            "options",
        )
    ]
    if truth(known.get("prefix_caching")) is True:
        found.append(
            Trap(
                "prefix_caching_on",
                "unfair",
                "KV blocks are reused: repeated prompts are not computed again; keep prompts "
                "distinct, or set enable_block_reuse: false",
            )
        )
    if slots is not None and concurrency is not None and concurrency > slots:
        found.append(
            Trap(
                "slots_below_concurrency",
                "cap",
                f"at most {slots} requests run at once (--max_batch_size): of {concurrency} the "
                f"rest waits",
            )
        )
    if argv is not None and slots is None:
        found.append(
            Trap(
                "default_max_batch_size",
                "cap",
                "--max_batch_size is not set: set it so that lanes can be compared",
            )
        )
    return found


ENGINE = EngineSpec(
    name="trtllm",
    label="TensorRT-LLM",
    default_port=8000,
    probes=("/version", "/v1/models", PROMETHEUS),
    recognise=recognise,
    describe=describe,
    to_argv=to_argv,
    parse_log=parse_log,
    request_fields=request_fields,
    traps=traps,
    metrics_path=PROMETHEUS,
    metrics=METRICS,
    ignores_eos=True,
    start_failures=(
        StartFailure(
            r"Unknown (?:class|field|key) .*(?:LlmArgs|extra_llm_api_options)|"
            r"Extra inputs are not permitted",
            "an option in the server's YAML file is unknown to this version",
            "correct the file given with --config or --extra_llm_api_options",
            "unknown_flag",
        ),
        StartFailure(
            r"No valid KV cache|Insufficient memory for KV cache|"
            r"free memory .* KV cache .* (?:too small|insufficient)",
            "no memory is left for the KV cache",
            "lower --max_seq_len or --max_batch_size, or raise --kv_cache_free_gpu_memory_fraction",
            "oom",
        ),
        *GPU,
        *COMMON,
    ),
)

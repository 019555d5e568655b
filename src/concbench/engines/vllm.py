"""vLLM: `vllm serve` and its OpenAI server, V0 (0.6) to V1 (0.33).

`describe` knows beyond `TargetFacts`: `model_path`, `total_context_tok`, `kv_bytes`,
`kv_unused_tok` and `kv_unused_bytes` (what the smallest rank leaves unused on the others),
`kv_block_tok`, `kv_max_concurrency`, `weights_bytes`, `weights_dtype`, `tensor_parallel`,
`pipeline_parallel`, `data_parallel`, `speculation_tok`, `speculation_draft`,
`simulated_acceptance`, `sampling_defaults`, `generation_config`, `cuda_graph_max_tok`,
`max_batched_tok`, `gpu_memory_utilization`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from concbench.engines.metrics import info, read_page
from concbench.engines.reading import (
    as_object,
    body_has,
    dig,
    facts,
    first_model,
    merge,
    number,
    owner,
    positive,
    told,
    truth,
    whole,
    word,
)
from concbench.engines.spec import Answer, EngineSpec, Fact, LogRecord
from concbench.engines.spelling import Dialect, positional, read_words, spell
from concbench.engines.vllm_failures import START_FAILURES
from concbench.engines.vllm_log import parse_log
from concbench.engines.vllm_metrics import METRICS
from concbench.engines.vllm_traps import traps

SERVER_INFO = "/server_info?config_format=json"
DEFAULT_BLOCK_TOK = 16

DIALECT = Dialect(
    aliases={
        "tp": "tensor-parallel-size",
        "pp": "pipeline-parallel-size",
        "dp": "data-parallel-size",
        "dcp": "decode-context-parallel-size",
        "ep": "enable-expert-parallel",
        "q": "quantization",
        "cc": "compilation-config",
        "O": "compilation-config",
        "sc": "speculative-config",
        "ac": "attention-config",
        "asc": "api-server-count",
        "cuda-graph-sizes": "cudagraph-capture-sizes",
    },
    short=frozenset({"tp", "pp", "dp", "dcp", "ep", "cc", "sc", "ac", "asc"}),
    switches=frozenset(
        {
            "enforce-eager",
            "enable-prefix-caching",
            "enable-chunked-prefill",
            "enable-expert-parallel",
            "trust-remote-code",
            "disable-log-stats",
            "disable-log-requests",
            "enable-auto-tool-choice",
            "enable-server-load-tracking",
            "enable-force-include-usage",
            "enable-prompt-tokens-details",
            "enable-per-request-metrics",
            "enable-logging-iteration-details",
            "async-scheduling",
            "headless",
        }
    ),
    many=frozenset({"served-model-name", "cudagraph-capture-sizes", "lora-modules", "middleware"}),
    negatable=None,
    unnegatable=frozenset({"disable-log-stats", "disable-log-requests", "headless"}),
)


def recognise(answers: Mapping[str, Answer]) -> int:
    """Surely by `owned_by` or a `vllm:` metric; perhaps by a bare version."""
    if owner(answers) == "vllm" or body_has(answers.get("/metrics"), b"vllm:"):
        return 2
    if "vllm_config" in as_object(answers.get(SERVER_INFO)):
        return 2
    version = as_object(answers.get("/version"))
    return 1 if set(version) == {"version"} else 0


def describe(
    answers: Mapping[str, Answer], argv: Sequence[str] | None, log_lines: Sequence[str]
) -> dict[str, Fact]:
    """Return what the server, its start-up log and its command line tell, in that order."""
    flags = _flags(argv)
    log = _from_log([record for line in log_lines if (record := parse_log(line))], flags)
    defaults = {} if argv is None else _defaults(flags)
    known = merge(_from_endpoints(answers), log, facts("argv", **_from_flags(flags)), defaults)
    capacity = known.get("kv_capacity_tok")
    if capacity is not None:
        known.setdefault("total_context_tok", capacity)
    return known


def to_argv(flags: Mapping[str, Any]) -> list[str]:
    """Return the words for `vllm serve MODEL …`; objects as JSON, False as `--no-…`."""
    return spell(flags, DIALECT)


def request_fields(ignore_eos: bool, stream: bool) -> dict[str, Any]:  # noqa: FBT001 - EngineSpec's
    """Ask for exact counts with every chunk, and for the full length."""
    fields: dict[str, Any] = {"ignore_eos": True} if ignore_eos else {}
    if stream:
        fields["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return fields


def _flags(argv: Sequence[str] | None) -> dict[str, Any]:
    flags = read_words(argv, DIALECT)
    model = positional(argv, "serve")
    return flags if model is None else {"model": model, **flags}


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts, unknown ones None, from flags by their canonical names."""
    compilation = flags.get("compilation-config")
    replicas = positive(flags.get("data-parallel-size")) or 1
    running = positive(flags.get("max-num-seqs"))
    served = flags.get("served-model-name")
    override = flags.get("override-generation-config")
    return {
        "model": (str(served[0]) if isinstance(served, list) and served else word(served))
        or word(flags.get("model")),
        "model_path": word(flags.get("model")) or word(flags.get("model-tag")),
        "quantization": word(flags.get("quantization")),
        "kv_cache_dtype": word(flags.get("kv-cache-dtype")),
        "max_context_tok": positive(flags.get("max-model-len")),
        "slots": None if running is None else running * replicas,
        "tensor_parallel": positive(flags.get("tensor-parallel-size")),
        "pipeline_parallel": positive(flags.get("pipeline-parallel-size")),
        "data_parallel": positive(flags.get("data-parallel-size")),
        "prefix_caching": truth(flags.get("enable-prefix-caching")),
        "eager": _eager(flags.get("enforce-eager"), compilation),
        "generation_config": word(flags.get("generation-config")),
        "sampling_defaults": override if isinstance(override, dict) else None,
        "max_batched_tok": positive(flags.get("max-num-batched-tokens")),
        "gpu_memory_utilization": number(flags.get("gpu-memory-utilization")),
        "kv_block_tok": positive(flags.get("block-size")),
        "cuda_graph_max_tok": _graph_ceiling(flags),
        **_speculation(flags.get("speculative-config"), flags),
    }


def _eager(enforced: Any, compilation: Any) -> bool | None:  # noqa: ANN401 - a flag's value
    if truth(enforced) is not None:
        return truth(enforced)
    mode = dig(compilation, "cudagraph_mode")
    return True if isinstance(mode, str) and mode.upper() == "NONE" else None


def _graph_ceiling(flags: Mapping[str, Any]) -> int | None:
    compilation = flags.get("compilation-config")
    largest = positive(flags.get("max-cudagraph-capture-size")) or positive(
        dig(compilation, "max_cudagraph_capture_size")
    )
    sizes = flags.get("cudagraph-capture-sizes") or dig(compilation, "cudagraph_capture_sizes")
    listed = [sizes] if isinstance(sizes, (str, int)) else sizes
    if largest is None and isinstance(listed, list):
        largest = max((size for item in listed if (size := positive(item))), default=None)
    return largest


def _speculation(config: Any, flags: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Return the facts on speculation; `config` is the JSON object, else the V0 flags are read."""
    if not isinstance(config, dict):
        draft = word(flags.get("speculative-model"))
        if draft is None:
            return {}
        config = {"model": draft, "num_speculative_tokens": flags.get("num-speculative-tokens")}
        if draft.strip("[]") == "ngram":
            config["method"] = "ngram"
    depth = positive(config.get("num_speculative_tokens") or config.get("num_spec_tokens"))
    method = word(config.get("method")) or "draft"
    synthetic = config.get("rejection_sample_method") == "synthetic" or any(
        str(key).startswith("synthetic_") for key in config
    )
    return {
        "speculation": method if depth is None else f"{method} k={depth}",
        "speculation_tok": depth,
        "speculation_draft": word(config.get("model")),
        "simulated_acceptance": synthetic,
    }


def _defaults(flags: Mapping[str, Any]) -> dict[str, Fact]:
    spec_given = "speculative-config" in flags or "speculative-model" in flags
    return facts(
        "default",
        kv_cache_dtype="auto",
        prefix_caching=True,
        eager=False,
        tensor_parallel=1,
        generation_config="auto",
        speculation=None if spec_given else "none",
        simulated_acceptance=False,
    )


def _from_endpoints(answers: Mapping[str, Answer]) -> dict[str, Fact]:
    card = first_model(answers)
    models = facts(
        "endpoint:/v1/models",
        model=word(card.get("id")),
        model_path=word(card.get("root")),
        max_context_tok=positive(card.get("max_model_len")),
    )
    version = word(as_object(answers.get("/version")).get("version"))
    return merge(
        facts("endpoint:/version", engine_version=version),
        models,
        _from_metrics(answers.get("/metrics")),
        _from_server_info(as_object(answers.get(SERVER_INFO))),
    )


def _from_metrics(answer: Answer | None) -> dict[str, Fact]:
    if answer is None or not answer.ok:
        return {}
    samples = read_page(answer.body.decode("utf-8", "replace"))
    engines = info(samples, METRICS["kv_config"])
    if not engines:
        return {}
    sizes = [
        positive(labels.get("kv_cache_size_tokens")) or _blocks_tok(labels) for labels in engines
    ]
    labels = engines[0]
    return facts(
        "endpoint:/metrics",
        kv_capacity_tok=sum(size for size in sizes if size) if all(sizes) else None,
        kv_block_tok=positive(labels.get("block_size")),
        kv_max_concurrency=number(labels.get("kv_cache_max_concurrency")),
        kv_cache_dtype=word(labels.get("cache_dtype")),
        prefix_caching=truth(labels.get("enable_prefix_caching")),
        gpu_memory_utilization=number(labels.get("gpu_memory_utilization")),
    )


def _blocks_tok(labels: Mapping[str, str]) -> int | None:
    blocks, size = positive(labels.get("num_gpu_blocks")), positive(labels.get("block_size"))
    return blocks * size if blocks and size else None


def _from_server_info(answer: Mapping[str, Any]) -> dict[str, Fact]:
    config = answer.get("vllm_config")
    if not isinstance(config, dict):
        return {}
    flags = {
        "model": dig(config, "model_config", "model"),
        "quantization": dig(config, "model_config", "quantization"),
        "generation-config": dig(config, "model_config", "generation_config"),
        "enforce-eager": dig(config, "model_config", "enforce_eager"),
        "max-model-len": dig(config, "model_config", "max_model_len"),
        "kv-cache-dtype": dig(config, "cache_config", "cache_dtype"),
        "enable-prefix-caching": dig(config, "cache_config", "enable_prefix_caching"),
        "tensor-parallel-size": dig(config, "parallel_config", "tensor_parallel_size"),
        "pipeline-parallel-size": dig(config, "parallel_config", "pipeline_parallel_size"),
        "data-parallel-size": dig(config, "parallel_config", "data_parallel_size"),
        "max-num-seqs": dig(config, "scheduler_config", "max_num_seqs"),
        "max-num-batched-tokens": dig(config, "scheduler_config", "max_num_batched_tokens"),
        "compilation-config": config.get("compilation_config"),
        "speculative-config": config.get("speculative_config"),
    }
    known = _from_flags(flags)
    if "speculative_config" in config and config["speculative_config"] is None:
        known |= {"speculation": "none", "simulated_acceptance": False}
    return facts("endpoint:/server_info", **known)


def _from_log(records: Sequence[LogRecord], flags: Mapping[str, Any]) -> dict[str, Fact]:
    """Fold the start-up records of all processes into facts."""
    startup = [record for record in records if record.kind == "startup"]
    known: dict[str, Any] = {}
    for record in startup:
        values = dict(record.values)
        printed = values.pop("flags", None)
        if isinstance(printed, dict):
            known |= told(_from_flags(printed))
        config = values.pop("speculative_config", None)
        if isinstance(config, dict):
            known |= {**told(_speculation(config, {})), **told(known)}
        known |= {key: value for key, value in values.items() if key not in known}
    block_tok = positive(flags.get("block-size")) or DEFAULT_BLOCK_TOK
    known |= _capacity(startup, block_tok)
    known |= _memory(startup)
    for name in ("ready", "kv_blocks", "kv_cpu_blocks"):
        known.pop(name, None)
    return facts("log", **known)


def _by_replica(records: Iterable[LogRecord], name: str, factor: int = 1) -> dict[str, list[int]]:
    """Return the values of one name for each data-parallel replica, one a rank."""
    groups: dict[str, list[int]] = {}
    for record in records:
        if (value := whole(record.values.get(name))) is not None:
            replica = re.search(r"DP(\d+)", record.key)
            groups.setdefault(replica.group(1) if replica else "0", []).append(value * factor)
    return groups


def _capacity(startup: Sequence[LogRecord], block_tok: int) -> dict[str, Any]:
    """Return the pool: within a replica the smallest rank decides, and replicas add up."""
    groups = _by_replica(startup, "kv_capacity_tok") or _by_replica(startup, "kv_blocks", block_tok)
    if not groups:
        return {}
    capacity = sum(min(ranks) for ranks in groups.values())
    unused = sum(size - min(ranks) for ranks in groups.values() for size in ranks)
    return {"kv_capacity_tok": capacity, "kv_unused_tok": unused or None}


def _memory(startup: Sequence[LogRecord]) -> dict[str, Any]:
    pools = _by_replica(startup, "kv_bytes")
    weights = _by_replica(startup, "weights_bytes")
    known: dict[str, Any] = {}
    if pools:
        known["kv_bytes"] = sum(min(ranks) * len(ranks) for ranks in pools.values())
        unused = sum(size - min(ranks) for ranks in pools.values() for size in ranks)
        known["kv_unused_bytes"] = unused or None
    if weights:
        known["weights_bytes"] = sum(sum(ranks) for ranks in weights.values())
    return known


ENGINE = EngineSpec(
    name="vllm",
    label="vLLM",
    default_port=8000,
    probes=("/version", "/v1/models", "/metrics", SERVER_INFO),
    recognise=recognise,
    describe=describe,
    to_argv=to_argv,
    parse_log=parse_log,
    request_fields=request_fields,
    traps=traps,
    metrics_path="/metrics",
    metrics=METRICS,
    tokenize="vllm",
    ignores_eos=True,
    reset_cache=("POST", "/reset_prefix_cache"),
    start_failures=START_FAILURES,
)

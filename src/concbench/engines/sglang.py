"""SGLang: `python -m sglang.launch_server` or `sglang serve`, 0.4 to 0.5.23.

`describe` knows beyond `TargetFacts`: `model_path`, `total_context_tok`, `kv_bytes`,
`kv_unused_tok`, `weights_bytes`, `tensor_parallel`, `pipeline_parallel`, `data_parallel`,
`speculation_tok`, `speculation_draft`, `sampling_defaults`, `cuda_graph_max_seqs`,
`max_batched_tok`, `metrics_on`, `auto_truncate`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines.failures import COMMON, GPU
from concbench.engines.reading import (
    GIB,
    as_object,
    body_has,
    bytes_of,
    dig,
    facts,
    first_model,
    merge,
    objects,
    owner,
    positive,
    truth,
    whole,
    word,
)
from concbench.engines.sglang_log import parse_log
from concbench.engines.sglang_metrics import METRICS
from concbench.engines.sglang_traps import traps
from concbench.engines.sglang_words import DIALECT
from concbench.engines.spec import Answer, EngineSpec, Fact, LogRecord, StartFailure
from concbench.engines.spelling import read_words, spell

_INFO_PATHS = ("/server_info", "/get_server_info")
_MODEL_PATHS = ("/model_info", "/get_model_info")
_MARKS = {"max_total_num_tokens", "internal_states", "mem_fraction_static", "launch_command"}


def recognise(answers: Mapping[str, Answer]) -> int:
    """Surely by its server or model information, `owned_by`, or a `sglang:` metric."""
    if any(_MARKS & set(as_object(answers.get(path))) for path in _INFO_PATHS):
        return 2
    if any("is_generation" in as_object(answers.get(path)) for path in _MODEL_PATHS):
        return 2
    if owner(answers) == "sglang" or body_has(answers.get("/metrics"), b"sglang:"):
        return 2
    return 1 if isinstance(as_object(answers.get("/v1/loads")).get("loads"), list) else 0


def describe(
    answers: Mapping[str, Answer], argv: Sequence[str] | None, log_lines: Sequence[str]
) -> dict[str, Fact]:
    """Return what the server, its start-up log and its command line tell, in that order."""
    flags = read_words(argv, DIALECT)
    records = [record for line in log_lines if (record := parse_log(line))]
    known = merge(_from_endpoints(answers), _from_log(records), facts("argv", **_from_flags(flags)))
    if argv is not None:
        known = merge(known, _defaults(flags))
    if "kv_capacity_tok" in known:
        known.setdefault("total_context_tok", known["kv_capacity_tok"])
    return known


def to_argv(flags: Mapping[str, Any]) -> list[str]:
    """Return the words for SGLang; False is left out: its negations are flags of their own."""
    return spell(flags, DIALECT)


def request_fields(ignore_eos: bool, stream: bool) -> dict[str, Any]:  # noqa: FBT001 - EngineSpec's
    """Ask for exact counts with every chunk, and for the full length."""
    fields: dict[str, Any] = {"ignore_eos": True} if ignore_eos else {}
    if stream:
        fields["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return fields


def _from_endpoints(answers: Mapping[str, Answer]) -> dict[str, Fact]:
    card = first_model(answers)
    served = facts(
        "endpoint:/v1/models",
        model=word(card.get("id")),
        max_context_tok=positive(card.get("max_model_len")),
    )
    layers = [_from_server_info(path, as_object(answers.get(path))) for path in _INFO_PATHS]
    for path in _MODEL_PATHS:
        model_path = word(as_object(answers.get(path)).get("model_path"))
        layers.append(facts(f"endpoint:{path}", model_path=model_path))
    load = dig(as_object(answers.get("/v1/loads")), "loads", 0)
    loads = facts(
        "endpoint:/v1/loads",
        slots=positive(dig(load, "max_running_requests")),
        kv_capacity_tok=positive(dig(load, "max_total_num_tokens")),
    )
    return merge(*layers, served, loads)


def _from_server_info(path: str, answer: Mapping[str, Any]) -> dict[str, Fact]:
    """Read the flat object of resolved settings; what each replica resolved wins over them."""
    if not answer:
        return {}
    flags = {key.replace("_", "-"): value for key, value in answer.items()}
    replicas = positive(answer.get("dp_size")) or 1
    states = objects(answer.get("internal_states"))
    effective = positive(dig(states, 0, "effective_max_running_requests_per_dp"))
    capacities = [positive(dig(state, "memory_usage", "token_capacity")) for state in states]
    total = positive(answer.get("max_total_num_tokens"))
    if len(capacities) == replicas and all(capacities):
        capacity: int | None = sum(size for size in capacities if size)
    else:
        capacity = None if total is None else total * replicas
    return merge(
        facts(
            f"endpoint:{path}",
            engine_version=word(answer.get("version")),
            slots=None if effective is None else effective * replicas,
            kv_capacity_tok=capacity,
            kv_bytes=_sum_gib(states, "kvcache"),
            weights_bytes=_sum_gib(states, "weight"),
        ),
        facts(f"endpoint:{path}", **_from_flags(flags), **_settled(answer)),
    )


def _sum_gib(states: Sequence[Mapping[str, Any]], name: str) -> int | None:
    sizes = [bytes_of(dig(state, "memory_usage", name), GIB) for state in states]
    known = [size for size in sizes if size]
    return sum(known) if known and len(known) == len(sizes) else None


def _settled(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a null among the resolved settings says: no speculation."""
    if "speculative_algorithm" in answer and answer["speculative_algorithm"] is None:
        return {"speculation": "none"}
    return {}


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts, unknown ones None, from flags by their canonical names."""
    radix, graphs = truth(flags.get("disable-radix-cache")), truth(flags.get("disable-cuda-graph"))
    sizes = flags.get("cuda-graph-bs")
    listed = [size for item in sizes if (size := positive(item))] if isinstance(sizes, list) else []
    ceiling = positive(flags.get("cuda-graph-max-bs")) or positive(
        flags.get("cuda-graph-max-bs-decode")
    )
    known = {
        "model": word(flags.get("served-model-name")) or word(flags.get("model-path")),
        "model_path": word(flags.get("model-path")),
        "quantization": word(flags.get("quantization")),
        "kv_cache_dtype": word(flags.get("kv-cache-dtype")),
        "max_context_tok": positive(flags.get("context-length")),
        "slots": positive(flags.get("max-running-requests")),
        "tensor_parallel": positive(flags.get("tp-size")),
        "pipeline_parallel": positive(flags.get("pp-size")),
        "data_parallel": positive(flags.get("dp-size")),
        "prefix_caching": None if radix is None else not radix,
        "eager": graphs,
        "sampling_defaults": word(flags.get("sampling-defaults")),
        "cuda_graph_max_seqs": ceiling or max(listed, default=None),
        "max_batched_tok": positive(flags.get("max-prefill-tokens")),
        "metrics_on": truth(flags.get("enable-metrics")),
        "auto_truncate": truth(flags.get("allow-auto-truncate")),
    }
    method = word(flags.get("speculative-algorithm"))
    if method is not None:
        depth = positive(flags.get("speculative-num-draft-tokens"))
        known["speculation"] = method.lower() if depth is None else f"{method.lower()} k={depth}"
        known["speculation_tok"] = depth
        known["speculation_draft"] = word(flags.get("speculative-draft-model-path"))
    return {key: value for key, value in known.items() if value is not None}


def _defaults(flags: Mapping[str, Any]) -> dict[str, Fact]:
    return facts(
        "default",
        kv_cache_dtype="auto",
        prefix_caching=True,
        eager=False,
        tensor_parallel=1,
        metrics_on=False,
        auto_truncate=False,
        speculation=None if "speculative-algorithm" in flags else "none",
    )


def _from_log(records: Sequence[LogRecord]) -> dict[str, Fact]:
    """Fold the start-up records: the smallest rank decides, replicas add up."""
    known: dict[str, Any] = {}
    capacities: dict[str, list[int]] = {}
    sums: dict[str, int] = {}
    for record in records:
        if record.kind != "startup":
            continue
        for key, value in record.values.items():
            if key == "flags":
                known = {**_from_flags(value), **known}
            elif key == "kv_capacity_tok":
                replica = re.search(r"DP(\d+)", record.key)
                name = replica.group(1) if replica else "0"
                capacities.setdefault(name, []).append(whole(value) or 0)
            elif key in ("kv_bytes", "weights_bytes"):
                sums[key] = sums.get(key, 0) + value
            elif key != "ready":
                known[key] = value
    if capacities:
        known["kv_capacity_tok"] = sum(min(ranks) for ranks in capacities.values())
        unused = sum(size - min(ranks) for ranks in capacities.values() for size in ranks)
        known["kv_unused_tok"] = unused or None
    return facts("log", **{**known, **sums})


START_FAILURES: tuple[StartFailure, ...] = (
    StartFailure(
        r"Not enough memory\. Please try to increase --mem-fraction-static|"
        r"The memory capacity is unbalanced|max_total_num_tokens .*(?:less|smaller) than|"
        r"(?:Capture cuda graph failed|Please try .*--mem-fraction-static)",
        "no memory is left for the KV cache or the CUDA graphs",
        "adjust --mem-fraction-static, lower --context-length or --cuda-graph-max-bs",
        "oom",
    ),
    StartFailure(
        r"context_length \(\d+\) is greater than the derived context_length",
        "the context asked for is larger than the model's own",
        "lower --context-length to what the model was made for",
        "other",
    ),
    StartFailure(
        r"(?:Model architectures|architecture) .*(?:not supported|unsupported)|"
        r"Unsupported architectures|Unknown quantization method|"
        r"requires (?:sm|SM|compute capability)|SGLang only supports sm",
        "this model, quantization or backend does not run on this device",
        "take another checkpoint, backend or version",
        "unsupported",
    ),
    *GPU,
    *COMMON,
)

ENGINE = EngineSpec(
    name="sglang",
    label="SGLang",
    default_port=30000,
    probes=(*_INFO_PATHS, *_MODEL_PATHS, "/v1/models", "/v1/loads", "/metrics"),
    recognise=recognise,
    describe=describe,
    to_argv=to_argv,
    parse_log=parse_log,
    request_fields=request_fields,
    traps=traps,
    metrics_path="/metrics",
    metrics=METRICS,
    ignores_eos=True,
    reset_cache=("POST", "/flush_cache"),
    start_failures=START_FAILURES,
)

"""vLLM's metric names, with every rename from 0.6 to 0.33.

Counters are exported with `_total`; the bare name is tried as well. All counters move at every
engine iteration; prompt tokens include cached ones, `prompt_computed_tok` leaves them out.
"""

from __future__ import annotations

from concbench.engines.spec import Metric


def _counter(*names: str, labels: dict[str, str] | None = None) -> Metric:
    aliases = tuple(alias for name in names for alias in (f"vllm:{name}_total", f"vllm:{name}"))
    return Metric(aliases, labels=labels or {})


def _gauge(*names: str, combine: str = "sum", labels: dict[str, str] | None = None) -> Metric:
    aliases = tuple(f"vllm:{name}" for name in names)
    if combine == "max":
        return Metric(aliases, labels=labels or {}, combine="max")
    return Metric(aliases, labels=labels or {}, combine="first" if combine == "first" else "sum")


METRICS: dict[str, Metric] = {
    "generated_tok": _counter("generation_tokens"),
    "prompt_tok": _counter("prompt_tokens"),
    "prompt_computed_tok": _counter("prompt_tokens_by_source", labels={"source": "local_compute"}),
    "cached_tok": _counter("prompt_tokens_cached", "prefix_cache_hits", "gpu_prefix_cache_hits"),
    "prefix_queries_tok": _counter("prefix_cache_queries", "gpu_prefix_cache_queries"),
    "prefix_hits_tok": _counter("prefix_cache_hits", "gpu_prefix_cache_hits"),
    "prefix_hit_rate": _gauge("gpu_prefix_cache_hit_rate", combine="first"),
    "running": _gauge("num_requests_running"),
    "waiting": _gauge("num_requests_waiting"),
    "waiting_for_capacity": _gauge("num_requests_waiting_by_reason", labels={"reason": "capacity"}),
    "deferred": _gauge("num_requests_waiting_by_reason", labels={"reason": "deferred"}),
    "swapped": _gauge("num_requests_swapped"),
    "kv_usage": _gauge("kv_cache_usage_perc", "gpu_cache_usage_perc", combine="max"),
    "cpu_kv_usage": _gauge("cpu_cache_usage_perc", combine="max"),
    "preemptions": _counter("num_preemptions"),
    "rejected": _counter("admission_rejections"),
    "requests_ok": _counter(
        "request_success", labels={"finished_reason": "stop|length|repetition"}
    ),
    "requests_done": _counter("request_success"),
    "spec_drafts": _counter("spec_decode_num_drafts"),
    "spec_draft_tok": _counter("spec_decode_num_draft_tokens"),
    "spec_accepted_tok": _counter("spec_decode_num_accepted_tokens"),
    "spec_accepted_per_pos": _counter("spec_decode_num_accepted_tokens_per_pos"),
    "spec_emitted_tok": _counter("spec_decode_num_emitted_tokens"),
    "spec_accept_rate": _gauge("spec_decode_draft_acceptance_rate", combine="first"),
    "output_tok_per_s": _gauge("avg_generation_throughput_toks_per_s"),
    "kv_config": _gauge("cache_config_info", combine="first"),
    "queue_s": Metric(("vllm:request_queue_time_seconds",)),
    "ttft_s": Metric(("vllm:time_to_first_token_seconds",)),
    "itl_s": Metric(("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")),
    "tpot_s": Metric(("vllm:request_time_per_output_token_seconds",)),
    "e2e_s": Metric(("vllm:e2e_request_latency_seconds",)),
    "prefill_s": Metric(("vllm:request_prefill_time_seconds",)),
    "decode_s": Metric(("vllm:request_decode_time_seconds",)),
    "inference_s": Metric(("vllm:request_inference_time_seconds",)),
    "request_prompt_tok": Metric(("vllm:request_prompt_tokens",)),
    "request_generated_tok": Metric(("vllm:request_generation_tokens",)),
    "request_preemptions": Metric(("vllm:request_num_preemptions",)),
    "iteration_tok": Metric(("vllm:iteration_tokens_total",)),
}
"""Canonical name → where it is found. Those in `_s` and `request_…` are histograms' base names."""

"""SGLang's metric names, 0.4 to 0.5.23 (`--enable-metrics`).

`generation_tokens_total` moves only when a request ends; `realtime_tokens_total` (from 0.5.10)
moves at every decode step and is preferred. The gauge `gen_throughput` keeps its last value when
the server idles and is not read.
"""

from __future__ import annotations

from concbench.engines.metrics import AT_END
from concbench.engines.spec import Metric

METRICS: dict[str, Metric] = {
    "generated_tok": Metric(("sglang:realtime_tokens_total",), labels={"mode": "decode"}),
    "generated_tok" + AT_END: Metric(("sglang:generation_tokens_total",), moves="request"),
    "prompt_computed_tok": Metric(
        ("sglang:realtime_tokens_total",), labels={"mode": "prefill_compute"}
    ),
    "cached_tok": Metric(("sglang:realtime_tokens_total",), labels={"mode": "prefill_cache"}),
    "cached_tok" + AT_END: Metric(
        ("sglang:cached_tokens_total",), labels={"cache_source": "total|"}, moves="request"
    ),
    "prompt_tok": Metric(("sglang:prompt_tokens_total",), moves="request"),
    "running": Metric(("sglang:num_running_reqs",)),
    "waiting": Metric(("sglang:num_queue_reqs",)),
    "kv_usage": Metric(("sglang:token_usage",), combine="max"),
    "kv_used_tok": Metric(("sglang:num_used_tokens", "sglang:kv_used_tokens")),
    "kv_available_tok": Metric(("sglang:kv_available_tokens",)),
    "kv_evictable_tok": Metric(("sglang:kv_evictable_tokens",)),
    "kv_capacity_tok": Metric(("sglang:max_total_num_tokens",)),
    "max_context_tok": Metric(("sglang:context_len",), combine="min"),
    "kv_config": Metric(("sglang:cache_config_info",), combine="first"),
    "prefix_hit_rate": Metric(("sglang:cache_hit_rate",), combine="max"),
    "preemptions": Metric(("sglang:num_retracted_requests_total",)),
    "requests_ok": Metric(("sglang:num_requests_total",), moves="request"),
    "requests_aborted": Metric(
        ("sglang:num_aborted_requests_total", "sglang:num_aborted_requests"), moves="request"
    ),
    "spec_drafts": Metric(("sglang:spec_verify_calls_total",), moves="request"),
    "spec_accept_len": Metric(("sglang:spec_accept_length",), combine="first"),
    "spec_accept_rate": Metric(("sglang:spec_accept_rate",), combine="first"),
    "graph_passes": Metric(("sglang:cuda_graph_passes_total",)),
    "queue_s": Metric(("sglang:queue_time_seconds", "sglang:queue_time_s")),
    "ttft_s": Metric(("sglang:time_to_first_token_seconds",)),
    "itl_s": Metric(("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds")),
    "tpot_s": Metric(("sglang:request_time_per_output_token_seconds",)),
    "e2e_s": Metric(("sglang:e2e_request_latency_seconds",)),
}
"""Canonical name → where it is found. Those in `_s` are histograms' base names."""

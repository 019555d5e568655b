"""llama-server's metric names.

Token counters move only when a request ends or its slot is reset. `prompt_tokens_total` leaves
cached tokens out, so there is no `prompt_tok` here, only `prompt_computed_tok`. The rate gauges
(`predicted_tokens_seconds`, `prompt_tokens_seconds`) are not read: by version they are averages
since the last scrape by anybody, or over the whole life; and the seconds counters sum each
request's own time, which gives no aggregate rate.
"""

from __future__ import annotations

from concbench.engines.spec import Metric

METRICS: dict[str, Metric] = {
    "generated_tok": Metric(("llamacpp:tokens_predicted_total",), moves="request"),
    "prompt_computed_tok": Metric(("llamacpp:prompt_tokens_total",), moves="request"),
    "cached_tok": Metric(("llamacpp:prompt_tokens_cached_total",), moves="request"),
    "decode_steps": Metric(("llamacpp:n_decode_total",)),
    "longest_tok": Metric(("llamacpp:n_tokens_max", "llamacpp:n_past_max"), combine="max"),
    "running": Metric(("llamacpp:requests_processing",)),
    "waiting": Metric(("llamacpp:requests_deferred",)),
    "busy_slots_mean": Metric(("llamacpp:n_busy_slots_per_decode",), combine="first"),
    "kv_usage": Metric(("llamacpp:kv_cache_usage_ratio",), combine="max"),
    "kv_used_tok": Metric(("llamacpp:kv_cache_tokens",)),
    "spec_drafts": Metric(("llamacpp:spec_decode_num_drafts_total",), moves="request"),
    "spec_draft_tok": Metric(("llamacpp:spec_decode_num_draft_tokens_total",), moves="request"),
    "spec_accepted_tok": Metric(
        ("llamacpp:spec_decode_num_accepted_tokens_total",), moves="request"
    ),
    "spec_accepted_per_pos": Metric(
        ("llamacpp:spec_decode_num_accepted_tokens_per_pos_total",), moves="request"
    ),
}
"""Canonical name → where it is found."""

"""Every doubt's severity: codes and severities are stable, and this table is their only place."""

from __future__ import annotations

from typing import Any

from concbench.domain import Doubt, Severity

SEVERITY: dict[str, Severity] = {
    **dict.fromkeys(
        (
            "client_bound",
            "server_restarted",
            "counters_unusable",
            "garbled_output",
            "cross_talk",
            "simulated_acceptance",
            "clock_stepped",
            "stalled",
            "drifted",
        ),
        "fatal",
    ),
    **dict.fromkeys(
        (
            "errors_in_stream",
            "truncated_streams",
            "empty_responses",
            "requests_failed",
            "usage_inconsistent",
            "late_reads",
            "late_sends",
            "no_steady_state",
            "wide_interval",
            "client_server_disagree",
            "foreign_traffic",
            "prompt_cache_hit",
            "prompts_not_distinct",
            "prompt_length_off",
            "output_short",
            "output_over_cap",
            "token_count_estimated",
            "buffered_stream",
            "oversubscribed",
            "preempted",
            "context_rejected",
            "truncated_prompt",
            "bimodal",
            "not_comparable",
            "lane_incomplete",
            "throttled",
            "other_gpu_users",
            "concurrency_capped",
            "rate_not_kept",
            "log_unparsed",
            "worker_lost",
            "compressed_response",
            "unparsed_events",
            "record_damaged",
        ),
        "warning",
    ),
    **dict.fromkeys(
        (
            "single_round",
            "few_rounds",
            "provisional",
            "cold_first_request",
            "chunks_not_tokens",
            "user_stamps",
            "interrupted",
            "imported",
        ),
        "note",
    ),
}

FATAL_ABOVE: dict[str, float] = {
    "errors_in_stream": 0.01,
    "truncated_streams": 0.01,
    "empty_responses": 0.01,
    "requests_failed": 0.01,
}
"""Share of requests above which a warning of that code is fatal."""


def doubt(
    code: str,
    cell: str | None,
    message: str,
    evidence: dict[str, Any],
    share: float = 0.0,
    *,
    needed: bool = True,
) -> Doubt:
    """Return the doubt with its severity. `share` is of requests, where that decides.

    `needed` False: the headline does not rest on what is doubted, so a fatal code is a warning.

    Raises KeyError for a code that is not in the table.
    """
    severity = SEVERITY[code]
    if share > FATAL_ABOVE.get(code, 1.0):
        severity = "fatal"
    if severity == "fatal" and not needed:
        severity = "warning"
    return Doubt(code=code, severity=severity, message=message, cell=cell, evidence=evidence)

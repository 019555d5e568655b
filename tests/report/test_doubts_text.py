from concbench.report.doubts_text import ADVICE, UNKNOWN, advice

CODES = [
    "client_bound",
    "server_restarted",
    "counters_unusable",
    "errors_in_stream",
    "truncated_streams",
    "empty_responses",
    "garbled_output",
    "cross_talk",
    "simulated_acceptance",
    "clock_stepped",
    "stalled",
    "drifted",
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
    "single_round",
    "few_rounds",
    "provisional",
    "cold_first_request",
    "chunks_not_tokens",
    "user_stamps",
    "interrupted",
    "imported",
]
TWO_LINES = 2 * 100


def test_every_code_has_advice_and_there_is_no_other():
    assert sorted(ADVICE) == sorted(CODES)


def test_advice_is_short_and_ends_as_a_sentence():
    for told in ADVICE.values():
        for text in (told.effect, told.action):
            assert 10 < len(text) <= TWO_LINES
            assert text.endswith(".")


def test_an_unknown_code_is_not_an_error():
    assert advice("of_tomorrow") is UNKNOWN

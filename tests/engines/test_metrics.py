from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from concbench.engines import llamacpp, metrics, sglang, vllm
from concbench.engines.metrics import Sample, read_page
from concbench.engines.registry import ENGINES
from concbench.engines.spec import Metric
from tests.engines.answers import text_of


def as_set(samples):
    return {(s.name, tuple(sorted(s.labels.items())), s.value) for s in samples}


def by_lines(text):
    """Force the tolerant way: one garbage line makes the library refuse the page."""
    return read_page(text + "}}garbage{{\n")


@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
def test_both_ways_agree_with_the_library_on_a_real_page(engine):
    text = text_of(f"{engine}/metrics.prom")
    families = text_string_to_metric_families(text)
    names = {sample.name for family in families for sample in family.samples}
    read = as_set(read_page(text))
    assert read == as_set(by_lines(text))
    # The library renames a counter without `_total`; nothing else differs.
    assert {name for name, _, _ in read} ^ names <= {
        "llamacpp:n_tokens_max",
        "llamacpp:n_tokens_max_total",
    }


def test_llamacpp_page():
    page = read_page(text_of("llamacpp/metrics.prom"))
    known = {name: metrics.pick(page, m) for name, m in llamacpp.METRICS.items()}
    assert known["generated_tok"] == 1736
    assert known["prompt_computed_tok"] == 392
    assert known["cached_tok"] == 822
    assert known["decode_steps"] == 392
    assert known["longest_tok"] == 107
    assert known["waiting"] == 0
    assert known["busy_slots_mean"] == pytest.approx(4.42857)
    assert known["spec_drafts"] == 0
    assert known["kv_usage"] is None, "removed from newer builds: absent is not zero"
    assert "prompt_tok" not in known, "its prompt tokens leave out the cached ones"
    assert metrics.cache_reuse(page, llamacpp.METRICS) == (392 + 822, 822)


def test_vllm_page():
    page = read_page(text_of("vllm/metrics.prom"))
    known = {name: metrics.pick(page, m) for name, m in vllm.METRICS.items()}
    assert known["generated_tok"] == 1736
    assert known["prompt_tok"] == 1214
    assert known["requests_ok"] == 28
    assert known["preemptions"] == 0
    assert known["kv_config"] == 1
    assert known["rejected"] == 0
    assert known["spec_drafts"] is None
    assert metrics.cache_reuse(page, vllm.METRICS) == (1214, 0)
    (labels,) = metrics.info(page, vllm.METRICS["kv_config"])
    assert labels["num_gpu_blocks"] == "728"
    queue = metrics.histogram(page, vllm.METRICS["queue_s"])
    assert queue is not None
    assert queue.count == 28
    summary = metrics.summary_ms(queue)
    assert summary == {
        "mean": pytest.approx(120874.9533 / 28),
        "p50": {"le": 300.0},
        "p95": pytest.approx((30 + 10 * (0.95 * 28 - 25) / 3) * 1e3),
    }


# Every rename and variant of a metric's name: engine, canonical name, line, value.
VARIANTS = [
    ("vllm", "generated_tok", 'vllm:generation_tokens_total{model_name="m"} 5', 5),
    ("vllm", "generated_tok", 'vllm:generation_tokens{model_name="m"} 5', 5),
    ("vllm", "prompt_tok", "vllm:prompt_tokens_total 7", 7),
    ("vllm", "prompt_computed_tok",
     'vllm:prompt_tokens_by_source_total{source="local_compute"} 4\n'
     'vllm:prompt_tokens_by_source_total{source="local_cache_hit"} 3\n'
     'vllm:prompt_tokens_by_source_total{source="external_kv_transfer"} 1', 4),
    ("vllm", "cached_tok", "vllm:prompt_tokens_cached_total 3", 3),
    ("vllm", "cached_tok", "vllm:prefix_cache_hits_total 3", 3),
    ("vllm", "cached_tok", "vllm:gpu_prefix_cache_hits_total 3", 3),
    ("vllm", "prefix_queries_tok", "vllm:prefix_cache_queries_total 9", 9),
    ("vllm", "prefix_queries_tok", "vllm:gpu_prefix_cache_queries_total 9", 9),
    ("vllm", "prefix_hits_tok",
     "vllm:gpu_prefix_cache_hits_total 2\nvllm:prefix_cache_hits_total 2", 2),
    ("vllm", "prefix_hit_rate", "vllm:gpu_prefix_cache_hit_rate 0.5", 0.5),
    ("vllm", "running", "vllm:num_requests_running 3", 3),
    ("vllm", "waiting", "vllm:num_requests_waiting 4", 4),
    ("vllm", "waiting_for_capacity",
     'vllm:num_requests_waiting_by_reason{reason="capacity"} 1\n'
     'vllm:num_requests_waiting_by_reason{reason="deferred"} 2', 1),
    ("vllm", "deferred", 'vllm:num_requests_waiting_by_reason{reason="deferred"} 2', 2),
    ("vllm", "swapped", "vllm:num_requests_swapped 1", 1),
    ("vllm", "kv_usage", "vllm:kv_cache_usage_perc 0.25", 0.25),
    ("vllm", "kv_usage", "vllm:gpu_cache_usage_perc 0.25", 0.25),
    ("vllm", "cpu_kv_usage", "vllm:cpu_cache_usage_perc 0.1", 0.1),
    ("vllm", "preemptions", "vllm:num_preemptions_total 2", 2),
    ("vllm", "rejected",
     'vllm:admission_rejections_total{reason="max_num_queued_reqs"} 2\n'
     'vllm:admission_rejections_total{reason="max_num_queued_tokens"} 1', 3),
    ("vllm", "requests_ok",
     "\n".join(f'vllm:request_success_total{{finished_reason="{r}"}} 1'
               for r in ("stop", "length", "abort", "error", "repetition")), 3),
    ("vllm", "spec_drafts", "vllm:spec_decode_num_drafts_total 6", 6),
    ("vllm", "spec_draft_tok", "vllm:spec_decode_num_draft_tokens_total 18", 18),
    ("vllm", "spec_accepted_tok", "vllm:spec_decode_num_accepted_tokens_total 9", 9),
    ("vllm", "spec_emitted_tok", "vllm:spec_decode_num_emitted_tokens_total 9", 9),
    ("vllm", "spec_accept_rate", "vllm:spec_decode_draft_acceptance_rate 0.7", 0.7),
    ("vllm", "output_tok_per_s", "vllm:avg_generation_throughput_toks_per_s 99", 99),
    ("sglang", "generated_tok",
     'sglang:realtime_tokens_total{mode="decode"} 8\n'
     'sglang:realtime_tokens_total{mode="prefill_compute"} 100', 8),
    ("sglang", "generated_tok_at_end",
     'sglang:generation_tokens_total{is_streaming="true"} 5\n'
     'sglang:generation_tokens_total{is_streaming="false"} 1', 6),
    ("sglang", "prompt_computed_tok",
     'sglang:realtime_tokens_total{mode="prefill_compute"} 100', 100),
    ("sglang", "cached_tok", 'sglang:realtime_tokens_total{mode="prefill_cache"} 7', 7),
    ("sglang", "cached_tok_at_end", "sglang:cached_tokens_total 7", 7),
    ("sglang", "cached_tok_at_end",
     'sglang:cached_tokens_total{cache_source="device"} 7\n'
     'sglang:cached_tokens_total{cache_source="total"} 7', 7),
    ("sglang", "prompt_tok", "sglang:prompt_tokens_total 70", 70),
    ("sglang", "running", "sglang:num_running_reqs 3", 3),
    ("sglang", "waiting", "sglang:num_queue_reqs 3", 3),
    ("sglang", "kv_usage",
     'sglang:token_usage{dp_rank="0"} 0.2\nsglang:token_usage{dp_rank="1"} 0.3', 0.3),
    ("sglang", "kv_used_tok", "sglang:num_used_tokens 300", 300),
    ("sglang", "kv_used_tok", "sglang:kv_used_tokens 300", 300),
    ("sglang", "kv_available_tok", "sglang:kv_available_tokens 300", 300),
    ("sglang", "kv_evictable_tok", "sglang:kv_evictable_tokens 300", 300),
    ("sglang", "kv_capacity_tok", "sglang:max_total_num_tokens 9000", 9000),
    ("sglang", "max_context_tok", "sglang:context_len 4096", 4096),
    ("sglang", "kv_config", 'sglang:cache_config_info{page_size="1"} 1', 1),
    ("sglang", "prefix_hit_rate", "sglang:cache_hit_rate 0.4", 0.4),
    ("sglang", "preemptions", "sglang:num_retracted_requests_total 1", 1),
    ("sglang", "requests_ok", "sglang:num_requests_total 4", 4),
    ("sglang", "requests_aborted", "sglang:num_aborted_requests_total 1", 1),
    ("sglang", "requests_aborted", "sglang:num_aborted_requests 1", 1),
    ("sglang", "spec_drafts", "sglang:spec_verify_calls_total 4", 4),
    ("sglang", "spec_accept_len", "sglang:spec_accept_length 3.1", 3.1),
    ("sglang", "spec_accept_rate", "sglang:spec_accept_rate 0.7", 0.7),
    ("sglang", "graph_passes", "sglang:cuda_graph_passes_total 40", 40),
    ("llamacpp", "generated_tok", "llamacpp:tokens_predicted_total 11", 11),
    ("llamacpp", "running", "llamacpp:requests_processing 2", 2),
    ("llamacpp", "waiting", "llamacpp:requests_deferred 2", 2),
    ("llamacpp", "kv_usage", "llamacpp:kv_cache_usage_ratio 0.5", 0.5),
    ("llamacpp", "kv_used_tok", "llamacpp:kv_cache_tokens 512", 512),
    ("llamacpp", "spec_accepted_tok", "llamacpp:spec_decode_num_accepted_tokens_total 5", 5),
    ("trtllm", "generated_tok", "trtllm_generation_tokens_total 5", 5),
    ("trtllm", "cached_tok", "trtllm_prompt_cached_tokens_total 5", 5),
    ("trtllm", "running", "trtllm_num_requests_running 5", 5),
    ("trtllm", "paused", "trtllm_num_paused_requests 5", 5),
    ("trtllm", "kv_usage", "trtllm_kv_cache_utilization 0.5", 0.5),
    ("trtllm", "kv_max_blocks", "trtllm_kv_cache_max_blocks 500", 500),
    ("trtllm", "kv_used_blocks", "trtllm_kv_cache_used_blocks 50", 50),
    ("trtllm", "kv_block_tok", "trtllm_kv_cache_tokens_per_block 32", 32),
    ("trtllm", "prefix_hit_rate", "trtllm_kv_cache_hit_rate 0.5", 0.5),
    ("trtllm", "requests_ok", 'trtllm_request_success_total{finished_reason="length"} 3', 3),
    ("trtllm", "spec_accepted_tok", "trtllm_spec_decode_num_accepted_tokens_total 2", 2),
    ("trtllm", "running", '[{"numActiveRequests": 1}, {"numActiveRequests": 4}]', 4),
    ("trtllm", "step_ms", '[{"iterLatencyMS": 8.5}]', 8.5),
    ("trtllm", "kv_used_blocks", '[{"kvCacheStats": {"usedNumBlocks": 12}}]', 12),
    ("trtllm", "paused", '[{"inflightBatchingStats": {"numPausedRequests": 2}}]', 2),
    ("trtllm", "spec_accept_len", '[{"specDecodingStats": {"acceptanceLength": 2.5}}]', 2.5),
    ("tgi", "generated_tok", "tgi_request_generated_tokens_sum 40", 40),
    ("tgi", "prompt_tok", "tgi_request_input_length_sum 40", 40),
    ("tgi", "running", "tgi_batch_current_size 4", 4),
    ("tgi", "waiting", "tgi_queue_size 4", 4),
    ("tgi", "kv_capacity_tok", "tgi_batch_max_total_tokens 4000", 4000),
    ("tgi", "kv_used_tok", "tgi_batch_current_max_tokens 400", 400),
    ("tgi", "requests_ok", "tgi_request_success 4", 4),
    ("tgi", "requests_failed", 'tgi_request_failure{err="overloaded"} 4', 4),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "name", "page", "value"), VARIANTS)
def test_metric_variants(engine, name, page, value):
    assert metrics.pick(read_page(page + "\n"), ENGINES[engine].metrics[name]) == value


HISTOGRAMS = [
    ("vllm", "queue_s", "vllm:request_queue_time_seconds"),
    ("vllm", "ttft_s", "vllm:time_to_first_token_seconds"),
    ("vllm", "itl_s", "vllm:inter_token_latency_seconds"),
    ("vllm", "itl_s", "vllm:time_per_output_token_seconds"),
    ("vllm", "tpot_s", "vllm:request_time_per_output_token_seconds"),
    ("vllm", "e2e_s", "vllm:e2e_request_latency_seconds"),
    ("vllm", "prefill_s", "vllm:request_prefill_time_seconds"),
    ("vllm", "decode_s", "vllm:request_decode_time_seconds"),
    ("vllm", "inference_s", "vllm:request_inference_time_seconds"),
    ("vllm", "request_generated_tok", "vllm:request_generation_tokens"),
    ("vllm", "request_preemptions", "vllm:request_num_preemptions"),
    ("vllm", "iteration_tok", "vllm:iteration_tokens_total"),
    ("sglang", "queue_s", "sglang:queue_time_seconds"),
    ("sglang", "queue_s", "sglang:queue_time_s"),
    ("sglang", "ttft_s", "sglang:time_to_first_token_seconds"),
    ("sglang", "itl_s", "sglang:inter_token_latency_seconds"),
    ("sglang", "itl_s", "sglang:time_per_output_token_seconds"),
    ("sglang", "tpot_s", "sglang:request_time_per_output_token_seconds"),
    ("trtllm", "ttft_s", "trtllm_time_to_first_token_seconds"),
    ("trtllm", "tpot_s", "trtllm_time_per_output_token_seconds"),
    ("trtllm", "e2e_s", "trtllm_e2e_request_latency_seconds"),
    ("tgi", "queue_s", "tgi_request_queue_duration"),
    ("tgi", "inference_s", "tgi_request_inference_duration"),
    ("tgi", "tpot_s", "tgi_request_mean_time_per_token_duration"),
]


@pytest.mark.parametrize(("engine", "name", "base"), HISTOGRAMS)
def test_histogram_variants(engine, name, base):
    page = (
        f'{base}_bucket{{le="0.1"}} 1\n{base}_bucket{{le="0.2"}} 3\n'
        f'{base}_bucket{{le="+Inf"}} 4\n{base}_sum 0.8\n{base}_count 4\n'
    )
    found = metrics.histogram(read_page(page), ENGINES[engine].metrics[name])
    assert found is not None
    assert found.count == 4
    assert found.total == 0.8
    assert metrics.quantile(found, 0.5) == pytest.approx(0.15)


def test_a_live_counter_is_preferred_and_the_other_one_said_to_be_late():
    both = read_page(
        'sglang:realtime_tokens_total{mode="decode"} 8\nsglang:generation_tokens_total 5\n'
    )
    old = read_page("sglang:generation_tokens_total 5\n")
    assert metrics.live(sglang.METRICS, "generated_tok", both).moves == "step"
    late = metrics.live(sglang.METRICS, "generated_tok", old)
    assert late.moves == "request"
    assert metrics.pick(old, late) == 5
    assert metrics.live(sglang.METRICS, "generated_tok", []) is None
    assert vllm.METRICS["generated_tok"].moves == "step"
    assert llamacpp.METRICS["generated_tok"].moves == "request"


def test_cache_reuse_counts_cached_tokens_once():
    new = read_page(
        'sglang:realtime_tokens_total{mode="prefill_cache"} 30\n'
        'sglang:realtime_tokens_total{mode="prefill_compute"} 70\n'
    )
    old = read_page("sglang:prompt_tokens_total 100\nsglang:cached_tokens_total 30\n")
    assert metrics.cache_reuse(new, sglang.METRICS) == (100, 30)
    assert metrics.cache_reuse(old, sglang.METRICS) == (100, 30)
    assert metrics.cache_reuse([], sglang.METRICS) is None


def test_nan_is_unknown_and_absent_is_not_zero():
    page = read_page(
        "llamacpp:n_busy_slots_per_decode -nan\nllamacpp:requests_processing nan\n"
        "llamacpp:requests_deferred NaN\nllamacpp:tokens_predicted_total 3\n"
    )
    assert [s.value for s in page] == [None, None, None, 3.0]
    assert metrics.pick(page, llamacpp.METRICS["busy_slots_mean"]) is None
    assert metrics.pick(page, llamacpp.METRICS["generated_tok"]) == 3
    assert metrics.pick(page, llamacpp.METRICS["spec_drafts"]) is None


def test_garbage_truncation_exemplars_timestamps_and_duplicates():
    page = read_page(
        "# TYPE a counter\n"
        'a_total 5 # {trace_id="x"} 1.0 1520879607.789\n'
        'b_bucket{le="0.5"} 2 # {id="y"} 0.3\n'
        "<html>what</html>\n"
        'c{label="with \\"quotes\\", a \\\\ and a brace }"} 1.5e3 1395066363000\n'
        "c2 7 1395066363000\n"
        "dup 1\n"
        "dup 2\n"
        "inf_one +Inf\n"
        "# EOF\n"
        'cut{label="lab'
    )
    assert {s.name: s.value for s in page} == {
        "a_total": 5,
        "b_bucket": 2,
        "c": 1500,
        "c2": 7,
        "dup": 2,
        "inf_one": float("inf"),
    }
    labels = next(s.labels for s in page if s.name == "c")
    assert labels == {"label": 'with "quotes", a \\ and a brace }'}


def test_ranks_of_one_engine_count_once_and_replicas_add_up():
    page = read_page(
        "".join(
            f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} {4 + dp}\n'
            for dp in (0, 1)
            for tp in (0, 1)
        )
    )
    assert metrics.pick(page, sglang.METRICS["running"]) == 4 + 5


def test_combinations_and_scale():
    page = [Sample("x", {"engine": "0"}, 2.0), Sample("x", {"engine": "1"}, 6.0)]
    combined = {how: metrics.pick(page, Metric(("x",), combine=how))
                for how in ("sum", "max", "min", "first")}  # fmt: skip
    assert combined == {"sum": 8, "max": 6, "min": 2, "first": 2}
    assert metrics.pick(page, Metric(("x",), scale=0.5)) == 4


def test_by_label_gives_acceptance_by_position():
    page = read_page(
        "".join(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="{e}",position="{p}"}} '
            f"{10 - p}\n"
            for e in (0, 1)
            for p in (0, 1, 2)
        )
    )
    per_position = metrics.by_label(page, vllm.METRICS["spec_accepted_per_pos"], "position")
    assert per_position == {"0": 20, "1": 18, "2": 16}


def window(*counts, total=None):
    edges = (0.3, 0.5, float("inf"))
    return metrics.Histogram(tuple(zip(edges, counts, strict=True)), counts[-1], total)


def test_window_of_a_histogram():
    inside = metrics.over_window(window(1, 2, 2, total=1.0), window(1, 6, 8, total=5.0))
    assert inside == window(0, 4, 6, total=4.0)
    assert metrics.over_window(None, window(1, 1, 1)) == window(1, 1, 1)
    assert metrics.over_window(window(5, 5, 5), window(1, 1, 1)) is None, "restarted"
    assert metrics.over_window(window(1, 1, 1), None) is None
    other = metrics.Histogram(((0.1, 1.0), (float("inf"), 1.0)), 1.0, None)
    assert metrics.over_window(other, window(1, 1, 1)) is None


def test_quantiles_are_never_interpolated_where_a_side_is_open():
    seen = window(0, 4, 6)
    assert metrics.quantile(seen, 0.5) == pytest.approx(0.3 + 0.2 * 3 / 4)
    assert metrics.quantile(seen, 0.95) == {"gt": 0.5}
    assert metrics.quantile(window(6, 6, 6), 0.95, 1e3) == {"le": 300.0}
    assert metrics.quantile(window(0, 0, 0), 0.5) is None
    assert metrics.summary_ms(None) is None
    assert metrics.summary_ms(window(0, 0, 0)) is None
    assert metrics.summary_ms(window(2, 2, 2))["mean"] is None


NAMES = st.from_regex(r"[a-z_:][a-z0-9_:]{0,12}", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda k: k != "__name__"),
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8),
    max_size=3,
)


@settings(deadline=None)
@given(st.lists(st.tuples(NAMES, LABELS, st.floats(allow_nan=False)), max_size=8))
def test_what_is_written_is_read_either_way(rows):
    def escaped(text):
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    def line(name, labels, value):
        inner = ",".join(f'{key}="{escaped(item)}"' for key, item in labels.items())
        return f"{name}{{{inner}}} {value!r}\n" if labels else f"{name} {value!r}\n"

    text = "".join(line(*row) for row in rows)
    expected = {(name, tuple(sorted(labels.items()))): value for name, labels, value in rows}
    for read in (read_page(text), by_lines(text)):
        assert {(s.name, tuple(sorted(s.labels.items()))): s.value for s in read} == expected


@settings(deadline=None)
@given(st.text())
def test_any_text_is_survived(text):
    for sample in read_page(text):
        assert sample.value is None or sample.value == sample.value


@settings(deadline=None)
@given(st.data())
def test_a_real_page_cut_anywhere_keeps_its_whole_lines(data):
    text = text_of("llamacpp/metrics.prom")
    cut = text[: data.draw(st.integers(0, len(text)))]
    whole_lines = cut[: cut.rfind("\n") + 1]
    kept = as_set(read_page(whole_lines))
    assert kept <= as_set(read_page(cut)) or cut == whole_lines


def test_long_pages_stay_linear():
    evil = 'a{' + 'b="c",' * 40_000 + '} 1\n' + 'x{y="' + "\\" * 100_000 + "\n"  # fmt: skip
    assert [s.name for s in read_page(evil)] == ["a"]

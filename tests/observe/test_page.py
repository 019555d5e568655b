from hypothesis import given
from hypothesis import strategies as st

from concbench.clock import now_ns
from concbench.engines.metrics import pick, read_page
from concbench.engines.registry import ENGINES
from concbench.observe.page import PageReader, PageRows

from .server import FIXTURES

VLLM = (FIXTURES / "vllm" / "metrics.prom").read_bytes()
LLAMACPP = (FIXTURES / "llamacpp" / "metrics.prom").read_bytes()
LINES = st.lists(
    st.sampled_from((VLLM + LLAMACPP).splitlines(keepends=True)) | st.binary(max_size=60),
    max_size=60,
).map(b"".join)


def test_vllms_page():
    page = PageReader(ENGINES["vllm"]).read(VLLM)
    assert page.scalars["generated_tok"] == 1736
    assert page.scalars["prompt_tok"] == page.scalars["prefix_queries_tok"] == 1214
    assert page.scalars["running"] == page.scalars["kv_usage"] == 0
    assert "generated_tok_at_end" not in page.scalars
    assert "spec_drafts" not in page.scalars  # absent, never 0
    assert page.positions == {}
    assert dict.fromkeys(page.buckets) == {"queue_s": None, "ttft_s": None}
    assert page.buckets["ttft_s"][-2] == ("_count", "", 28.0)
    assert ("_bucket", "le=inf", 28.0) in page.buckets["ttft_s"]
    assert len(page.identity) == 2  # the process' start and the counter's


def test_only_needed_lines_are_parsed_and_nothing_is_lost():
    spec = ENGINES["vllm"]
    whole = read_page(VLLM.decode())
    page = PageReader(spec).read(VLLM)
    for name, value in page.scalars.items():
        assert value == pick(whole, spec.metrics[name]), name


def test_a_counter_that_moves_at_the_end_has_another_name():
    page = PageReader(ENGINES["llamacpp"]).read(LLAMACPP)
    assert page.scalars["generated_tok_at_end"] == 1736
    assert "generated_tok" not in page.scalars
    assert page.scalars["cached_tok"] == 822
    sglang = PageReader(ENGINES["sglang"])
    old = sglang.read(
        b"sglang:generation_tokens_total 7\nsglang:cached_tokens_total 3\nsglang:num_queue_reqs 2\n"
    )
    assert old.scalars == {"generated_tok_at_end": 7, "cached_tok": 3, "waiting": 2}
    new = sglang.read(
        b'sglang:generation_tokens_total 7\nsglang:realtime_tokens_total{mode="decode"} 9\n'
        b'sglang:cached_tokens_total 3\nsglang:realtime_tokens_total{mode="prefill_cache"} 4\n'
    )
    assert new.scalars == {"generated_tok": 9, "generated_tok_at_end": 7, "cached_tok": 4}


def test_engines_add_up_and_ranks_do_not():
    vllm = PageReader(ENGINES["vllm"]).read(
        b'vllm:generation_tokens_total{engine="0"} 5\nvllm:generation_tokens_total{engine="1"} 6\n'
        b'vllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.7\n'
    )
    assert vllm.scalars == {"generated_tok": 11, "kv_usage": 0.7}
    sglang = PageReader(ENGINES["sglang"]).read(
        b'sglang:num_running_reqs{tp_rank="0"} 4\nsglang:num_running_reqs{tp_rank="1"} 4\n'
    )
    assert sglang.scalars == {"running": 4}


def test_accepted_tokens_by_position():
    name = b"vllm:spec_decode_num_accepted_tokens_per_pos_total"
    page = PageReader(ENGINES["vllm"]).read(
        b'%s{position="0"} 8\n%s{position="1"} 3\n' % (name, name)
    )
    assert page.positions == {"0": 8, "1": 3}
    rows = list(PageRows().rows(page, 1, 2))
    assert {(r.name, r.labels, r.value) for r in rows} == {
        ("spec_accepted_per_pos", "position=0", 8.0),
        ("spec_accepted_per_pos", "position=1", 3.0),
    }


def test_a_number_that_is_none_is_left_out():
    page = PageReader(ENGINES["llamacpp"]).read(
        b"llamacpp:n_busy_slots_per_decode -nan\nllamacpp:requests_processing 1\n"
    )
    assert page.scalars == {"running": 1}


def test_histograms_are_repeated_only_where_they_changed():
    page, rows = PageReader(ENGINES["vllm"]).read(VLLM), PageRows()
    first = list(rows.rows(page, 1, 2))
    second = list(rows.rows(page, 3, 4))
    assert any(row.name == "queue_s_bucket" and row.labels == "le=0.3" for row in first)
    assert any(row.name == "queue_s_sum" for row in first)
    assert not any("_bucket" in row.name for row in second)
    assert len(list(rows.rows(page, 5, 6, whole=True))) == len(first)


@given(st.binary(max_size=300) | LINES, st.sampled_from(sorted(ENGINES)))
def test_any_bytes_are_a_page(body, engine):
    page = PageReader(ENGINES[engine]).read(body)
    for row in PageRows().rows(page, 1, 2, whole=True):
        assert row.value == row.value


def test_reading_is_linear_in_bytes():
    reader = PageReader(ENGINES["vllm"])
    nasty = (
        b"vllm:generation_tokens_total{" + b'a="b",' * 20_000,
        b"vllm:" * 40_000,
        b"vllm:generation_tokens_total 1" + b" " * 200_000,
        b"\n" * 200_000,
        b"[" * 200_000,
    )
    for body in nasty:
        began_ns = now_ns()
        reader.read(body)
        assert (now_ns() - began_ns) / 1e9 < 2.0, body[:30]

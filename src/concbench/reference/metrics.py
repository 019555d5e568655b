"""The metrics pages, as each engine writes its own. Pure: a state in, text out."""

from __future__ import annotations

from collections.abc import Iterable

from concbench.reference.counters import Counters, Histogram
from concbench.reference.state import State

Rows = Iterable[tuple[str, float]]


def _label(value: str) -> str:
    """Return a label's value as the text format of Prometheus has it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def vllm_page(state: State, worker: int, now_ns: int) -> str:
    """Return vLLM's page. Its generated-token counter moves with every step."""
    books, scheduler = state.workers[worker], state.scheduler
    sums = books.sums
    page = _Page(f'engine="0",model_name="{_label(state.options.model)}"')
    page.gauge("process_start_time_seconds", state.created_s + books.began_ns / 1e9, bare=True)
    page.gauge("vllm:num_requests_running", len(scheduler.running))
    page.gauge("vllm:num_requests_waiting", len(scheduler.waiting))
    page.rows(
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        [('reason="capacity"', len(scheduler.waiting)), ('reason="deferred"', 0)],
    )
    page.gauge("vllm:kv_cache_usage_perc", min(1.0, state.kv_used_tok() / state.kv_pool_tok()))
    page.counter("vllm:prefix_cache_queries", sums["prompt"])
    page.counter("vllm:prefix_cache_hits", sums["cached"])
    page.counter("vllm:num_preemptions", scheduler.preemptions - sums["preemptions_base"])
    page.counter("vllm:prompt_tokens", sums["prompt"])
    page.rows(
        "vllm:prompt_tokens_by_source_total",
        "counter",
        [
            ('source="local_compute"', sums["prompt"] - sums["cached"]),
            ('source="local_cache_hit"', sums["cached"]),
            ('source="external_kv_transfer"', 0),
        ],
    )
    page.counter("vllm:prompt_tokens_cached", sums["cached"])
    generated = sums["generated"] + state.running_tok(worker) + state.foreign_tok(now_ns)
    page.counter("vllm:generation_tokens", generated)
    if state.options.draft_tok:
        _speculation(page, state, sums["generated"] + state.running_tok(worker))
    reasons = ("stop", "length", "abort", "error", "repetition")
    page.rows(
        "vllm:request_success_total",
        "counter",
        [(f'finished_reason="{reason}"', sums[f"finish_{reason}"]) for reason in reasons],
    )
    _vllm_histograms(page, books)
    page.rows("vllm:cache_config_info", "gauge", [(_cache_config(state), 1.0)])
    return page.text()


def _speculation(page: _Page, state: State, generated_tok: float) -> None:
    """A chunk is a step: one token of the model's own, the others drafted and accepted."""
    chunk_tok, draft_tok = state.options.pace.tokens_per_chunk, state.options.draft_tok
    drafts = generated_tok // chunk_tok
    page.counter("vllm:spec_decode_num_drafts", drafts)
    page.counter("vllm:spec_decode_num_draft_tokens", drafts * draft_tok)
    page.counter("vllm:spec_decode_num_accepted_tokens", drafts * (chunk_tok - 1))
    page.rows(
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "counter",
        [
            (f'position="{place}"', drafts if place < chunk_tok - 1 else 0)
            for place in range(draft_tok)
        ],
    )


def _vllm_histograms(page: _Page, books: Counters) -> None:
    names = {
        "vllm:time_to_first_token_seconds": "ttft_s",
        "vllm:request_queue_time_seconds": "queue_s",
        "vllm:e2e_request_latency_seconds": "e2e_s",
        "vllm:request_time_per_output_token_seconds": "tpot_s",
        "vllm:request_prompt_tokens": "prompt_tok",
        "vllm:request_generation_tokens": "output_tok",
    }
    for name, key in names.items():
        page.histogram(name, books.histograms[key])


def _cache_config(state: State) -> str:
    pool_tok, block_tok = state.kv_pool_tok(), state.options.pace.block_tok
    at_once = pool_tok / state.options.context_tok
    return (
        f'block_size="{block_tok}",cache_dtype="auto",enable_prefix_caching="True",'
        f'gpu_memory_utilization="0.92",kv_cache_max_concurrency="{at_once:.2f}",'
        f'kv_cache_size_tokens="{pool_tok}",num_gpu_blocks="{pool_tok // block_tok}"'
    )


def sglang_page(state: State, worker: int, now_ns: int) -> str:
    """Return SGLang's page. `generation_tokens_total` moves at the end of a request."""
    books, scheduler, model = state.workers[worker], state.scheduler, _label(state.options.model)
    sums = books.sums
    page = _Page(
        f'engine_type="unified",model_name="{model}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    )
    used, pool = state.kv_used_tok(), state.kv_pool_tok()
    page.gauge("sglang:num_running_reqs", len(scheduler.running))
    page.gauge("sglang:num_queue_reqs", len(scheduler.waiting))
    page.gauge("sglang:token_usage", min(1.0, used / pool))
    page.gauge("sglang:num_used_tokens", used)
    page.gauge("sglang:max_total_num_tokens", pool)
    page.gauge("sglang:context_len", state.options.context_tok)
    page.gauge("sglang:cache_hit_rate", sums["cached"] / max(sums["prompt"], 1.0))
    page.gauge("sglang:gen_throughput", len(scheduler.running) * 1e9 / state.options.pace.itl_ns)
    live = sums["generated"] + state.running_tok(worker) + state.foreign_tok(now_ns)
    page.rows(
        "sglang:realtime_tokens_total",
        "counter",
        [
            ('mode="prefill_compute"', sums["prompt"] - sums["cached"]),
            ('mode="prefill_cache"', sums["cached"]),
            ('mode="decode"', live),
        ],
    )
    preempted = scheduler.preemptions - sums["preemptions_base"]
    page.counter("sglang:num_retracted_requests", preempted)
    page.labels = f'engine_type="unified",model_name="{model}"'
    page.counter("sglang:prompt_tokens", sums["prompt_ended"])
    page.counter("sglang:generation_tokens", sums["generated"] + state.foreign_tok(now_ns))
    page.rows("sglang:cached_tokens_total", "counter", [('cache_source="total"', sums["cached"])])
    page.counter("sglang:num_requests", sums["requests"])
    page.counter("sglang:num_aborted_requests", sums["finish_abort"])
    page.histogram("sglang:time_to_first_token_seconds", books.histograms["ttft_s"])
    page.histogram("sglang:queue_time_seconds", books.histograms["queue_s"])
    page.histogram("sglang:e2e_request_latency_seconds", books.histograms["e2e_s"])
    return page.text()


def llamacpp_page(state: State, worker: int, now_ns: int) -> str:
    """Return llama.cpp's page. All its counters move at the end of a request; no labels."""
    sums, scheduler = state.workers[worker].sums, state.scheduler
    predicted = sums["generated"] + state.foreign_tok(now_ns)
    fresh = sums["prompt_ended"] - sums["cached_ended"]
    page = _Page("", prefix="llamacpp:")
    page.plain("prompt_tokens_total", "counter", fresh)
    page.plain("prompt_tokens_cached_total", "counter", sums["cached_ended"])
    page.plain("prompt_seconds_total", "counter", sums["prompt_s"])
    page.plain("tokens_predicted_total", "counter", predicted)
    page.plain("tokens_predicted_seconds_total", "counter", sums["predicted_s"])
    page.plain("n_decode_total", "counter", sums["generated"])
    page.plain("n_tokens_max", "counter", sums["longest"])
    page.plain("prompt_tokens_seconds", "gauge", _ratio(fresh, sums["prompt_s"]))
    page.plain("predicted_tokens_seconds", "gauge", _ratio(predicted, sums["predicted_s"]))
    page.plain("requests_processing", "gauge", len(scheduler.running))
    page.plain("requests_deferred", "gauge", len(scheduler.waiting))
    # Before any work the engine divides 0 by 0 and says so.
    busy = f"{float(len(scheduler.running)):g}" if sums["requests"] else "-nan"
    page.lines += ["# TYPE llamacpp:n_busy_slots_per_decode gauge"]
    page.lines += [f"llamacpp:n_busy_slots_per_decode {busy}"]
    return page.text()


def llama_swap_page(_state: State, _worker: int, _now_ns: int) -> str:
    """Return llama-swap's own page: the host only, nothing of the engine."""
    page = _Page("", prefix="llamaswap_")
    page.plain("gpu_power_draw_watts", "gauge", 0.0)
    page.plain("gpu_memory_used_bytes", "gauge", 0.0)
    return page.text()


def _ratio(value: float, seconds: float) -> float:
    return value / seconds if seconds else 0.0


class _Page:
    """Lines of the text exposition format, with one set of labels on every sample."""

    def __init__(self, labels: str, prefix: str = "") -> None:
        self.labels = labels
        self.lines: list[str] = []
        self._prefix = prefix

    def gauge(self, name: str, value: float, *, bare: bool = False) -> None:
        labels = "" if bare else f"{{{self.labels}}}"
        self.lines += [f"# TYPE {name} gauge", f"{name}{labels} {float(value)!r}"]

    def counter(self, name: str, value: float) -> None:
        self.rows(f"{name}_total", "counter", [("", value)])

    def plain(self, name: str, kind: str, value: float) -> None:
        full = self._prefix + name
        self.lines += [f"# TYPE {full} {kind}", f"{full} {value:.10g}"]

    def rows(self, name: str, kind: str, rows: Rows) -> None:
        self.lines.append(f"# TYPE {name} {kind}")
        for extra, value in rows:
            labels = f"{self.labels},{extra}" if extra else self.labels
            self.lines.append(f"{name}{{{labels}}} {float(value)!r}")

    def histogram(self, name: str, histogram: Histogram) -> None:
        rows = [(f'le="{le}"', count) for le, count in histogram.rows()]
        self.lines.append(f"# TYPE {name} histogram")
        for extra, count in rows:
            self.lines.append(f"{name}_bucket{{{self.labels},{extra}}} {float(count)!r}")
        self.lines.append(f"{name}_count{{{self.labels}}} {float(rows[-1][1])!r}")
        self.lines.append(f"{name}_sum{{{self.labels}}} {histogram.total!r}")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

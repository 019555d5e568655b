"""Cases M: what the server says of itself, in metrics and in its log."""

from __future__ import annotations

import json

import msgspec
import pytest

from concbench.analyse.cell import cell_result
from concbench.analyse.logwindows import whole_windows
from concbench.domain import Round, ServerSample
from concbench.engines.registry import by_name
from concbench.observe.activity import read_activity
from concbench.observe.parse import samples
from concbench.observe.spool import RawSample
from tests.analyse.simulate import MS, S, as_round, steady_stream

WINDOW = (
    "Avg prompt throughput: 6.0 tokens/s, "
    "Avg generation throughput: {rate} tokens/s, Running: {running} reqs, "
)


def page(engine: str, text: str, at_s: float = 1.0) -> dict[str, float | None]:
    """The rows of one metrics page, by canonical name."""
    return {row.name: row.value for row in pages(engine, (at_s, text))}


def pages(engine: str, *read: tuple[float, str]) -> list[ServerSample]:
    records = [
        RawSample("metrics", int(at * S) - MS, int(at * S), 200, text.encode()) for at, text in read
    ]
    return samples(records, by_name(engine))


def logged(engine: str, *lines: str) -> list[ServerSample]:
    records = [
        RawSample("log", k * 10 * S, k * 10 * S, 200, line.encode() + b"\n")
        for k, line in enumerate(lines)
    ]
    return samples(records, by_name(engine))


def with_samples(round_: Round, rows: list[ServerSample]) -> Round:
    return msgspec.structs.replace(round_, samples=rows)


def test_m01_renamed_metrics_are_not_zero() -> None:
    old = page("vllm", "vllm:gpu_cache_usage_perc 0.25\nvllm:num_requests_swapped 2\n")
    new = page("vllm", "vllm:kv_cache_usage_perc 0.25\n")
    assert old["kv_usage"] == new["kv_usage"] == 0.25
    assert old["swapped"] == 2
    assert "swapped" not in new
    metrics = by_name("vllm").metrics
    assert "vllm:time_per_output_token_seconds" in metrics["itl_s"].aliases
    assert metrics["tpot_s"].aliases == ("vllm:request_time_per_output_token_seconds",)
    rows = pages("vllm", (0.0, "vllm:other 1\n"), (1.0, "vllm:other 2\n"))
    result, _ = cell_result([with_samples(as_round([steady_stream(0, 10 * MS, 100)]), rows)])
    server = result.server
    assert (server.kv_usage_max, server.preemptions, server.running_mean) == (None, None, None)
    assert result.ledger.generated is None


def test_m02_a_nan_sample() -> None:
    text = (
        "# TYPE llamacpp:n_busy_slots_per_decode gauge\n"
        "llamacpp:n_busy_slots_per_decode {}\n"
        "llamacpp:requests_processing 3\nllamacpp:tokens_predicted_total 40\n"
    )
    for spelling in ("-nan", "nan", "NaN", "+Inf"):
        rows = page("llamacpp", text.format(spelling))
        assert rows.get("busy_slots_mean") is None
        assert rows["running"] == 3
        assert rows["generated_tok_at_end"] == 40
    read = pages("llamacpp", (0.1, text.format("-nan")), (0.5, text.format("2.0")))
    round_ = with_samples(as_round([steady_stream(0, 10 * MS, 100)]), read)
    result, _ = cell_result([round_])
    assert result.server.running_mean == 3
    assert b"NaN" not in msgspec.json.encode(result)


def test_m03_sticky_gauges() -> None:
    sticky = "sglang:gen_throughput 812.0\nsglang:num_running_reqs 24\n"
    counter = 'sglang:realtime_tokens_total{{mode="decode"}} {}\n'
    # The gauges stand still at full speed while the counter says that nothing happens.
    read = [(0.2 * k, sticky + counter.format(5000)) for k in range(5)]
    rows = pages("sglang", *read)
    assert not [row for row in rows if row.value == 812.0]
    idle = with_samples(as_round([steady_stream(0, 10 * MS, 101)]), rows)
    result, _ = cell_result([idle])
    assert result.server.output_tok_per_s is None
    assert result.ledger.generated == 0
    busy = pages("sglang", *[(0.2 * k, sticky + counter.format(20 * k)) for k in range(6)])
    result, _ = cell_result([with_samples(as_round([steady_stream(0, 10 * MS, 101)]), busy)])
    assert result.server.output_tok_per_s is not None
    assert result.server.output_tok_per_s.point == pytest.approx(100)


def test_m04_a_rate_that_depends_on_who_scrapes() -> None:
    text = (
        "llamacpp:predicted_tokens_seconds {gauge}\nllamacpp:tokens_predicted_total {total}\n"
        "llamacpp:tokens_predicted_seconds_total {seconds}\n"
    )
    first = text.format(gauge=0, total=500, seconds=50)
    last = text.format(gauge=7.5, total=500 + 1100, seconds=60)
    rows = pages("llamacpp", (0.0, first), (10.0, last))
    assert {row.name for row in rows} == {"generated_tok_at_end"}
    # 100 requests of 11 tokens in 10 s; the seconds counter times only 10 of each.
    replies = [steady_stream(k * 100 * MS, 9 * MS, 11, sent=k * 100 * MS) for k in range(100)]
    result, _ = cell_result([with_samples(as_round(replies, concurrency=1), rows)])
    assert (result.ledger.generated, result.ledger.received) == (1100, 1100)
    assert result.server.output_tok_per_s is None
    assert result.client.tpot_ms.n == 0


def test_m08_a_run_that_is_short_against_the_log_window() -> None:
    def line(running: int, rate: float) -> str:
        return "INFO Engine 000: " + WINDOW.format(rate=rate, running=running) + "Waiting: 0 reqs"

    short = logged("vllm", line(1, 0.2), line(1, 24.0))
    assert whole_windows(short, 1) == []
    long = logged("vllm", *[line(8, rate) for rate in (3.3, 24.0, 24.2, 23.8, 11.0)], line(0, 2.0))
    assert [window.tok_per_s for window in whole_windows(long, 8)] == [24.0, 24.2, 23.8]


LINES = {
    "first generation": "INFO 12-01 10:00:00 metrics.py:449] Avg prompt throughput: 6.0 tokens/s, "
    "Avg generation throughput: 24.0 tokens/s, Running: 8 reqs, Swapped: 0 reqs, Pending: 3 reqs, "
    "GPU KV cache usage: 5.5%, CPU KV cache usage: 0.0%.",
    "engine number": "INFO Engine 000: Avg prompt throughput: 6.0 tokens/s, "
    "Avg generation throughput: 24.0 tokens/s, Running: 8 reqs, Waiting: 3 reqs, "
    "GPU KV cache usage: 5.5%, Prefix cache hit rate: 0.0%",
    "process and media": "(APIServer pid=1) INFO 11-29 14:26:48 [loggers.py:335] Engine 000: "
    "Avg prompt throughput: 6.0 tokens/s, Avg generation throughput: 24.0 tokens/s, "
    "Running: 8 reqs, Waiting: 3 reqs, GPU KV cache usage: 5.5%, Prefix cache hit rate: 0.0%, "
    "MM cache hit rate: 12.0%",
    "deferred and external": "(APIServer pid=1) INFO Engine 000: Avg prompt throughput: 6.0 "
    "tokens/s, Avg generation throughput: 24.0 tokens/s, Running: 8 reqs, Waiting: 3 reqs, "
    "Deferred: 2 reqs, GPU KV cache usage: 5.5%, External prefix cache hit rate: 9.0%, New: 1 x",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_m09_log_line_variants(line: str) -> None:
    rows = {row.name: row.value for row in logged("vllm", line)}
    wanted = {"output_tok_per_s": 24.0, "running": 8, "waiting": 3, "kv_usage": 0.055}
    assert {name: rows[f"log_{name}"] for name in wanted} == pytest.approx(wanted)


def test_m09_a_log_that_nobody_understands() -> None:
    rows = logged("vllm", "the engine speaks in tongues", "and says nothing known")
    _, doubts = cell_result([with_samples(as_round([steady_stream(0, 10 * MS, 100)]), rows)])
    found = next(doubt for doubt in doubts if doubt.code == "log_unparsed")
    assert found.severity == "warning"
    assert found.evidence["lines"] == 2
    fine = logged("vllm", "the engine speaks in tongues", LINES["engine number"])
    _, doubts = cell_result([with_samples(as_round([steady_stream(0, 10 * MS, 100)]), fine)])
    assert "log_unparsed" not in {doubt.code for doubt in doubts}


def test_m11_negative_rates_are_missing() -> None:
    embedding = {
        "id": 4, "timestamp": "…", "model": "embed", "input_tokens": 512, "output_tokens": 0,
        "prompt_per_second": -1, "tokens_per_second": -1, "duration_ms": 20,
    }  # fmt: skip
    found = read_activity(json.dumps([embedding]).encode())
    assert found is not None
    assert found["4"]["input_tok"] == 512
    assert not any(value < 0 for value in found["4"].values())
    assert not any("tok_per_s" in name for name in found["4"])

"""What stands beside the table, and what a study is measured again with."""

from __future__ import annotations

from typing import Any

from concbench.report.beside import beside_lines
from concbench.report.markdown import to_markdown
from concbench.report.reproduce import command_lines
from concbench.result import Result
from tests.report.conftest import burst

IDLE = {
    "idle_s": 30.04,
    "ttft_ms": 812.0,
    "warm_ttft_ms": 41.0,
    "e2e_ms": 1500.0,
    "warm_e2e_ms": 700.0,
    "n_warm": 3,
}
RATE = {
    "asked_rps": 4.0,
    "due_rps": 4.002,
    "sent_rps": 3.998,
    "unsent": 1,
    "connections_max": 9,
    "goodput_rps": {"point": 3.5},
    "good_pct": 87.5,
    "slo": [
        {"slo": "ttft_p95", "limit": 2000.0, "value": 1234.5, "met": True},
        {"slo": "user_tok_per_s", "limit": 20.0, "value": None, "met": False},
    ],
}
HOST = {
    "cpu_cores": 2.0,
    "cpu_busy_cores": 1.5,
    "cpu_foreign_cores": 0.25,
    "cpu_foreign_max_cores": 0.6,
    "cpu_group_cores": {"client": 0.2, "engine": 1.05},
    "cpu_clock_mhz": None,
    "memory_available_min_bytes": 3 << 30,
    "page_cache_bytes": 1 << 30,
    "swap_used_max_bytes": 0.0,
    "swapped_bytes": 0.0,
    "gpus": [
        {
            "gpu": "0",
            "clock_mhz": 1980.0,
            "memory_clock_mhz": 2619.0,
            "util": 0.93,
            "power_w": 512.0,
            "memory_used_bytes": 100 << 30,
            "temperature_c": 71.0,
        }
    ],
}


def lines(result: Result) -> str:
    return "\n".join(
        beside_lines(result, {cell.cell: f"N = {cell.concurrency}" for cell in result.cells})
    )


def with_payload(**payload: Any) -> Result:
    result = burst()
    named = {"cell": result.cells[0].cell}
    result.payload = {key: [{**named, **value}] for key, value in payload.items()}
    return result


def test_the_request_after_a_silence() -> None:
    said = lines(with_payload(idle=IDLE))
    assert "first request after 30.0 s of silence: TTFT 812.0 ms (warm 41.0 ms)" in said
    assert "E2E 1500.0 ms (warm 700.0 ms)" in said


def test_rates_goodput_and_objectives() -> None:
    said = lines(with_payload(rate=RATE))
    assert "scheduled 4.002 requests/s, sent 3.998, 1 never sent; 9 connections at most" in said
    assert "3.500 requests/s met every objective (87.5 % of requests)" in said
    assert "ttft_p95 1234, limit 2000: met" in said
    assert "user_tok_per_s unknown, limit 20: not known" in said


def test_the_slope_of_the_queue() -> None:
    result = burst()
    result.cells[0].saturation = {
        "state": "saturated",
        "queue_slope_per_s": 1.25,
        "completions_per_arrival": 0.62,
        "asked_rps": 4.0,
        "scheduled_rps": 4.1,
        "sent_rps": 4.1,
        "arrivals": 240,
    }
    said = lines(result)
    assert "saturated · in flight +1.250 a second · 62.0 % of arrivals ended" in said
    assert "asked 4.000, drawn 4.100, sent 4.100 requests/s" in said
    result.cells[0].saturation["queue_slope_per_s"] = -0.0014
    assert "in flight −0.001 a second" in lines(result)
    result.cells[0].saturation["queue_slope_per_s"] = -0.0001
    assert "in flight 0.000 a second" in lines(result)


def test_the_servers_own_view_of_every_cell() -> None:
    result = burst()
    server = result.cells[0].server
    server.running_mean, server.running_max, server.waiting_max = 7.86, 8.0, 3.0
    server.queue_ms, server.preemptions, server.kv_usage_max = {"mean": 12.34}, 2, 0.42
    server.acceptance = {
        "mean_len": 2.5,
        "rate": 0.75,
        "per_position": [0.9, 0.6],
        "content": "prose",
        "note": "acceptance depends on what is generated",
    }
    server.scrape_ms = {"n": 40, "failed": 0, "mean": 1.6, "p50": 1.5, "max": 9.0}
    said = lines(result).splitlines()[0]
    for part in (
        "ran 7.9 at once (8 at most)",
        "3 waiting at most",
        "queued 12.3 ms on average",
        "2 preempted",
        "KV cache 42.0 % at most",
        "2.50 tokens a step, 75.0 % of drafts accepted (by place 90.0 %, 60.0 %), on prose only",
        "acceptance depends on what is generated",
        "40 readings of 1.6 ms",
    ):
        assert part in said


def test_the_machine_is_told_of_once() -> None:
    result = burst()
    result.cells[0].host = HOST
    result.cells[1].host = {**HOST, "cpu_foreign_cores": 0.9, "gpus": []}
    said = [line for line in lines(result).splitlines() if line.startswith(("machine", "gpu"))]
    assert len(said) == 1
    assert "1.50 of 2 cores busy, 0.90 by other processes" in said[0]
    assert "client 0.20, engine 1.05 cores" in said[0]
    assert "3.0 GiB free at least · page cache 1.0 GiB · swap 0.0 GiB, 0.00 moved" in said[0]
    result.cells[1].host = None
    gpu = lines(result).splitlines()
    assert any("93.0 % busy" in line and "1980 MHz" in line and "512 W" in line for line in gpu)


def test_markdown_holds_the_lines() -> None:
    assert "first request after 30.0 s of silence" in to_markdown(with_payload(idle=IDLE))


def test_what_was_asked_for_is_in_the_command_line() -> None:
    result = burst()
    assert result.workload is not None
    result.workload.arrival = "closed"
    result.payload = {
        "asked": {"until": 0.005, "max_s": 120.0, "min_s": 30.0, "reset_cache": True, "warmup": 1}
    }
    line = command_lines(result)[0]
    assert "sustain" in line
    assert "--until 0.5% --max-s 120 --min-s 30 --reset-cache --warmup 1" in line


def test_a_traces_file_and_objectives_are_in_the_command_line() -> None:
    result = burst()
    assert result.workload is not None
    result.workload.arrival = "trace"
    result.payload = {"asked": {"drain_s": 30.0, "slo": "ttft_p95=2s", "trace": "day.jsonl"}}
    line = command_lines(result)[0]
    assert " rate " in line
    assert "--drain-s 30 --slo ttft_p95=2s --trace day.jsonl" in line
    result.workload.arrival = "poisson"
    result.cells[0].rate_rps = 4.0
    result.payload = {"asked": {"duration": 60.0}}
    assert any(
        "--rps 4 --poisson" in one and "--duration 60" in one for one in command_lines(result)
    )

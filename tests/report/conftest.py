"""Realistic results, seeded, and a console of a given width.

The expected terminal texts are refreshed with
`CONCBENCH_REFRESH=1 python -m pytest tests/report/test_terminal.py`; read the difference before
keeping it.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence

from rich.console import Console

from concbench.domain import Doubt, Estimate, Summary, TargetFacts
from concbench.result import (
    CellResult,
    Client,
    Instrument,
    Ledger,
    Requests,
    Result,
    Running,
    Server,
    Steady,
    Tokens,
    VerdictResult,
    WorkloadResult,
)

STEADY = {1: 57.1, 2: 108.9, 4: 209.8, 8: 436.2, 16: 441.0}
HOSTILE = (
    '<script>alert("x")</script><img src=x onerror=alert(1)>\n"quoted" \'single\' & =1+1 | `code` '
    "\u202eevil\u202c \x1b[31mred \U0001f680 </script><!-- " + "A" * 10_000
)


def estimate(point: float, relative: float = 0.004, rounds: int = 4) -> Estimate:
    if rounds == 1:
        return Estimate(point=point, low=None, high=None, n=1, method="single round")
    low, high = point * (1 - relative), point * (1 + relative)
    if rounds < 3:
        return Estimate(
            point=point, low=None, high=None, n=rounds, method="range", range=(low, high)
        )
    return Estimate(point=point, low=low, high=high, n=rounds, method="t over rounds")


def summary(values: Sequence[float]) -> Summary:
    data = sorted(values)
    n = len(data)
    if not n:
        return Summary(n=0)

    def rank(p: float, least: int) -> float | None:
        return data[max(0, -(-int(p * n * 100) // 100) - 1)] if n >= least else None

    return Summary(
        n=n,
        mean=sum(data) / n,
        min=data[0],
        max=data[-1],
        p50=rank(0.5, 2),
        p90=rank(0.9, 10),
        p95=rank(0.95, 20),
        p99=rank(0.99, 100),
        ci={"p50": (data[n // 4], data[(3 * n) // 4])} if n >= 6 else {},
    )


def cell(level: int, *, lane: str = "nvfp4", factor: float = 1.0, rounds: int = 4) -> CellResult:
    draw = random.Random(level * 1000 + rounds)
    n = level * rounds
    rate = STEADY[level] * factor
    each = rate / level

    def spread(middle: float, width: float) -> Summary:
        return summary([middle * (1 + draw.uniform(-width, width)) for _ in range(n)])

    late = summary([draw.uniform(0.005, 0.11) for _ in range(400)])
    none = Summary(n=0)
    return CellResult(
        cell=f"{lane}-short-n{level}",
        lane=lane,
        context_label="short",
        context_tok=512,
        concurrency=level,
        rounds=rounds,
        ended_by="interval",
        requests=Requests(sent=n, ok=n, finish={"length": n}),
        tokens=Tokens(
            prompt=512 * n,
            cached=0,
            output=256 * n,
            source="usage",
            asked_output=256 * n,
            per_chunk=1.0,
        ),
        ledger=Ledger(asked=256 * n, received=256 * n, generated=256 * n, foreign=0),
        client=Client(
            output_tok_per_s=estimate(rate * 0.95, 0.03, rounds),
            steady_output_tok_per_s=estimate(rate, 0.004, rounds),
            per_request_tok_per_s=spread(each, 0.03),
            ttft_ms=spread(90 + 6 * level, 0.1),
            ttft_from_due_ms=spread(90 + 6 * level, 0.1),
            ttfo_ms=none,
            icl_ms=none,
            itl_ms=none,
            tpot_ms=spread(1000 / each, 0.02),
            e2e_ms=spread(256_000 / each, 0.03),
            e2e_from_due_ms=none,
            send_delay_ms=none,
        ),
        steady=Steady(
            found=True,
            estimand="decode",
            start_s=0.2,
            end_s=4.4,
            steps=240.0,
            method="all streams generating",
            running=Running(min=level, mean=level, max=level),
            decoding_mean=level,
        ),
        server=Server(
            source="metrics",
            output_tok_per_s=estimate(rate / 1.002, 0.004, rounds),
            running_mean=level,
            waiting_max=0,
        ),
        agreement_pct=0.2,
        overlap=None if level == 1 else 0.91,
        instrument=Instrument(
            stamp="kernel",
            stamped_pct=100.0,
            read_lateness_ms=late,
            late_after_stamp_ms=late,
            loop_lag_ms=late,
            min_rtt_ms=0.21,
            client_cpu=0.12,
            ceiling_tok_per_s=48_000.0,
        ),
    )


def facts(lane: str = "nvfp4", **changes: object) -> TargetFacts:
    known: dict[str, object] = {
        "lane": lane,
        "engine": "vllm",
        "engine_version": "0.32.0",
        "base_url": "http://user:secret@box:8000",
        "model": "Qwen3.8-27B",
        "quantization": "NVFP4",
        "kv_cache_dtype": "fp8",
        "max_context_tok": 16_384,
        "slots": 8,
        "prefix_caching": True,
        "facts_from": {"slots": "endpoint", "kv_cache_dtype": "log"},
    }
    return TargetFacts(**{**known, **changes})  # type: ignore[arg-type]


def workload() -> WorkloadResult:
    return WorkloadResult(
        prompt_tokens=512,
        output_tokens=256,
        seed=1234,
        arrival="burst",
        distinct_prompts=True,
        content="prose",
        endpoint="chat",
        stream=True,
        temperature=0.0,
        ignore_eos=True,
    )


LENGTH_OFF = Doubt(
    code="prompt_length_off",
    severity="warning",
    message="prompts came out 3.1 % longer than asked (template); rates use the server's count",
    evidence={"asked_tok": 512, "counted_tok": 528},
)
COLD = Doubt(
    code="cold_first_request",
    severity="note",
    message="the first request took 18.9 s, the next 1.3 s",
)


def burst(levels: Sequence[int] = (1, 2, 4, 8), *, rounds: int = 4, lane: str = "nvfp4") -> Result:
    """A burst of one lane, with one warning and one note."""
    known = facts(lane)
    return Result(
        tool_version="0.1.0",
        command="burst",
        study="studies/20261129T152000Z-burst",
        began_utc="2026-11-29T15:20:00Z",
        target=known,
        targets={lane: known},
        machine={"cpu": "8 cores", "kernel": "6.1", "gpu": {"name": "none"}},
        workload=workload(),
        doubts=[LENGTH_OFF, COLD],
        cells=[cell(level, lane=lane, rounds=rounds) for level in levels],
    )


def verdict(level: int, kind: str, point: float, **changes: object) -> VerdictResult:
    known: dict[str, object] = {
        "metric": "steady_output_tok_per_s",
        "better": "higher",
        "a": "gguf",
        "b": "nvfp4",
        "cell_a": f"gguf-short-n{level}",
        "cell_b": f"nvfp4-short-n{level}",
        "concurrency": level,
        "context_tok": 512,
        "ratio": estimate(point, 0.02),
        "verdict": kind,
        "n_pairs": 5,
        "beyond_delta": abs(point - 1) > 0.03,
        "unlike": ["quantization"],
        "accepted": ["quantization"],
    }
    return VerdictResult(**{**known, **changes})  # type: ignore[arg-type]


def comparison() -> Result:
    """Two lanes over four levels, with verdicts and a crossover."""
    result = burst()
    other = facts(
        "gguf",
        engine="llamacpp",
        engine_version="b9000",
        quantization="Q5_K_M",
        launch=["llama-server", "--parallel", "8", "--api-key", "hunter2"],
    )
    factors = {1: 1.06, 2: 1.0, 4: 0.52, 8: 0.4}
    result.command, result.target = "ab", None
    result.targets["gguf"] = other
    result.cells = [
        *(cell(level, lane="gguf", factor=factor) for level, factor in factors.items()),
        *result.cells,
    ]
    result.verdicts = [
        verdict(1, "a_faster", 0.94),
        verdict(2, "equivalent", 1.0),
        verdict(4, "b_faster", 1.92),
        verdict(8, "b_faster", 2.52),
    ]
    result.crossovers = [
        {
            "metric": "steady_output_tok_per_s",
            "axis": "concurrency",
            "bracket": [1, 4],
            "ranges": [
                {"from": 1, "to": 1, "winner": "gguf"},
                {"from": 2, "to": 2, "winner": "tie"},
                {"from": 4, "to": 8, "winner": "nvfp4"},
            ],
        }
    ]
    return result


def console(width: int) -> Console:
    """A console that keeps its text, without colour."""
    return Console(
        file=io.StringIO(),
        width=width,
        color_system=None,
        force_terminal=False,
        legacy_windows=False,
    )


def text_of(target: Console) -> str:
    """What was printed."""
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()

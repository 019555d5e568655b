"""Cases P: prompts that a cache could answer."""

from __future__ import annotations

from typing import Any

import pytest

from concbench.analyse.cell import cell_result
from concbench.observe.activity import final_stats
from tests.analyse.simulate import MS, as_round, steady_stream
from tests.cases.play import DONE, Bench, Line, delta, event, playing, stream, usage
from tests.servers import reference_server


def test_p01_a_warm_server(bench: Bench) -> None:
    words = ["--prompt-tokens", "400"]
    with reference_server("--ttft-ms", "5", "--itl-ms", "1", "--prefix-cache") as url:
        seeds = (["--seed", "7"], [], ["--seed", "7"])
        *fresh, again = [bench.burst(url, *words, *seed, n=2, out=4) for seed in seeds]
    for run in fresh:
        assert "prompt_cache_hit" not in run.doubts
        assert not run.cell["tokens"]["cached"]
    hit = again.doubts["prompt_cache_hit"]
    assert hit["severity"] == "warning"
    assert hit["evidence"]["cached_tok"] > 0.9 * hit["evidence"]["prompt_tok"]


def test_p02_prompts_are_distinct(bench: Bench) -> None:
    def heads(bodies: list[dict[str, Any]]) -> set[str]:
        return {body["messages"][0]["content"][:32] for body in bodies}

    with playing(lambda number: stream([0.01])) as play:
        run = bench.burst(play.url, n=8, rounds=2, out=1)
    assert len(heads(play.bodies)) == 16
    assert run.result["workload"]["distinct_prompts"] is True
    assert "prompts_not_distinct" not in run.doubts
    with playing(lambda number: stream([0.01])) as play:
        same = bench.burst(play.url, "--same-prompt", n=8, rounds=2, out=1)
    assert len(heads(play.bodies)) == 1
    assert same.result["workload"]["distinct_prompts"] is False
    assert same.doubts["prompts_not_distinct"]["evidence"]["repeated"] == 15


def test_p03_a_shared_prefix_and_the_whole_prompt(bench: Bench) -> None:
    def half(_number: int) -> list[Line]:
        counts = {"prompt_tokens": 64, "completion_tokens": 1, "total_tokens": 65}
        told = {**counts, "prompt_tokens_details": {"cached_tokens": 32}}
        end = event({"choices": [], "usage": told})
        return [(0.0, delta("A")), (0.0, delta("", "length")), (0.0, end + DONE)]

    with playing(half) as play:
        run = bench.burst(play.url, "--prompt-tokens", "64", n=2, out=1)
    # The length asked for is the whole prompt's; what came from a cache is told as a share of it.
    assert run.cell["tokens"]["prompt"] == 128
    assert run.cell["tokens"]["cached"] == 64
    hit = run.doubts["prompt_cache_hit"]["evidence"]
    template = hit["template_tok"]
    assert hit["cached_tok"] == 2 * (32 - template)
    assert hit["prompt_tok"] == 2 * (64 - template)
    halves = {"prompt_tok": 64_000, "cached_tok": 32_000}
    reply = steady_stream(50 * MS, 10 * MS, 100, extra=halves)
    _, doubts = cell_result([as_round([reply])])
    assert "50.0 %" in next(d.message for d in doubts if d.code == "prompt_cache_hit")


def test_p05_no_prompt_count_when_cached(bench: Bench) -> None:
    tokens = stream([0.02, 0.03], end=[delta("", "length"), usage(2, None), DONE])
    with playing(lambda number: tokens) as play:
        run = bench.burst(play.url, out=2)
    assert run.cell["requests"]["ok"] == 1
    assert run.cell["tokens"]["prompt"] is None
    assert run.client["prefill_tok_per_s"] is None
    second = final_stats(
        {"prompt_eval_duration": 1_500_000, "eval_count": 12, "eval_duration": 600_000_000}
    )
    assert "prompt_tok" not in second
    assert second["prompt_ms"] == pytest.approx(1.5)

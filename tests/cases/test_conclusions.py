"""Cases Q: conclusions that the figures do not carry."""

from __future__ import annotations

import json

import msgspec
import pytest

from concbench.analyse.cell import cell_result
from concbench.analyse.unlike import Measured, unfair_names, unlike, unlike_measured
from concbench.analyse.verdict import Comparison, judge
from concbench.cli.main import main
from concbench.domain import Round, ServerSample, TargetFacts
from concbench.engines.registry import by_name
from concbench.result import VerdictResult
from tests.analyse.simulate import MS, S, as_round, steady_stream
from tests.cases.play import Bench, Line, playing, stream


def stepping(*gaps_ms: float) -> list[Round]:
    return [
        as_round([steady_stream(0, int(gap * MS), 200)], index=k) for k, gap in enumerate(gaps_ms)
    ]


def verdict(pairs: list[tuple[float, float]], **given: object) -> VerdictResult:
    """Judge lanes `a` and `b` on pairs of rates in tok/s."""
    known: dict[str, object] = {
        "metric": "steady_output_tok_per_s", "better": "higher", "a": "a", "b": "b",
        "cell_a": "a.short.c8", "cell_b": "b.short.c8", "concurrency": 8, "context_tok": 50,
        "looks": None,
    }  # fmt: skip
    (found,) = judge([msgspec.convert({**known, "pairs": pairs, **given}, Comparison)])
    return found


def gpu_row(at_s: float, name: str, value: float, labels: str = "gpu=0") -> ServerSample:
    at = int(at_s * S)
    return ServerSample(
        sent_ns=at - 1, received_ns=at, source="gpu", name=name, labels=labels, value=value
    )


def test_q01_a_hidden_slow_state() -> None:
    _, doubts = cell_result(stepping(63, 63, 63, 94, 94, 94))
    found = next(doubt for doubt in doubts if doubt.code == "bimodal")
    slow, fast = found.evidence["slow_tok_per_s"], found.evidence["fast_tok_per_s"]
    assert (len(slow), len(fast)) == (3, 3)
    assert fast[0] / slow[0] == pytest.approx(94 / 63, rel=0.01)
    _, doubts = cell_result(stepping(63, 63.2, 62.9, 63.1))
    assert "bimodal" not in {doubt.code for doubt in doubts}
    blocks = unlike_measured(Measured(), Measured(), interleaved=False)
    assert [(one.name, one.unfair) for one in blocks] == [("order", True)]
    assert unlike_measured(Measured(), Measured()) == []
    found_b = verdict([(1000 / 63, 1000 / 94)] * 3, unlike=["order"])
    assert found_b.verdict == "not_comparable"
    assert "order" in (found_b.why or "") or found_b.unlike == ["order"]


def test_q02_a_regression_that_is_none() -> None:
    # The machine grew slower by 30 % while A and B took turns; B is 0.2 % slower.
    slower = [1 - 0.02 * k for k in range(10)]
    pairs = [(100 * f, 99.8 * f * (1 + 0.001 * (-1) ** k)) for k, f in enumerate(slower)]
    assert verdict(pairs).verdict == "equivalent"
    drifted = verdict(pairs, controls=[100 * f for f in slower])
    assert drifted.verdict == "drifted"
    # One after the other the same machine would have given a regression of 20 %.
    blocks = verdict([(100.0, 80.0), (99.0, 79.0), (98.0, 78.5)], unlike=["order"])
    assert blocks.verdict == "not_comparable"


def growing_slower(number: int) -> list[Line]:
    """Each request is served slower than the one before: somebody else uses the GPU more."""
    return stream([(0.004 + 0.0003 * number) * k for k in range(1, 41)])


def test_q02_runs_in_turns_find_no_regression_where_blocks_would(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--levels", "2", "--rounds", "1", "--warmup", "0", "--output-tokens", "40"]
    with playing(growing_slower) as play:
        turns = bench("ab", play.url, play.url, *sizes, "--pairs", "3")
    # Seven runs of two; the server became slower by 90 %.
    assert len(play.bodies) == 14
    assert turns.result["payload"]["ab"]["order"] == "ABBAABA"
    (row,) = [row for row in turns.result["verdicts"] if row["metric"] == "output_tok_per_s"]
    assert row["n_pairs"] == 3
    # `invalid` is what a busy machine makes of it; a winner there must not be.
    assert row["verdict"] in ("drifted", "inconclusive", "equivalent", "invalid")

    with playing(growing_slower) as play:
        first, second = (bench.burst(play.url, n=2, rounds=3, out=40) for _ in range(2))
    rates = [run.client["output_tok_per_s"]["point"] for run in (first, second)]
    assert rates[1] < 0.95 * rates[0]
    code = main(["compare", str(first.folder), str(second.folder), "--quiet", "--json", "-"])
    judged = json.loads(capsys.readouterr().out)
    assert code in (0, 4)
    assert judged["verdicts"]
    assert {row["verdict"] for row in judged["verdicts"]} <= {"not_comparable", "invalid"}
    assert all("order" in row["unlike"] for row in judged["verdicts"])


def test_q02_other_users_of_the_gpu_are_named() -> None:
    rows = [
        row
        for second in range(1, 10)
        for row in (
            gpu_row(second, "gpu_own_bytes", 9e9),
            gpu_row(second, "gpu_user_bytes", 2e9, "gpu=0,pid=4711,name=trainer"),
        )
    ]
    (round_,) = stepping(100)
    _, doubts = cell_result([msgspec.structs.replace(round_, samples=rows)])
    found = next(doubt for doubt in doubts if doubt.code == "other_gpu_users")
    assert "trainer (pid 4711)" in found.message


def test_q03_clocks_drop_in_the_middle_of_a_run() -> None:
    def clocked(round_: Round, *mhz: float) -> Round:
        rows = []
        for k, clock in enumerate(mhz):
            rows += [gpu_row(0.5 + k, "gpu_clock_mhz", clock), gpu_row(0.5 + k, "gpu_util", 0.95)]
        return msgspec.structs.replace(round_, samples=rows)

    rounds = stepping(100, 190, 101)
    steady, fell = [2223] * 12, [2223] * 4 + [890] * 4 + [695] * 4
    series = [clocked(rounds[0], *steady), clocked(rounds[1], *fell), clocked(rounds[2], *steady)]
    _, doubts = cell_result(series)
    found = next(doubt for doubt in doubts if doubt.code == "throttled")
    assert [item["round"] for item in found.evidence["slow"]] == ["r1"]
    assert found.evidence["slow"][0]["lowest_mhz"] == 695


def test_q05_one_run_only(bench: Bench) -> None:
    with playing(lambda number: stream([0.02 + 0.007 * k for k in range(90)])) as play:
        run = bench.burst(play.url, n=2, out=90)
    for name in ("output_tok_per_s", "steady_output_tok_per_s"):
        estimate = run.client[name]
        assert (estimate["low"], estimate["high"]) == (None, None)
        assert estimate["n"] == 1
    assert "No comparison can rest on it" in run.doubts["single_round"]["message"]
    waits = [2533, 1735, 1747, 11_675, 47_593]
    rounds = [
        as_round([steady_stream(wait * MS, 20 * MS, 200)], index=k) for k, wait in enumerate(waits)
    ]
    result, _ = cell_result(rounds)
    assert result.client.ttft_ms.max == 47_593
    assert result.client.ttft_ms.min == 1735
    assert result.client.output_tok_per_s is not None
    assert result.client.output_tok_per_s.low is not None
    spread = result.client.output_tok_per_s
    assert spread.high is not None
    assert spread.high - spread.low > spread.point / 2
    alone = verdict([(2533, 1735)])
    assert alone.verdict == "inconclusive"
    assert alone.ratio is None or alone.ratio.low is None


def test_q07_a_lottery_under_speculation() -> None:
    rows = [
        ServerSample(sent_ns=at, received_ns=at, source="metrics", name=name, value=float(value))
        for at, values in (
            (0, (0, 0, 0)),
            (19 * S, (1000, 3000, 1800)),
        )
        for name, value in zip(
            ("spec_drafts", "spec_draft_tok", "spec_accepted_tok"), values, strict=True
        )
    ]
    (round_,) = stepping(100)
    result, _ = cell_result([msgspec.structs.replace(round_, samples=rows)])
    accepted = result.server.acceptance
    assert accepted is not None
    assert (accepted["mean_len"], accepted["rate"]) == (2.8, 0.6)
    lucky, unlucky = Measured(acceptance_len=2.8), Measured(acceptance_len=2.3)
    assert [one.name for one in unlike_measured(lucky, unlucky)] == ["acceptance"]
    assert unlike_measured(lucky, Measured(acceptance_len=2.75)) == []
    medians = [(199.9, 242.5), (201.0, 240.0), (198.0, 244.0), (200.0, 241.0)]
    assert verdict(medians, unlike=["acceptance"]).verdict == "not_comparable"
    matched = verdict(medians, unlike=["acceptance"], accepted=["acceptance"])
    assert matched.verdict == "b_faster"
    assert matched.accepted == ["acceptance"]


def test_q08_a_hobbled_rival() -> None:
    vllm = by_name("vllm")

    def side(*words: str) -> tuple[TargetFacts, dict[str, object]]:
        known = vllm.describe({}, ["vllm", "serve", "org/model", *words], [])
        names = set(TargetFacts.__struct_fields__)
        told = {key: fact.value for key, fact in known.items() if key in names}
        facts = TargetFacts(lane="x", engine="vllm", base_url="http://h", **told)
        return facts, {key: fact.value for key, fact in known.items() if key not in names}

    hobbled, more_a = side(
        "--enforce-eager", "--gpu-memory-utilization", "0.8", "--kv-cache-dtype", "fp8",
        "--quantization", "fp8", "--no-enable-prefix-caching",
    )  # fmt: skip
    plain, more_b = side("--kv-cache-dtype", "auto")
    found = unlike(hobbled, plain, more_a, more_b)
    assert {"eager", "kv_cache_dtype", "prompt_cache"} <= set(unfair_names(found))
    shown = {one.name: (one.a, one.b) for one in found}
    assert shown["kv_cache_dtype"] == ("fp8", "auto")
    assert unfair_names(unlike(plain, plain, more_b, more_b)) == []

"""The decode step's model: planted factors come back, and the error is of levels not seen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.analyse.steptime import StepPrediction, StepRow, fit, predictions, step_row
from concbench.domain import Doubt, Estimate, Summary, TargetFacts
from concbench.result import CellResult, DecodeAtN, Server, Steady, Tokens
from tests.analyse.test_capacity import a_cell

FACTS = TargetFacts(lane="a", engine="vllm", base_url="http://x")
G = 100


def row(n: int, step_s: float, context: int = 400) -> StepRow:
    return StepRow(
        cell=f"a.{context}.c{n}",
        concurrency=n,
        context_tok=context,
        output_tok=G,
        tokens_per_step=1.0,
        sequences=float(n),
        resident_tok=n * (context + G / 2),
        step_s=step_s,
        method="decode@N",
    )


def planted(a: float, b: float, c: float, levels: list[int], contexts: list[int]) -> list[StepRow]:
    return [
        row(n, (a + b * n + c * n * (ctx + G / 2)) / 1e3, ctx) for n in levels for ctx in contexts
    ]


def decoding(n: int, step_ms: float, *, context: int = 400, **changes: Any) -> CellResult:
    """A level at which N decode in steps of `step_ms`."""
    rate = Estimate(point=n * 1e3 / step_ms, low=None, high=None, n=4, method="")
    fields: dict[str, Any] = {
        "cell": f"a.{context}.c{n}",
        "context_tok": context,
        "decode_at_n": DecodeAtN(tok_per_s=rate, observed_s=10.0, segments=4),
    }
    return a_cell(n, **{**fields, **changes})


def of(*cells: CellResult, facts: TargetFacts = FACTS) -> StepPrediction:
    (found,) = predictions(cells, [], {"a": facts})
    return found


@given(
    a=st.floats(1, 50), b=st.floats(0, 5), c=st.floats(0, 0.01),
)  # fmt: skip
def test_planted_factors_come_back(a: float, b: float, c: float) -> None:
    model = fit(planted(a, b, c, [1, 4, 16], [100, 1000, 8000]))
    assert model is not None
    assert model.a_ms == pytest.approx(a, rel=1e-6)
    assert model.b_ms == pytest.approx(b, abs=1e-6)
    assert model.c_ms_per_1000_tok == pytest.approx(1e3 * c, abs=1e-5)
    assert model.context_tok is None


def test_one_context_cannot_tell_the_cache_from_the_sequence() -> None:
    model = fit(planted(10, 1, 0.002, [1, 2, 4, 8], [400]))
    assert model is not None
    # b + c · (400 + 50), for this context alone
    assert (model.a_ms, model.b_ms) == (pytest.approx(10), pytest.approx(1.9))
    assert (model.c_ms_per_1000_tok, model.context_tok) == (0.0, 400)


def test_factors_are_never_negative() -> None:
    # A step that gets shorter with more sequences: noise, not a law.
    model = fit([row(1, 0.012), row(2, 0.011), row(4, 0.010)])
    assert model is not None
    assert model.b_ms == 0.0
    assert model.a_ms > 0


def test_exact_levels_have_no_error_and_the_forecast_is_exact() -> None:
    # t = 10 + 0.5 · N ms
    found = of(*(decoding(n, 10 + 0.5 * n) for n in (1, 2, 4, 8)))
    assert found.error_max_pct == pytest.approx(0, abs=1e-6)
    assert found.held_out[0].axis == "concurrency"
    assert found.held_out[0].value == 8
    assert found.held_out[0].error_pct == pytest.approx(0, abs=1e-6)
    by_n = {level.concurrency: level for level in found.levels}
    assert sorted(by_n) == [1, 2, 4, 8, 16]
    assert [n for n, level in by_n.items() if level.forecast] == [16]
    assert by_n[16].decode_tok_per_s == pytest.approx(16 * 1e3 / 18)
    assert by_n[16].measured_decode_tok_per_s is None
    # P: 100 prompt tokens … none known of these cells, so nothing is said of sustained rates.
    assert by_n[16].sustained_tok_per_s is None


def test_sustained_takes_prefill_and_decode_in_turns() -> None:
    alone = decoding(1, 10.5, tokens=Tokens(output=100 * G, prompt=100 * 400))
    alone.client.ttft_ms = Summary(n=100, mean=230, min=180, max=400, p50=200, ci={})
    found = of(alone, *(decoding(n, 10 + 0.5 * n) for n in (2, 4)))
    # P = 400 ÷ 0.2 s = 2,000 tok/s; D(4) = 4 ÷ 12 ms; S = 100 ÷ (0.2 + 100 ÷ 333.3)
    assert (found.prefill_tok_per_s, found.prefill_method) == (
        pytest.approx(2000), "prompt ÷ TTFT",
    )  # fmt: skip
    four = next(level for level in found.levels if level.concurrency == 4)
    assert four.sustained_tok_per_s == pytest.approx(100 / (0.2 + 0.3))


def test_the_error_is_that_of_a_level_the_fit_did_not_see() -> None:
    # 1, 2, 4 lie on 10 + N; 8 takes 36 ms instead of 18: the others predict twice its rate.
    found = of(*(decoding(n, 10 + n) for n in (1, 2, 4)), decoding(8, 36))
    eight = next(level for level in found.levels if level.concurrency == 8)
    assert eight.error_pct == pytest.approx(100)
    assert found.error_max_pct == pytest.approx(100)
    assert found.held_out[0].error_pct == pytest.approx(100)


def test_several_contexts_hold_out_the_longest() -> None:
    cells = [
        decoding(n, 10 + 0.5 * n + 0.002 * n * (context + G / 2), context=context)
        for n in (1, 4, 8)
        for context in (400, 1000, 2000)
    ]
    found = of(*cells)
    assert found.model is not None
    assert found.model.c_ms_per_1000_tok == pytest.approx(2.0)
    assert {(one.axis, one.value) for one in found.held_out} == {
        ("concurrency", 8), ("context", 2000),
    }  # fmt: skip
    assert all(one.error_pct == pytest.approx(0, abs=1e-6) for one in found.held_out)


def test_levels_that_wait_doubted_ones_and_open_loops_are_left_out() -> None:
    cells = [decoding(n, 10 + n) for n in (1, 2, 4, 8)]
    few = TargetFacts(lane="a", engine="vllm", base_url="http://x", slots=4)
    assert [each.concurrency for each in of(*cells, facts=few).rows] == [1, 2, 4]
    # 8 · 500 tokens are more than 3,000
    small = TargetFacts(lane="a", engine="vllm", base_url="http://x", kv_capacity_tok=3000)
    assert [each.concurrency for each in of(*cells, facts=small).rows] == [1, 2, 4]
    fatal = [Doubt(code="client_bound", severity="fatal", message="m", cell="a.400.c8")]
    (found,) = predictions(cells, fatal, {"a": FACTS})
    assert [each.concurrency for each in found.rows] == [1, 2, 4]
    assert predictions([decoding(1, 10, rate_rps=2.0)], [], {}) == []


def test_too_few_levels_are_told() -> None:
    found = of(decoding(1, 11), decoding(2, 12))
    assert found.model is None
    assert found.why == ("a step's time needs 3 levels that ran without waiting; there are 2")
    assert (found.levels, found.held_out, found.error_max_pct) == ([], [], None)
    # TPOT alone at one level, decode@N at the others: two different times.
    mixed = of(decoding(1, 11), decoding(2, 12), a_cell(4, context_tok=400))
    assert mixed.why is not None
    assert "TPOT" in mixed.why


def test_speculation_multiplies_the_tokens_of_a_step() -> None:
    cell = decoding(4, 10, server=Server(acceptance={"tokens_per_step": 2.5}))
    found = step_row(cell, FACTS)
    assert found is not None
    # 400 tok/s of 4 are 100 each: at 2.5 tokens a step, 40 steps a second.
    assert found.step_s == pytest.approx(0.025)


def test_a_burst_window_is_decode_and_a_sustained_one_is_not() -> None:
    rate = Estimate(point=400, low=None, high=None, n=4, method="")
    burst = a_cell(4, steady=Steady(found=True, estimand="decode"))
    burst.client.steady_output_tok_per_s = rate
    loop = a_cell(4, steady=Steady(found=True, estimand="sustained"))
    loop.client.steady_output_tok_per_s = rate
    first, second = step_row(burst, FACTS), step_row(loop, FACTS)
    assert first is not None
    assert second is not None
    assert (first.method, first.step_s) == ("decode@N", pytest.approx(0.01))
    assert (second.method, second.step_s) == ("tpot", pytest.approx(0.02))


def test_contents_are_not_thrown_together() -> None:
    cells = [
        decoding(n, ms * (10 + n), cell=f"a.{kind}.c{n}", context_label=kind)
        for kind, ms in (("code", 1.0), ("prose", 2.0))
        for n in (1, 2, 4)
    ]
    code, prose = predictions(cells, [], {"a": FACTS})
    assert (code.labels, prose.labels) == (["code"], ["prose"])
    assert code.model is not None
    assert prose.model is not None
    assert prose.model.a_ms == pytest.approx(2 * code.model.a_ms)


def test_nothing_is_forecast_that_cannot_run_at_once() -> None:
    cells = [decoding(n, 10 + 0.5 * n) for n in (1, 2, 4)]

    def forecast(**limits: int) -> list[int]:
        facts = TargetFacts(lane="a", engine="vllm", base_url="http://x", **limits)  # type: ignore[arg-type]
        return [each.concurrency for each in of(*cells, facts=facts).levels if each.forecast]

    assert forecast() == [8]
    assert forecast(slots=4) == []
    assert forecast(kv_capacity_tok=8 * (400 + G) - 1) == []

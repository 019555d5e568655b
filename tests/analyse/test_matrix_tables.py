"""Known answers: among them the figures that people worked out by hand from such matrices."""

import pytest
from msgspec.structs import replace

from concbench.analyse.matrix_tables import elapsed_s, is_matrix, matrix
from concbench.analyse.single import RATIO, SLOPE
from concbench.domain import Estimate, TargetFacts
from concbench.result import Requests, Server, Tokens
from tests.report.conftest import cell as burst_cell
from tests.report.conftest import estimate, summary

G = 128


def cell(lane, context, n, rate, *, link=None, rounds=4, failed=0, **more):
    """A cell in which N answers of 128 tokens came at `rate` tok/s in all."""
    base = burst_cell(1)
    sent = n * rounds
    ok = sent - failed
    known = {
        "cell": f"{lane}.{link}.{context}.c{n}",
        "lane": lane,
        "link": link,
        "context_label": "short" if context == 50 else str(context),
        "context_tok": context,
        "concurrency": n,
        "requests": Requests(sent=sent, ok=ok, failed=failed, errors={"x": failed}),
        "tokens": Tokens(prompt=context * ok, cached=0, output=G * ok, asked_output=G * ok),
        "client": replace(
            base.client,
            output_tok_per_s=t_estimate(rate) if ok else None,
            prefill_tok_per_s=more.pop("prefill", None),
            decode_tok_per_s=more.pop("decode", None),
            ttft_ms=summary(more.pop("ttft_ms", [100.0] * 4)),
        ),
        "overlap": more.pop("overlap", None),
    }
    return replace(base, **{**known, **more})


def t_estimate(point, relative=0.004):
    return replace(estimate(point, relative), method="mean of 4 rounds, t interval")


def facts(lane="a", pool=None):
    return TargetFacts(lane=lane, engine="vllm", base_url="http://x", kv_capacity_tok=pool)


def test_what_is_a_matrix():
    assert not is_matrix([cell("a", 50, n, 10.0 * n) for n in (1, 2)])
    assert is_matrix([cell("a", 50, 1, 1.0), cell("b", 50, 1, 1.0)])
    assert is_matrix([cell("a", 50, 1, 1.0), cell("a", 5000, 1, 1.0)])
    assert is_matrix([cell("a", 50, 1, 1.0, link="x"), cell("a", 50, 1, 1.0, link="y")])


def test_beyond_the_pool_the_elapsed_ratio_stands_beside_that_of_n():
    # 32,000 tokens of context, a pool of 635,712: 19 fit, 29 are half as many again.
    cells = [cell("a", 32_000, n, 5.86) for n in (1, 19)]
    cells += [cell("a", 32_000, 29, 5.87, server=Server(preemptions=0))]
    found = matrix(cells, {"a": facts(pool=635_712)})
    one, inside, over = found.concurrency
    assert [row.over_kv for row in found.concurrency] == [False, False, True]
    assert inside.kv_demand_tok == 19 * 32_128
    assert over.kv_demand_tok == 931_712
    assert over.relative_to == 19
    assert over.concurrency_ratio == pytest.approx(1.526, abs=0.001)
    assert over.elapsed_ratio == pytest.approx(1.523, abs=0.002)
    assert over.throughput_constant is True
    assert inside.elapsed_s == pytest.approx(19 * G / 5.86)
    assert one.relative_to is None
    (most,) = found.max_concurrency
    assert (most.kv_limit, most.max_clean, most.over_concurrency) == (19, 19, 29)
    assert most.over_ratio == pytest.approx(29 / 19)
    assert (most.over_failures, most.over_preemptions) == (0, 0)
    assert most.first_bad is None


def test_two_over_the_pool_are_both_against_the_last_inside():
    cells = [cell("a", 1000, n, 50.0) for n in (1, 4, 6, 8)]
    rows = matrix(cells, {"a": facts(pool=4 * (1000 + G))}).concurrency
    assert [row.relative_to for row in rows] == [None, 1, 4, 4]


def test_prefill_alone_predicts_the_aggregate_at_long_context():
    # 1,448.7 tok/s of prefill at 5,000 tokens predict 36.2; 36.7 were measured.
    cells = [
        cell("a", 5000, 1, 24.6, prefill=t_estimate(1448.7)),
        cell("a", 5000, 16, 36.7),
        cell("a", 50, 1, 71.0, prefill=t_estimate(1448.7)),
    ]
    found = matrix(cells, {"a": facts()}).predicted
    short, long = found
    assert long.predicted_tok_per_s == pytest.approx(1448.7 * 128 / 5128)
    assert long.measured_to_predicted == pytest.approx(36.7 / (1448.7 * 128 / 5128))
    assert (long.measured_concurrency, long.prefill_method) == (16, SLOPE)
    assert long.long_context
    assert not short.long_context


def test_without_a_slope_prefill_is_the_prompt_over_ttft():
    ttft = [3440.0, 3460.0]
    (row,) = matrix([cell("a", 5000, 1, 24.6, ttft_ms=ttft)], {}).single_stream
    assert row.prefill_method == RATIO
    assert row.prefill_tok_per_s is not None
    assert row.prefill_tok_per_s.point == pytest.approx(5000 / 3.44)
    assert row.prefill_tok_per_s.range == pytest.approx((5000 / 3.46, 5000 / 3.44))
    (short,) = matrix([cell("a", 50, 1, 24.6, ttft_ms=ttft)], {}).single_stream
    assert short.prefill_tok_per_s is None


def test_a_slope_is_not_compared_with_a_prompt_over_its_ttft():
    cells = [
        cell("a", 5000, 1, 24.6, ttft_ms=[3440.0, 3460.0]),
        cell("b", 5000, 1, 24.6, ttft_ms=[3440.0, 3460.0], prefill=t_estimate(9000.0)),
        cell("c", 5000, 1, 24.6, ttft_ms=[1720.0, 1730.0]),
    ]
    first, slope, ratio = matrix(cells, {}).single_stream
    assert [row.prefill_method for row in (first, slope, ratio)] == [RATIO, SLOPE, RATIO]
    assert (first.prefill_change, slope.prefill_change) == (None, None)
    assert ratio.prefill_change is not None
    assert ratio.prefill_change.relative_pct == pytest.approx(100, abs=1)
    assert slope.ttft_change is not None


def test_gain_from_concurrency_to_saturation():
    rates = {1: 71.0, 4: 188.0, 64: 530.0, 256: 535.6}
    (row,) = matrix([cell("a", 50, n, rate) for n, rate in rates.items()], {}).gain
    assert row.gain == pytest.approx(7.54, abs=0.01)
    assert (row.peak_concurrency, row.saturation_concurrency, row.saturated) == (256, 64, True)
    (growing,) = matrix([cell("a", 50, n, 50.0 * n) for n in (1, 2, 4)], {}).gain
    assert not growing.saturated
    assert matrix([cell("a", 50, 2, 5.0), cell("a", 50, 4, 5.0)], {}).gain == []


def test_single_stream_has_the_change_with_its_interval():
    cells = [
        cell("vllm", 50, 1, 70.0, decode=t_estimate(73.3, 0.04)),
        cell("llamacpp", 50, 1, 70.0, decode=t_estimate(73.1, 0.002)),
        cell("vllm", 5000, 1, 70.0, decode=t_estimate(75.0, 0.002)),
        cell("llamacpp", 5000, 1, 70.0, decode=t_estimate(70.5, 0.003)),
    ]
    rows = matrix(cells, {}, lanes=["llamacpp", "vllm"]).single_stream
    assert [(row.lane, row.context_tok) for row in rows] == [
        ("llamacpp", 50),
        ("vllm", 50),
        ("llamacpp", 5000),
        ("vllm", 5000),
    ]
    assert [row.against for row in rows] == [None, "llamacpp", None, "llamacpp"]
    near, far = rows[1].decode_change, rows[3].decode_change
    assert near is not None
    assert (near.spreads_overlap, near.exceeds_noise) == (True, False)
    assert near.low_pct < 0 < near.high_pct
    assert far is not None
    assert far.spreads_overlap is False
    assert far.relative_pct == pytest.approx(6.4, abs=0.1)


def test_one_link_against_another_by_cell():
    cells = [cell("m", 50, n, 10.0 * n, link="5g") for n in (1, 4)]
    cells += [cell("m", 50, n, 12.2 * n, link="bond") for n in (1, 4)]
    cells += [cell("m", 50, n, 10.01 * n, link="usb") for n in (1, 8)]
    rows = matrix(cells, {}, links=["5g", "usb", "bond"]).against
    rates = [row for row in rows if row.metric == "aggregate_tok_per_s"]
    assert [(r.axis, r.a, r.b, r.shared, r.concurrency) for r in rates] == [
        ("link", "5g", "usb", "m", 1),
        ("link", "5g", "bond", "m", 1),
        ("link", "5g", "bond", "m", 4),
    ]
    assert rates[0].change.exceeds_noise is False
    assert rates[2].change.exceeds_noise is True
    assert rates[2].change.relative_pct == pytest.approx(22.0)


def test_flag_values_are_compared_within_their_lane_and_the_control_with_itself():
    names = ["v[g=0.8]", "v[g=0.9]", "v[g=0.8]~control", "l"]
    cells = [cell(name, 50, 1, 10.0) for name in names]
    rows = matrix(cells, {}, lanes=names).against
    rates = [(r.axis, r.a, r.b) for r in rows if r.metric == "aggregate_tok_per_s"]
    assert rates == [
        ("flag", "v[g=0.8]", "v[g=0.9]"),
        ("control", "v[g=0.8]", "v[g=0.8]~control"),
        ("lane", "v[g=0.8]", "l"),
    ]


def test_trouble_is_named_with_the_smallest_n_that_had_it():
    cells = [cell("a", 32_000, n, 5.0) for n in (1, 2)]
    cells += [cell("a", 32_000, 4, 1.9, failed=16, outcome="crashed")]
    found = matrix(cells, {})
    (most,) = found.max_concurrency
    assert (most.max_clean, most.first_bad, most.first_bad_outcome) == (2, 4, "crashed")
    crashed = found.concurrency[-1]
    assert (crashed.elapsed_s, crashed.failures, crashed.over_kv) == (None, 16, False)
    some = cell("a", 32_000, 4, 1.9, failed=3)
    assert elapsed_s(some) is None
    (row,) = matrix([some], {}).max_concurrency
    assert row.first_bad_outcome == "3 failed"


def test_a_context_that_is_refused_still_has_its_row():
    nothing = cell("a", 100_000, 1, 1.0, failed=4, outcome="context_rejected")
    found = matrix([cell("a", 50, 1, 10.0), nothing], {"a": facts(pool=92_416)}, G)
    row = found.max_concurrency[1]
    assert (row.kv_limit, row.max_clean, row.first_bad_outcome) == (0, None, "context_rejected")
    assert [row.context_tok for row in found.single_stream] == [50]


def test_rates_of_an_open_loop_are_no_concurrency():
    assert matrix([cell("a", 50, 1, 10.0, rate_rps=4.0)], {}).concurrency == []


def test_an_estimate_keeps_its_interval():
    (row,) = matrix([cell("a", 50, 1, 10.0, decode=t_estimate(11.0))], {}).single_stream
    assert isinstance(row.decode_tok_per_s, Estimate)
    assert row.decode_tok_per_s.low == pytest.approx(11.0 * 0.996)


def test_what_the_sweep_knew_of_the_pool_comes_before_the_facts():
    cells = [cell("a[kv=q8]", 1000, n, 50.0) for n in (1, 4, 6)]
    known = {
        each.cell: {"pool_tok": 4600, "demand_tok": 1100 * n, "over_kv": n > 4}
        for each, n in zip(cells, (1, 4, 6), strict=True)
    }
    found = matrix(cells, {"a[kv=q8]": facts(pool=10**9)}, demands=known)
    assert [(r.over_kv, r.kv_demand_tok, r.kv_pool_tok) for r in found.concurrency] == [
        (False, 1100, 4600),
        (False, 4400, 4600),
        (True, 6600, 4600),
    ]
    assert found.max_concurrency[0].kv_limit == 4


@pytest.mark.parametrize(
    ("rate", "noise", "constant"),
    [(102.0, 0.001, True), (110.0, 0.004, False), (110.0, 0.3, None), (102.0, 0.3, True)],
)
def test_throughput_is_constant_changed_or_too_noisy_to_tell(rate, noise, constant):
    cells = [cell("a", 50, 1, 100.0), cell("a", 50, 2, 100.0)]
    cells[1].client.output_tok_per_s = t_estimate(rate, noise)
    assert matrix(cells, {}).concurrency[1].throughput_constant is constant

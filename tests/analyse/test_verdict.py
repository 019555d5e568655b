"""Verdicts: the rules in their order, known answers, and what may never happen."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.analyse.intervals import interval_of, pairs_to_settle
from concbench.analyse.verdict import Comparison, drift_of, judge, mirrored


def comparison(pairs, **changes):
    fields = {
        "metric": "steady_output_tok_per_s",
        "better": "higher",
        "a": "old",
        "b": "new",
        "cell_a": "old.c4",
        "cell_b": "new.c4",
        "concurrency": 4,
        "context_tok": 50,
        "pairs": pairs,
        "starts_a": 5,
        "starts_b": 5,
        "looks": None,
    }
    return Comparison(**{**fields, **changes})


def one(pairs, **changes):
    (row,) = judge([comparison(pairs, **changes)])
    return row


def spread(ratio, sd, n=5):
    """Pairs whose ln(B/A) has exactly this mean and standard deviation."""
    shape = np.linspace(-1, 1, n)
    shape *= sd / shape.std(ddof=1)
    return [(100.0, 100.0 * ratio * math.exp(x)) for x in shape]


def test_the_ratio_is_the_t_interval_on_logarithms():
    row = one(spread(1.05, 0.01))
    half = 2.7764451 * 0.01 / math.sqrt(5)
    assert row.verdict == "b_faster"
    assert row.ratio.point == pytest.approx(1.05)
    assert row.ratio.low == pytest.approx(1.05 * math.exp(-half))
    assert row.ratio.high == pytest.approx(1.05 * math.exp(half))
    assert (row.n_pairs, row.provisional, row.adjusted, row.why) == (5, False, None, None)
    assert row.beyond_delta


def test_a_difference_that_is_real_and_not_surely_beyond_delta():
    row = one(spread(1.035, 0.01))
    assert row.verdict == "b_faster"
    assert not row.beyond_delta


def test_equivalent_comes_before_faster():
    row = one(spread(1.01, 0.002))
    assert row.ratio.low > 1
    assert row.verdict == "equivalent"


def test_lower_is_better():
    assert one(spread(1.2, 0.01), better="lower").verdict == "a_faster"
    assert one(spread(0.8, 0.01), better="lower").verdict == "b_faster"


def test_inconclusive_says_how_many_pairs_would_do():
    row = one(spread(1.02, 0.03))
    assert row.verdict == "inconclusive"
    assert 5 < row.pairs_needed < 40


def test_the_number_of_pairs_asked_for_settles_it_four_times_in_five():
    draw = np.random.default_rng(5)
    logs = [math.log(b / a) for a, b in spread(1.05, 0.08)]
    needed = pairs_to_settle(logs, math.log(1.03), 0.05)
    settled = 0
    for _ in range(400):
        data = draw.normal(np.mean(logs), np.std(logs, ddof=1), needed)
        apart, equal = interval_of(data, 0.05), interval_of(data, 0.10)
        limit = math.log(1.03)
        settled += apart.low > 0 or apart.high < 0 or (-limit < equal.low and equal.high < limit)
    assert 0.74 < settled / 400 < 0.93


@pytest.mark.parametrize("n", [1, 2])
def test_too_few_pairs_have_a_range_and_no_verdict(n):
    row = one([(100.0, 150.0), (100.0, 160.0)][:n])
    assert row.verdict == "inconclusive"
    assert row.ratio.low is None
    assert row.ratio.range[0] == pytest.approx(1.5)
    assert row.pairs_needed == 3
    assert "no interval" in row.why


def test_nothing_to_divide_by():
    row = one([(0.0, 5.0), (math.nan, 1.0), (1.0, math.inf), (3.0, -1.0)])
    assert (row.verdict, row.ratio, row.n_pairs) == ("invalid", None, 0)
    # Where no pair was completed, as after an early signal, nothing is wrong: nothing is known.
    assert (one([]).verdict, one([]).why) == ("inconclusive", "no pair is complete")


def test_a_fatal_doubt_comes_first():
    row = one(spread(2, 0.01), fatal=["truncated_streams"], unlike=["slots"], controls=[1, 1, 2, 2])
    assert row.verdict == "invalid"
    assert "truncated_streams" in row.why


def test_what_is_unlike_must_be_accepted_by_name():
    row = one(spread(2, 0.01), unlike=["quantization", "slots"], accepted=["slots", "model"])
    assert row.verdict == "not_comparable"
    assert "quantization" in row.why
    assert "--accept quantization" in row.why
    assert row.unlike == ["quantization", "slots"]
    assert row.accepted == ["slots"]
    taken = one(
        spread(2, 0.01), unlike=["quantization", "slots"], accepted=["slots", "quantization"]
    )
    assert taken.verdict == "b_faster"
    assert taken.accepted == ["quantization", "slots"]


def test_one_after_the_other_is_refused_and_taken_as_provisional():
    row = one(spread(2, 0.01), unlike=["order"])
    assert row.verdict == "not_comparable"
    assert "one after the other" in row.why
    taken = one(spread(2, 0.01), unlike=["order"], accepted=["order"])
    assert taken.verdict == "b_faster"
    assert taken.provisional


def test_acceptance_must_match_before_speculation_is_compared():
    assert one(spread(1.4, 0.01), unlike=["acceptance"]).verdict == "not_comparable"


def test_the_instruments_own_error():
    small = spread(1.04, 0.005)
    assert one(small, instrument_error_pct=1.0).verdict == "b_faster"
    hidden = one(small, instrument_error_pct=4.5)
    assert hidden.verdict == "invalid"
    assert "own error" in hidden.why
    blind = one(spread(1.001, 0.001), instrument_error_pct=3.5)
    assert blind.verdict == "invalid"
    assert one(spread(1.9, 0.01), instrument_error_pct=4.5).verdict == "b_faster"


def test_a_control_that_moved_voids_whatever_b_did():
    row = one(spread(2, 0.001), controls=[100, 100, 101, 103, 103])
    assert row.verdict == "drifted"
    assert row.drift_pct == pytest.approx(100 * (math.sqrt(103 * 103) / 100 - 1), abs=1.1)
    assert one(spread(2, 0.001), controls=[100, 100, 101, 101]).verdict == "b_faster"


def test_the_gate_is_half_of_delta():
    edge = 100 * math.exp(math.log(1.03) / 2)
    assert one(spread(1, 0.001), controls=[100, 100, edge * 0.9999, edge]).verdict == "equivalent"
    assert one(spread(1, 0.001), controls=[100, 100, edge * 1.001, edge]).verdict == "drifted"
    assert drift_of([1, 2, 3]) is None


def test_one_start_is_provisional():
    assert one(spread(1.5, 0.01), starts_b=1).provisional


def test_two_states_are_named():
    # Three runs of each side near 63 and three near 94: the same build in two states.
    pairs = [(63, 94), (94, 63.2), (63.1, 94.1), (94.2, 63), (63, 63.1), (94, 94.3)]
    row = one(pairs)
    assert row.verdict == "inconclusive"
    assert "bimodal: old runs fall in two groups" in row.why
    assert "near 63" in row.why


def test_one_run_apart_is_named_and_no_second_state():
    pairs = [(20.7, 20.6)] * 5 + [(129.0, 20.6)]
    row = one(pairs)
    assert "old has one run near 129 and 5 others near 20.7" in row.why
    assert "bimodal" not in row.why


def test_block_order_is_not_attributable():
    # A A A B B B: 63 and 94 ms a step.
    row = one([(63, 94), (63, 94), (63, 94)], better="lower", unlike=["order"])
    assert row.verdict == "not_comparable"


def test_holm_over_levels():
    strong = comparison(spread(1.2, 0.01), concurrency=1)
    weak = [comparison(spread(1.04, 0.028), concurrency=n) for n in (2, 4, 8)]
    assert one(spread(1.04, 0.028)).verdict == "b_faster"
    rows = judge([weak[0], strong, *weak[1:]])
    assert [row.verdict for row in rows] == ["inconclusive", "b_faster", *["inconclusive"] * 2]
    assert "Holm" in rows[0].why
    assert rows[1].adjusted == "holm"
    # Another metric is another family.
    other = comparison(spread(1.04, 0.028), metric="ttft_ms.p50", better="lower")
    assert judge([strong, other])[1].verdict == "a_faster"


def test_looking_early_costs():
    pairs = spread(1.05, 0.037)
    assert one(pairs, looks=None).verdict == "b_faster"
    assert one(pairs, looks=(5, 7, 10)).verdict == "inconclusive"
    assert "all looks" in one(pairs, looks=(5, 7, 10)).ratio.method


def test_the_sides_give_the_ratio():
    # B is slower by 3 % in each pair, while the day makes both sides wander.
    pairs = [(day, 0.97 * day) for day in (20.0, 24.0, 21.0, 23.0, 22.0)]
    row = one([*pairs, (0.0, 50.0)])
    assert row.value_b.point / row.value_a.point == pytest.approx(row.ratio.point)
    assert row.value_a.low < 22 < row.value_a.high
    assert row.value_a.n == row.n_pairs == 5
    assert mirrored(row).value_a == row.value_b
    assert one([]).value_a is None


def test_mirrored_twice_is_the_same():
    row = one(spread(1.05, 0.01))
    turned = mirrored(row)
    assert (turned.a, turned.verdict) == ("new", "a_faster")
    assert turned.ratio.low == pytest.approx(1 / row.ratio.high)
    assert mirrored(turned).ratio.point == pytest.approx(row.ratio.point)


values = st.floats(0.01, 1e6)


@given(st.lists(st.tuples(values, values), min_size=3, max_size=12), st.floats(0.1, 10))
def test_units_do_not_matter_and_exchanging_the_sides_exchanges_the_verdict(pairs, unit):
    row = one(pairs)
    scaled = one([(a * unit, b * unit) for a, b in pairs])
    turned = one([(b, a) for a, b in pairs])
    swap = {"a_faster": "b_faster", "b_faster": "a_faster"}
    assert turned.verdict == swap.get(row.verdict, row.verdict)
    assert scaled.ratio.point == pytest.approx(row.ratio.point)
    assert turned.ratio.point * row.ratio.point == pytest.approx(1)
    assert row.ratio.low <= row.ratio.point <= row.ratio.high


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=8))
def test_any_numbers_give_a_verdict(pairs):
    row = one(pairs, controls=[a for a, _ in pairs])
    assert row.verdict
    assert row.ratio is None or row.ratio.point >= 0


def test_too_few_pairs_for_an_interval_never_settle_it():
    assert one([(100.0, 101.0)], looks=(1,)).pairs_needed == 3
    assert one([(100.0, 101.0)], looks=(5, 7, 10)).pairs_needed == 5

import pytest

from concbench.analyse.compare import Party
from concbench.analyse.told import told_cell, told_estimate, told_summary
from concbench.analyse.toldcompare import compare_told
from concbench.domain import TargetFacts

METRIC = "output_tok_per_s"


def cell(lane, level, told, metric=METRIC, context=50):
    return told_cell(
        {
            "cell": f"{lane}.c{level}",
            "lane": lane,
            "concurrency": level,
            "context_tok": context,
            "context_label": "short",
            "sent": 1,
            "ok": 1,
            "failed": 0,
            "figures": {metric: told} if {"mean", "values"} & told.keys() else told,
        },
        "t",
    )


def party(lane, *cells):
    facts = TargetFacts(lane=lane, engine="vllm", base_url="x", model="m")
    keyed = {(one.context_tok, one.concurrency, None): one for one in cells}
    return Party(name=lane, study="s", facts=facts, rounds=(), cells=keyed)


def verdicts(a, b, accepted=("order",)):
    return compare_told([a, b], accepted).verdicts


def test_what_was_told_keeps_its_interval_or_has_none():
    assert told_estimate({"mean": 5.0}, "t").low is None
    assert told_estimate({"mean": 5.0, "half_width": 1.0}, "t").high == 6.0
    three = told_estimate({"values": [1.0, 2.0, 3.0]}, "t")
    assert three.n == 3
    assert three.low < 2 < three.high
    assert told_estimate({}, "t") is None
    assert told_summary({"values": [1.0, 3.0]}).mean == 2
    assert told_summary({"p50": 4.0, "n": 7}).p50 == 4


def test_a_cell_that_was_not_measured_says_why():
    told = {"cell": "c", "lane": "l", "concurrency": 8, "context_tok": 50, "context_label": "s",
            "figures": {}, "measured": False, "detail": "capped at 2"}  # fmt: skip
    made = told_cell(told, "t")
    assert (made.outcome, made.outcome_detail) == ("skipped", "capped at 2")


def test_a_single_reading_claims_nothing():
    a, b = party("a", cell("a", 1, {"mean": 10.0})), party("b", cell("b", 1, {"mean": 90.0}))
    (row,) = verdicts(a, b)
    assert row.verdict == "inconclusive"
    assert row.ratio.point == pytest.approx(9)
    (refused,) = verdicts(a, b, ())
    assert refused.verdict == "not_comparable"
    assert "order" in refused.why


@pytest.mark.parametrize(
    ("value", "half", "verdict"),
    [(100.5, 0.5, "equivalent"), (110.0, 1.0, "b_faster"), (90.0, 1.0, "a_faster"),
     (102.0, 3.0, "inconclusive")],
)  # fmt: skip
def test_two_intervals_give_one(value, half, verdict):
    a = party("a", cell("a", 1, {"mean": 100.0, "half_width": 0.5}))
    b = party("b", cell("b", 1, {"mean": value, "half_width": half}))
    (row,) = verdicts(a, b)
    assert row.verdict == verdict
    assert row.provisional


def test_intervals_that_overlap_may_well_differ():
    # 100 ± 2 and 103 ± 2 overlap; their difference has half-width 2.8.
    a = party("a", cell("a", 1, {"mean": 100.0, "half_width": 2.0}))
    b = party("b", cell("b", 1, {"mean": 103.0, "half_width": 2.0}))
    assert verdicts(a, b)[0].verdict == "b_faster"


def test_holm_over_the_levels():
    levels = (1, 2, 4, 8)
    a = party("a", *(cell("a", n, {"mean": 100.0, "half_width": 2.0}) for n in levels))
    b = party("b", *(cell("b", n, {"mean": 103.0, "half_width": 2.0}) for n in levels))
    rows = verdicts(a, b)
    assert {row.verdict for row in rows} == {"inconclusive"}
    assert "Holm" in rows[0].why
    clear = party("b", *(cell("b", n, {"mean": 130.0, "half_width": 2.0}) for n in levels))
    assert {row.adjusted for row in verdicts(a, clear)} == {"holm"}


def test_lower_latency_is_better():
    told = {"ttft_ms": {"p50": 100.0}, "output_tok_per_s": {"mean": 10.0}}
    worse = {"ttft_ms": {"p50": 150.0}, "output_tok_per_s": {"mean": 20.0}}
    out = compare_told(
        [
            party("a", cell("a", 1, told), cell("a", 2, told)),
            party("b", cell("b", 1, worse), cell("b", 2, worse)),
        ],
        ("order",),
    )
    winners = {entry["metric"]: entry["ranges"][0]["winner"] for entry in out.crossovers}
    assert winners == {"output_tok_per_s": "b", "ttft_ms.p50": "a"}


def test_the_client_against_the_server():
    def sides(late):
        early = {METRIC: {"mean": 352.0}, "server_output_tok_per_s": {"values": [350.0, 346, 348]}}
        return compare_told(
            [party("early", cell("early", 16, early)), party("late", cell("late", 16, late))],
            ("order",),
        )

    same = {"server_output_tok_per_s": {"values": [349.0, 345, 347]}}
    codes = {d.code for d in sides({METRIC: {"mean": 280.0}, **same}).doubts}
    assert "client_server_disagree" in codes
    codes = {d.code for d in sides({METRIC: {"mean": 350.0}, **same}).doubts}
    assert "client_server_disagree" not in codes

import pytest

from concbench.analyse.gate import gate, parse_gate, passes
from concbench.errors import UsageError
from tests.analyse.test_verdict import one, spread


@pytest.mark.parametrize(
    ("ratio", "sd", "better", "decision"),
    [
        (0.90, 0.005, "higher", "fail"),
        (0.97, 0.005, "higher", "pass"),
        (1.20, 0.005, "higher", "pass"),
        (1.00, 0.010, "higher", "pass"),
        (0.95, 0.030, "higher", "inconclusive"),
        (1.10, 0.005, "lower", "fail"),
        (1.03, 0.005, "lower", "pass"),
        (0.50, 0.005, "lower", "pass"),
    ],
)
def test_the_interval_decides(ratio, sd, better, decision):
    (gated,) = gate([one(spread(ratio, sd), better=better)], 0.05)
    assert gated.decision == decision, gated.reason


@pytest.mark.parametrize(
    "changes",
    [{"fatal": ["stalled"]}, {"unlike": ["order"]}, {"controls": [1, 1, 2, 2]}],
)
def test_no_verdict_fails_however_good_the_numbers_look(changes):
    (gated,) = gate([one(spread(1.5, 0.01), **changes)], 0.05)
    assert gated.decision == "fail"


def test_nothing_measured_fails():
    assert gate([one([])], 0.05)[0].decision == "fail"
    assert not passes([], inconclusive_passes=True)


def test_what_is_open_is_the_users_choice():
    gated = gate([one(spread(1.2, 0.01)), one([(1.0, 1.0)])], 0.05)
    assert [each.decision for each in gated] == ["pass", "inconclusive"]
    assert passes(gated, inconclusive_passes=True)
    assert not passes(gated, inconclusive_passes=False)


def test_equal_within_delta_is_no_pass_of_a_narrower_gate():
    (gated,) = gate([one(spread(1.0, 0.02))], 0.01)
    assert gated.row.verdict == "equivalent"
    assert gated.decision == "inconclusive"


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), (" 2.5 %", 0.025)])
def test_a_gate_is_a_share(text, share):
    assert parse_gate(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "0", "-5%", "nan", "5 percent", "95%", "3"])
def test_anything_else_is_refused(text):
    with pytest.raises(UsageError, match="--gate"):
        parse_gate(text)

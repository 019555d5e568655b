import pytest

from concbench.analyse.doubts_record import record_doubts


def said(*args, **more):
    return [each.message for each in record_doubts(*args, **more)]


def test_a_whole_record_and_one_crash_raise_nothing():
    assert said({}, [], 0, []) == []
    assert said({}, [], 0, ["r1"]) == []


def test_rounds_that_cannot_be_read_are_named():
    assert said({"r1": "why"}, [], 0, []) == ["1 round on record cannot be read (r1)"]
    many = {f"r{number}": "why" for number in range(5)}
    assert said(many, [], 0, []) == ["5 rounds on record cannot be read (r0, r1, r2, and 2 more)"]
    assert record_doubts(many, [], 0, [])[0].evidence == {"rounds": list(many)}


@pytest.mark.parametrize(("lost", "text"), [(["r1"], "1 round on record is gone (r1)")])
def test_rounds_that_are_gone_are_named(lost, text):
    assert said({}, lost, 0, []) == [text]


def test_what_the_log_lacks_is_told():
    end = ": corrections and other notes may be missing"
    assert said({}, [], 1, []) == [f"1 line of the log cannot be read{end}"]
    assert said({}, [], 0, ["a", "b"]) == [f"2 rounds on record are not in the log{end}"]
    assert said({}, [], 0, ["a"], log_empty=True) == [f"1 round on record is not in the log{end}"]

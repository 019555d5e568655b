from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.engines import reading
from concbench.engines.spec import Fact
from tests.engines.answers import answer


@pytest.mark.parametrize(
    ("value", "number"),
    [("93,184", 93184), ("32k", 32000), ("32K", 32768), ("1.5m", 1_500_000), ("2M", 2 << 20),
     (12.0, 12), (12.5, None), ("auto", None), ("", None), (None, None), (True, None),
     ("9" * 400, None), ("9" * 400 + "G", None), (10**400, None), ([], None), ("-1", -1)],
)  # fmt: skip
def test_whole(value, number):
    assert reading.whole(value) == number


@pytest.mark.parametrize(
    ("value", "said"),
    [(True, True), ("True", True), ("on", True), ("false", False), (0, False), ("auto", None),
     (None, None)],
)  # fmt: skip
def test_truth(value, said):
    assert reading.truth(value) is said


@pytest.mark.parametrize(
    ("text", "took_ms"),
    [("1m2.5s", 62500), ("350µs", 0.35), ("1h", 3.6e6), ("12ns", 1.2e-5), ("5", None),
     ("", None), ("5 s", None)],
)  # fmt: skip
def test_duration_ms(text, took_ms):
    assert reading.duration_ms(text) == (None if took_ms is None else pytest.approx(took_ms))


def test_dig():
    value = {"a": [{"b": 1}]}
    assert reading.dig(value, "a", 0, "b") == 1
    assert reading.dig(value, "a", 1) is None
    assert reading.dig(value, "a", "b") is None
    assert reading.dig(None, "a") is None


def test_the_first_layer_that_knows_wins():
    merged = reading.merge(
        reading.facts("endpoint:/x", a=1, b=None), reading.facts("argv", a=2, b=3)
    )
    assert merged == {"a": Fact(1, "endpoint:/x"), "b": Fact(3, "argv")}
    assert reading.plain({**merged, "c": 4}) == {"a": 1, "b": 3, "c": 4}


def test_only_good_answers_are_read():
    assert reading.as_object(answer({"a": 1})) == {"a": 1}
    assert reading.as_object(answer({"a": 1}, 500)) == {}
    assert reading.as_object(answer("[1]")) == {}
    assert reading.as_json(None) is None


@settings(deadline=None)
@given(st.text())
def test_any_text_is_survived(text):
    for read in (
        reading.whole, reading.positive, reading.truth, reading.word, reading.json_value,
        reading.python_value, reading.duration_ms, reading.clean,
    ):  # fmt: skip
        read(text)
    reading.bytes_of(text, reading.GIB)

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.domain import Estimate
from concbench.report import numbers

values = st.floats(1e-3, 1e7) | st.floats(-1e7, -1e-3)
widths = st.floats(1e-4, 1e6)


def back(text: str) -> float:
    return float(text.replace(",", "").replace(numbers.MINUS, "-"))


@given(values, widths)
def test_text_is_the_value_to_half_a_unit_of_its_last_place(value, width):
    places = numbers.decimals(value, width)
    shown = back(numbers.number(value, width))
    assert abs(shown - value) <= 0.5 * 10.0**-places * (1 + 1e-9) + 1e-12


@given(values, widths)
def test_last_place_is_never_finer_than_a_hundredth_of_the_half_width(value, width):
    place = 10.0 ** -numbers.decimals(value, width)
    assert place >= width / 100 or place >= abs(value) / 10
    lead = math.floor(math.log10(abs(value)))
    assert place >= 10.0 ** (lead - numbers.MOST_DIGITS) * 0.99


@given(values, widths)
def test_no_digit_that_matters_is_lost(value, width):
    place = 10.0 ** -numbers.decimals(value, width)
    assert place <= max(width * 1.06, abs(value) * 10.0 ** (1 - numbers.MOST_DIGITS) * 10)


@given(values)
def test_without_interval_three_significant_digits(value):
    digits = numbers.number(value).lstrip(numbers.MINUS).replace(",", "").replace(".", "")
    assert 1 <= len(digits.strip("0")) <= numbers.PLAIN_DIGITS


@given(st.lists(values, min_size=1, max_size=8))
def test_aligned_points_stand_in_one_column(data):
    texts = [numbers.number(value) for value in data]
    padded = numbers.aligned(texts)
    assert [text.rstrip() for text in padded] == texts
    wide = max(map(len, padded))
    places = {(text.rjust(wide) + ".").index(".") for text in padded if "." in text}
    assert len(places) <= 1
    tails = {len(text) - len(text.split(".")[0].rstrip()) for text in padded}
    assert len(tails) == 1


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (57.1, 0.228, "57.10"),
        (108.9, 0.544, "108.9"),
        (436.2, 2.6, "436.2"),
        (1234.5, 35.0, "1,234"),
        (1234.5, 60.0, "1,230"),
        (1234567.0, None, "1,230,000"),
        (9.999, None, "10.0"),
        (0.0, 0.4, "0.0"),
        (0.0, None, "0"),
        (-0.001, 0.5, "−0.001"),
        (3.0, 50.0, "3"),
        (5.0, math.nan, "5.00"),
        (math.nan, None, "–"),
        (math.inf, 1.0, "–"),
        (None, None, "–"),
    ],
)
def test_known_answers(value, width, text):
    assert numbers.number(value, width) == text


def made(point, low, high, spread=None, n=4):
    return Estimate(point=point, low=low, high=high, n=n, method="t", range=spread)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (made(57.1, 56.872, 57.328), "57.10 ± 0.4 %"),
        (made(57.1, None, None, (56.1, 57.9), 2), "57.1 (56.1–57.9)"),
        (made(57.1, None, None, None, 1), "57.1"),
        (made(57.1, 57.1, 57.1), "57.1 ± 0.0 %"),
        (made(1000.0, 999.9, 1000.1), "1,000.0 ± < 0.1 %"),
        (made(10.0, 8.0, 12.0), "10.0 ± 20 %"),
        (made(0.0, -1.0, 1.0), "0.0 ± 1.0"),
        (None, "–"),
    ],
)
def test_estimates(estimate, text):
    assert numbers.estimate_text(estimate) == text


def test_percentages_carry_a_sign_only_where_asked():
    assert numbers.percent(0.2) == "0.2 %"
    assert numbers.percent(0.2, signed=True) == "+0.2 %"
    assert numbers.percent(-0.2, signed=True) == "−0.2 %"
    assert numbers.percent(-0.01, signed=True) == "0.0 %"
    assert numbers.percent(None) == "–"


def test_ratios():
    assert numbers.ratio(3.671) == "3.7 ×"
    assert numbers.ratio_estimate(made(1.92, 1.88, 1.96)) == "1.92 × [1.88, 1.96]"
    assert numbers.ratio_estimate(made(1.0123, 1.0101, 1.0145)) == "1.012 × [1.010, 1.014]"
    assert (
        numbers.ratio_estimate(made(1.9, None, None, (1.8, 2.0))) == "1.90 × (range [1.80, 2.00])"
    )


@pytest.mark.parametrize(
    ("durations", "unit"),
    [
        ([92.0, 190.0], "ms"),
        ([92.0, 3_200.0], "ms"),
        ([92.0, 12_000.0], "s"),
        ([4_500.0, 5_400.0, None], "s"),
        ([], "ms"),
        ([None, math.nan], "ms"),
    ],
)
def test_unit_of_a_column_of_durations(durations, unit):
    assert numbers.duration_unit(durations) == unit


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_span_never_swaps_its_ends(one, other):
    text = numbers.span(min(one, other), max(one, other))
    ends = [back(part) for part in text.split("–")]
    assert ends == sorted(ends)


def test_one_round_has_no_range():
    one = Estimate(point=163.0, low=None, high=None, n=1, method="m", range=(163.0, 163.0))
    assert numbers.estimate_text(one) == "163"
    assert numbers.spread_of(one) is None
    # A range that is widened by the edges of a window is still of one round.
    edges = Estimate(point=163.0, low=None, high=None, n=1, method="m", range=(162.0, 164.0))
    assert numbers.estimate_text(edges) == "163"

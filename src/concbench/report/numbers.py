"""How numbers are written: never with more digits than their interval justifies.

The rounding rule is the Particle Data Group's (Review of Particle Physics, 5.3): with the three
leading digits of the half-width between 100 and 354 two of its digits are kept, else one. A number
without an interval gets three significant digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal

from concbench.domain import Estimate

MISSING = "–"
MINUS = "−"
TIMES = "×"
PLAIN_DIGITS = 3
MOST_DIGITS = 5
RATIO_PLACES = 2
_TWO_DIGITS_BELOW = 3.55
_MS_PER_S = 1000.0
_ALWAYS_SECONDS_MS = 10_000.0


def _exponent(value: float) -> int:
    """Return the power of ten of the leading digit, exactly."""
    return Decimal(value).adjusted()


def decimals(value: float, half_width: float | None = None) -> int:
    """Return how many decimals of `value` may be shown; negative means tens, hundreds, …

    At least one digit of the value survives and at most five, whatever the half-width is.
    """
    lead = _exponent(float(f"{value:.{PLAIN_DIGITS - 1}e}")) if value else None
    if half_width is None or not math.isfinite(half_width) or half_width <= 0:
        return 0 if lead is None else PLAIN_DIGITS - 1 - lead
    place = _exponent(half_width)
    if half_width / 10.0**place < _TWO_DIGITS_BELOW:
        place -= 1
    if lead is not None:
        place = min(max(place, lead - MOST_DIGITS + 1), lead)
    return -place


def fixed(value: float | None, places: int) -> str:
    """Return the value with that many decimals and thousands separators; `–` for no number."""
    if value is None or not math.isfinite(value):
        return MISSING
    rounded = round(value, places)
    text = f"{abs(rounded):,.{max(0, places)}f}"
    return MINUS + text if rounded < 0 else text


def number(value: float | None, half_width: float | None = None) -> str:
    """Return the value with the digits that its half-width justifies; `–` for no number."""
    if value is None or not math.isfinite(value):
        return MISSING
    return fixed(value, decimals(value, half_width))


def count(value: float | None) -> str:
    """Return a whole number with thousands separators; `–` for no number."""
    return fixed(value, 0)


def half_width(estimate: Estimate) -> float | None:
    """Return half the width of the interval, of the range where there is none, or None."""
    bounds = spread_of(estimate)
    return None if bounds is None else (bounds[1] - bounds[0]) / 2


def spread_of(estimate: Estimate) -> tuple[float, float] | None:
    """Return the interval, or with too few rounds the range, or None: one round has neither."""
    if estimate.low is not None and estimate.high is not None:
        return estimate.low, estimate.high
    return None if estimate.n == 1 else estimate.range


def estimate_number(estimate: Estimate | None) -> str:
    """Return the point of an estimate with the digits that its interval justifies."""
    return MISSING if estimate is None else number(estimate.point, half_width(estimate))


def estimate_spread(estimate: Estimate | None) -> str:
    """Return `± 0.4 %` for an interval, `(55.2–57.1)` for a range, else an empty string."""
    if estimate is None:
        return ""
    if estimate.low is not None and estimate.high is not None:
        width = (estimate.high - estimate.low) / 2
        if not estimate.point:
            return f"± {fixed(width, decimals(0.0, width))}"
        return f"± {relative_width(100 * width / abs(estimate.point))}"
    bounds = spread_of(estimate)
    return "" if bounds is None else f"({span(*bounds)})"


def estimate_text(estimate: Estimate | None) -> str:
    """Return point and spread: `57.1 ± 0.4 %`."""
    return f"{estimate_number(estimate)} {estimate_spread(estimate)}".rstrip()


def relative_width(percent: float) -> str:
    """Return a relative half-width: `0.4 %`, `12 %`, and `< 0.1 %` for what would round to 0."""
    if percent < 0.05:
        return "< 0.1 %" if percent > 0 else "0.0 %"
    return f"{fixed(percent, 1 if percent < 9.95 else 0)} %"


def percent(value: float | None, *, signed: bool = False) -> str:
    """Return a percentage with one decimal, with its sign where the direction matters."""
    if value is None or not math.isfinite(value):
        return MISSING
    text = fixed(value, 1)
    plus = "+" if signed and round(value, 1) > 0 else ""
    return f"{plus}{text} %"


def ratio(value: float | None, places: int = 1) -> str:
    """Return a factor: `3.7 ×`."""
    text = fixed(value, places)
    return text if text == MISSING else f"{text} {TIMES}"


def ratio_estimate(estimate: Estimate) -> str:
    """Return a factor with its interval: `1.92 × [1.88, 1.96]`; a range is called one."""
    width = half_width(estimate)
    most = RATIO_PLACES + (width is not None and width < 10**-RATIO_PLACES)
    places = max(0, min(most, decimals(estimate.point, width)))
    bounds = spread_of(estimate)
    point = ratio(estimate.point, places)
    if bounds is None:
        return point
    inside = f"[{fixed(bounds[0], places)}, {fixed(bounds[1], places)}]"
    return f"{point} {inside}" if estimate.low is not None else f"{point} (range {inside})"


def span(low: float, high: float) -> str:
    """Return `low–high`, both with the digits that their distance justifies."""
    largest = max(abs(low), abs(high))
    places = decimals(largest, (high - low) / 2 or None)
    if fixed(low, places) == fixed(high, places):
        return fixed(low, places)
    return f"{fixed(low, places)}–{fixed(high, places)}"


def duration_unit(values_ms: Iterable[float | None]) -> str:
    """Return the unit for a column of durations: `s` when all reach 1 s or one reaches 10 s."""
    known = [value for value in values_ms if value is not None and math.isfinite(value)]
    if not known:
        return "ms"
    in_seconds = min(known) >= _MS_PER_S or max(known) >= _ALWAYS_SECONDS_MS
    return "s" if in_seconds else "ms"


def in_unit(value_ms: float, unit: str) -> float:
    """Return milliseconds in the column's unit."""
    return value_ms / _MS_PER_S if unit == "s" else value_ms


def aligned(texts: Sequence[str], *, point: str = " ", digit: str = " ") -> list[str]:
    """Pad each text on the right so that right-aligned decimal points stand in one column.

    `point` and `digit` are what stands for a missing decimal point and a missing digit.
    """
    tails = [len(text) - text.index(".") if "." in text else 0 for text in texts]
    longest = max(tails, default=0)
    return [
        text + _padding(longest, tail, point, digit)
        for text, tail in zip(texts, tails, strict=True)
    ]


def _padding(longest: int, tail: int, point: str, digit: str) -> str:
    """Return what fills one text up to the longest fraction."""
    if longest == tail:
        return ""
    return digit * (longest - tail) if tail else point + digit * (longest - 1)

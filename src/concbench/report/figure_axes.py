"""The axes that figures share: levels, what begins at zero, and logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

NARROW_PX = 300
"""Room for an axis' labels on a phone, the narrowest place that a plot has to be read on."""

DIGIT_PX = 7
GAP_PX = 8
LEAST_FACTOR = 1.25
"""A logarithmic axis spans at least this: noise of a percent is not blown up to the full width."""

MARGIN = 0.04
"""Share of a logarithmic axis that stays free on each side, so that no line lies on the frame."""


def level_axis(levels: Sequence[float], heading: str) -> dict[str, Any]:
    """Return the axis of levels: each named for which there is room.

    It is logarithmic where the levels span a factor of 8 or more.
    """
    title = "requests at once, N" if heading == "N" else "requests asked for a second"
    return named_axis(title, levels, [f"{level:g}" for level in levels], log=is_wide(levels))


def is_wide(levels: Sequence[float]) -> bool:
    """Return whether levels are drawn on a logarithmic axis."""
    return len(levels) > 1 and levels[0] > 0 and levels[-1] / levels[0] >= 8


def named_axis(
    title: str, values: Sequence[float], texts: Sequence[str], *, log: bool
) -> dict[str, Any]:
    """Return an axis with a tick at each of the ascending values whose label does not collide."""
    shown = _apart([math.log(value) for value in values] if log else list(values), values, texts)
    return {
        "title": {"text": title},
        "type": "log" if log else "linear",
        "tickmode": "array",
        "tickvals": [values[place] for place in shown],
        "ticktext": [texts[place] for place in shown],
    }


def _apart(at: Sequence[float], values: Sequence[float], texts: Sequence[str]) -> list[int]:
    """Return the places whose labels fit beside each other; the ends and round numbers first."""
    if len(at) < 2:
        return list(range(len(at)))
    scale = NARROW_PX / ((at[-1] - at[0]) or 1.0)
    ends = (0, len(at) - 1)
    order = sorted(range(len(at)), key=lambda k: (k not in ends, not _round(values[k]), k))
    kept: list[int] = []
    for place in order:
        room = (
            abs(at[place] - at[other]) * scale
            - DIGIT_PX * (len(texts[place]) + len(texts[other])) / 2
            for other in kept
        )
        if all(free >= GAP_PX for free in room):
            kept.append(place)
    return sorted(kept)


def _round(value: float) -> bool:
    """Return whether a level is a power of two, as most series of levels are made of."""
    return value > 0 and math.log2(value).is_integer()


def rising(title: str, **more: object) -> dict[str, Any]:
    """Return an axis of what cannot be negative: from zero, though an interval may reach below."""
    return {
        "title": {"text": title},
        "rangemode": "tozero",
        "autorangeoptions": {"minallowed": 0},
        **more,
    }


def log_axis(title: str, low: float, high: float) -> dict[str, Any]:
    """Return a logarithmic axis over the data, with round ticks and a margin, that says so."""
    start, stop = _bounds(low, high)
    ticks = _ticks(low, high, start, stop)
    return {
        "title": {"text": f"{title} (logarithmic)"},
        "type": "log",
        "range": [start, stop],
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [f"{tick:,.10g}" for tick in ticks],
    }


def _bounds(low: float, high: float) -> tuple[float, float]:
    """Return the ends of the axis as powers of ten."""
    start, stop = math.log10(low), math.log10(high)
    missing = max(0.0, math.log10(LEAST_FACTOR) - (stop - start))
    start, stop = start - missing / 2, stop + missing / 2
    margin = MARGIN * (stop - start)
    return start - margin, stop + margin


def _ticks(low: float, high: float, start: float, stop: float) -> list[float]:
    """Return ticks at 1, 2 and 5 of each decade; where too few of them show, at even steps."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    ticks = [step * 10.0**decade for decade in range(first, last + 1) for step in steps]
    least, most = 10**start, 10**stop
    if sum(least <= tick <= most for tick in ticks) >= 3:
        return ticks
    step = _even((most - least) / 4)
    ends = math.ceil(least / step), math.floor(most / step)
    return [round(count * step, 10) for count in range(ends[0], ends[1] + 1)]


def _even(width: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is not above the width."""
    decade = 10.0 ** math.floor(math.log10(width))
    return max(step * decade for step in (1, 2, 5) if step * decade <= width)

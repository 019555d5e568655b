"""A matrix in one sentence: sides against each other, the highest throughput, what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from concbench.analyse.matrix_model import AgainstRow, ConcurrencyRow, Matrix
from concbench.domain import Estimate
from concbench.report.inert import inert
from concbench.report.matrix import matrix_of
from concbench.report.matrix_text import context_text, lane_text
from concbench.report.numbers import estimate_text, percent

_AXES = {"link": "links", "lane": "lanes"}


def matrix_sentence(payload: Mapping[str, Any] | None) -> str:
    """Return the sentence, in lower case and without a full stop; empty where there is no matrix.

    Two lanes (or links) are set against each other; of more it names the highest alone.
    """
    found = matrix_of(payload)
    if found is None or not found.concurrency:
        return ""
    parts = [_sides(found), _highest(found.concurrency), _trouble(found.concurrency)]
    return "; ".join(part for part in parts if part)


def _sides(found: Matrix) -> str:
    """Return the aggregate of the second side against the first, where there are just two."""
    rows = [row for row in found.against if row.axis in _AXES]
    pairs = {(row.axis, row.a, row.b) for row in rows}
    sound = [row for row in rows if row.metric == "aggregate_tok_per_s" and not row.fatal]
    if len(pairs) != 1 or not sound:
        return ""
    ((axis, a, b),) = pairs
    unlike = [name for one in found.unlike if (one.axis, one.a, one.b) == (axis, a, b)
              for name in one.names]  # fmt: skip
    told = f"{_AXES[axis]} {inert(b, 40)} against {inert(a, 40)}: aggregate {_span(sound)}"
    return told + (f" (unlike: {', '.join(unlike)})" if unlike else "")


def _span(rows: Sequence[AgainstRow]) -> str:
    """Return from which to which change, and in how many cells it can be read."""
    changes = [row.change.relative_pct for row in rows]
    low, high = percent(min(changes), signed=True), percent(max(changes), signed=True)
    beyond = sum(row.reading == "beyond" for row in rows)
    drifted = sum(row.reading == "drifted" for row in rows)
    unknown = sum(row.reading == "unknown" for row in rows)
    told = low if low == high else f"{low} to {high}"
    cells = f"{len(rows)} cell{'s' if len(rows) > 1 else ''}"
    if unknown == len(rows):
        return f"{told}, noise unknown in {cells} (fewer than 3 rounds)"
    told += f", beyond the noise in {beyond} of {cells}"
    told += f", noise unknown in {unknown}" if unknown else ""
    return told + (f", drifted in {drifted}" if drifted else "")


def _highest(rows: Sequence[ConcurrencyRow]) -> str:
    """Return where the most output tokens a second were."""
    known = [
        (row.aggregate_tok_per_s, row)
        for row in rows
        if row.aggregate_tok_per_s is not None and not row.fatal
    ]
    if not known:
        return "no cell has an aggregate that may be used"
    best, row = max(known, key=lambda one: one[0].point)
    context = context_text(row.context_label, row.context_tok)
    place = f"{lane_text(row.lane, row.link)}, context {context}, N = {row.concurrency:,}"
    told = f"the highest aggregate is {estimate_text(best)} tok/s ({place})"
    near = [
        lane_text(other.lane, other.link)
        for rate, other in known
        if (other.lane, other.link) != (row.lane, row.link) and _may_be_as_high(rate, best)
    ]
    return told + (f", not told apart from {', '.join(dict.fromkeys(near))}" if near else "")


def _may_be_as_high(rate: Estimate, best: Estimate) -> bool:
    """Return whether the noise leaves that open; where it is unknown, whether both spreads meet."""
    # Its quantiles cost a tenth of a second to load, which a report of one lane does not owe.
    from concbench.analyse.change import change

    found = change(best, rate)
    if found is None:
        return False
    if found.exceeds_noise is None:
        return bool(found.spreads_overlap)
    return not found.exceeds_noise


def _trouble(rows: Sequence[ConcurrencyRow]) -> str:
    """Return how many cells did not end well, and how many a fatal doubt leaves out."""
    ends = Counter(row.outcome for row in rows if row.outcome != "measured")
    told = [f"{count} {inert(name, 40).replace('_', ' ')}" for name, count in ends.items()]
    doubted = sum(bool(row.fatal) for row in rows)
    told += [f"{doubted} left out for a fatal doubt"] if doubted else []
    return f"of {len(rows):,} cells {', '.join(told)}" if told else ""

"""A gate for continuous integration: does B fall behind A by more than was agreed?

`fail` is a regression that is proven to exceed the gate, or a comparison that gave no number at
all: an empty value must never pass. `pass` is proven to stay within the gate. What the interval
leaves open is `inconclusive`, and the user says beforehand what that counts as.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from concbench.errors import UsageError
from concbench.result import VerdictResult

Decision = Literal["pass", "fail", "inconclusive"]
UNJUDGED = frozenset({"invalid", "drifted", "not_comparable"})
MOST = 0.9


class Gated(Struct, frozen=True, kw_only=True):
    """One verdict before the gate."""

    row: VerdictResult
    decision: Decision
    reason: str


def parse_gate(text: str) -> float:
    """Return a gate as a share: `5%` and `0.05` are 0.05.

    Raises UsageError for anything but a share above 0 and up to 90 %.
    """
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    share = value / 100 if text.strip().endswith("%") else value
    if not 0 < share <= MOST:
        raise UsageError(f"--gate {text}: a share such as 5% or 0.05, at most 90%")
    return share


def gate(verdicts: Sequence[VerdictResult], limit: float) -> list[Gated]:
    """Return what the gate says of each verdict. `limit` is the share that B may be worse."""
    return [_gated(row, limit) for row in verdicts]


def passes(gated: Sequence[Gated], *, inconclusive_passes: bool) -> bool:
    """Return whether the whole gate passes. Nothing to judge is not a pass."""
    good = {"pass", "inconclusive"} if inconclusive_passes else {"pass"}
    return bool(gated) and all(one.decision in good for one in gated)


def _gated(row: VerdictResult, limit: float) -> Gated:
    ratio = row.ratio
    if row.verdict in UNJUDGED or ratio is None or not math.isfinite(ratio.point):
        return Gated(row=row, decision="fail", reason=f"{row.verdict}: {row.why or 'no number'}")
    if ratio.low is None or ratio.high is None:
        return Gated(row=row, decision="inconclusive", reason="too few pairs for an interval")
    # A share slower is (1 − share) of a rate, and 1 / (1 − share) of a time.
    worse = 1 - limit if row.better == "higher" else 1 / (1 - limit)
    if row.better == "higher":
        proven, safe = ratio.high < worse, ratio.low > worse
    else:
        proven, safe = ratio.low > worse, ratio.high < worse
    size = f"{ratio.point:.3f} × [{ratio.low:.3f}, {ratio.high:.3f}]"
    if proven:
        return Gated(row=row, decision="fail", reason=f"worse than {100 * limit:g} %: {size}")
    if safe or (row.verdict == "equivalent" and limit >= row.delta):
        return Gated(row=row, decision="pass", reason=f"within {100 * limit:g} %: {size}")
    return Gated(
        row=row,
        decision="inconclusive",
        reason=f"neither within {100 * limit:g} % nor worse is proven: {size}",
    )

"""Pairs in, verdicts out: which of two lanes is faster, or equal, or why nobody can tell.

dᵢ = ln(Bᵢ ÷ Aᵢ) per pair; δ = 3 % and α = 0.05 are fixed beforehand. The first that applies:

1. `invalid` or `not_comparable`: a fatal doubt, something unlike that nobody accepted, no values,
   or an instrument whose own error is as large as the difference;
2. `drifted`: |mean ln(last two A) − mean ln(first two A)| > δ/2, whatever B did;
3. `equivalent`: the 90 % interval of the mean of d lies inside ±ln(1 + δ) (two one-sided tests);
4. `a_faster` or `b_faster`: the 95 % interval excludes 0 (over several levels by Holm's steps),
   `beyond_delta` when it lies beyond δ altogether;
5. `inconclusive`, with the number of pairs that would settle it.

Intervals are Student's t at the level that the look may spend (`concbench.analyse.looks`), so that
they hold at all looks together. Nothing here reads a clock or a file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from scipy.special import stdtr

from concbench.analyse.estimate import bounded_exp, ratio_estimate
from concbench.analyse.intervals import Interval, interval_of, pairs_to_settle
from concbench.analyse.looks import LOOKS, nominal_level
from concbench.analyse.modes import Modes, modes
from concbench.domain import Estimate
from concbench.result import VerdictResult

DELTA = 0.03
ALPHA = 0.05
MIN_PAIRS = 3
"""Fewer pairs have a range and no interval."""

MIN_CONTROLS = 4
"""With fewer runs of A the first two and the last two overlap."""

BIMODAL = "bimodal:"

Better = Literal["higher", "lower"]


class Comparison(Struct, frozen=True, kw_only=True):
    """One metric of two cells of the same level, ready to be judged.

    `pairs` are (A, B) values in the metric's unit, one a pair of runs; `controls` all values of A
    in order of time, the closing one included. `fatal` are reasons that void the cells (codes of
    doubts). `unlike` are the names that make the comparison unfair, `accepted` those that the user
    took upon himself. `starts` are how often each side's server was started. `looks` are the
    planned ones, None where nobody looked before the end. `more_a` and `more_b` are all values of
    each side, for telling states apart; those of the pairs where empty.
    """

    metric: str
    better: Better
    a: str
    b: str
    cell_a: str
    cell_b: str
    concurrency: int
    context_tok: int
    pairs: Sequence[tuple[float, float]]
    controls: Sequence[float] = ()
    more_a: Sequence[float] = ()
    more_b: Sequence[float] = ()
    fatal: Sequence[str] = ()
    unlike: Sequence[str] = ()
    accepted: Sequence[str] = ()
    instrument_error_pct: float | None = None
    starts_a: int = 1
    starts_b: int = 1
    looks: Sequence[int] | None = LOOKS
    corrected: str | None = None
    delta: float = DELTA


class _Seen(Struct, frozen=True, kw_only=True):
    """A comparison with its logarithms: what all rules look at."""

    given: Comparison
    logs: tuple[float, ...]
    ci95: Interval | None
    ci90: Interval | None
    p_value: float
    drift: float | None
    states: tuple[tuple[str, Modes], ...]


def judge(comparisons: Sequence[Comparison], alpha: float = ALPHA) -> list[VerdictResult]:
    """Return one verdict for each comparison, in their order.

    The comparisons of one metric between the same two lanes are one family: their claims of
    "faster" are adjusted by Holm's method. "Equivalent at every N" needs no adjustment.
    """
    seen = [_look_at(one, alpha) for one in comparisons]
    families: dict[tuple[str, str, str], list[int]] = {}
    for number, one in enumerate(comparisons):
        families.setdefault((one.metric, one.a, one.b), []).append(number)
    proven: set[int] = set()
    sizes: dict[int, int] = {}
    for members in families.values():
        proven |= _holm([(number, seen[number]) for number in members], alpha)
        sizes.update(dict.fromkeys(members, len(members)))
    return [
        _verdict(one, proven=number in proven, family=sizes[number])
        for number, one in enumerate(seen)
    ]


def drift_of(controls: Sequence[float]) -> float | None:
    """Return mean ln(last two) − mean ln(first two) of the control's runs; None for under 4."""
    known = [math.log(value) for value in controls if _usable(value)]
    if len(known) < MIN_CONTROLS:
        return None
    return (known[-1] + known[-2] - known[0] - known[1]) / 2


def _usable(value: float) -> bool:
    return math.isfinite(value) and value > 0


def logs_of(pairs: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """Return ln(B ÷ A) of the pairs with two finite values above 0."""
    return tuple(math.log(b) - math.log(a) for a, b in usable_pairs(pairs))


def usable_pairs(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the pairs with two finite values above 0."""
    return [(a, b) for a, b in pairs if _usable(a) and _usable(b)]


def _look_at(given: Comparison, alpha: float) -> _Seen:
    logs = logs_of(given.pairs)
    n = len(logs)
    ci95 = ci90 = None
    p_value = 1.0
    if n >= MIN_PAIRS:
        ci95 = interval_of(logs, nominal_level(alpha, n, given.looks))
        ci90 = interval_of(logs, nominal_level(2 * alpha, n, given.looks))
        p_value = _p_value(logs)
    sides = (
        (given.a, given.more_a or [a for a, _ in given.pairs]),
        (given.b, given.more_b or [b for _, b in given.pairs]),
    )
    found = [(name, modes([value for value in values if _usable(value)])) for name, values in sides]
    return _Seen(
        given=given,
        logs=logs,
        ci95=ci95,
        ci90=ci90,
        p_value=p_value,
        drift=drift_of(given.controls),
        states=tuple((name, states) for name, states in found if states is not None),
    )


def _p_value(logs: Sequence[float]) -> float:
    """Return the two-sided p of the paired t test."""
    data = np.asarray(logs)
    error = float(data.std(ddof=1)) / math.sqrt(data.size)
    middle = abs(float(data.mean()))
    if error == 0:
        return 0.0 if middle else 1.0
    return 2 * float(stdtr(data.size - 1, -middle / error))


def _holm(family: Sequence[tuple[int, _Seen]], alpha: float) -> set[int]:
    """Return which of a family are shown to differ: Holm's steps, each at its look's level."""
    able = [(number, one) for number, one in family if len(one.logs) >= MIN_PAIRS]

    def relative(one: _Seen) -> float:
        return one.p_value / nominal_level(alpha, len(one.logs), one.given.looks)

    proven: set[int] = set()
    for step, (number, one) in enumerate(sorted(able, key=lambda each: relative(each[1]))):
        # The size of the whole family, the levels without enough pairs among them: they were asked.
        level = nominal_level(alpha / (len(family) - step), len(one.logs), one.given.looks)
        if one.p_value > level:
            break
        proven.add(number)
    return proven


def _verdict(seen: _Seen, *, proven: bool, family: int) -> VerdictResult:
    """Return the verdict: the first rule that applies."""
    given = seen.given
    limit = math.log1p(given.delta)
    verdict, why = _first_match(seen, limit, proven=proven, family=family)
    why = "; ".join(part for part in (why, *_named(seen)) if part) or None
    return VerdictResult(
        metric=given.metric,
        better=given.better,
        a=given.a,
        b=given.b,
        cell_a=given.cell_a,
        cell_b=given.cell_b,
        concurrency=given.concurrency,
        context_tok=given.context_tok,
        ratio=_ratio(seen),
        verdict=verdict,
        why=why,
        n_pairs=len(seen.logs),
        delta=given.delta,
        beyond_delta=verdict in ("a_faster", "b_faster") and _beyond(seen.ci95, limit),
        provisional=min(given.starts_a, given.starts_b) < 2 or "order" in given.accepted,
        drift_pct=None if seen.drift is None else 100 * (bounded_exp(seen.drift) - 1),
        instrument_error_pct=given.instrument_error_pct,
        unlike=list(given.unlike),
        accepted=[name for name in given.unlike if name in given.accepted],
        pairs_needed=_pairs_needed(seen, limit) if verdict == "inconclusive" else None,
        adjusted="holm" if family > 1 and verdict in ("a_faster", "b_faster") else None,
        corrected=given.corrected,
        value_a=ratio_estimate(a for a, _ in usable_pairs(given.pairs)),
        value_b=ratio_estimate(b for _, b in usable_pairs(given.pairs)),
    )


def _first_match(seen: _Seen, limit: float, *, proven: bool, family: int) -> tuple[str, str | None]:
    """Return verdict and reason by the rules in their order."""
    obstacle = _obstacle(seen)
    if obstacle is not None:
        return obstacle
    if seen.drift is not None and abs(seen.drift) > limit / 2:
        return "drifted", (
            f"the control's last two runs against its first two: {_signed(seen.drift)}, more than "
            f"half of {100 * seen.given.delta:.3g} %"
        )
    if seen.ci95 is None or seen.ci90 is None:
        pairs = f"{len(seen.logs)} pair{'s' if len(seen.logs) != 1 else ''}"
        return "inconclusive", f"{pairs}: no interval before {MIN_PAIRS}"
    if -limit < seen.ci90.low and seen.ci90.high < limit:
        return "equivalent", None
    if not proven:
        alone = family > 1 and not seen.ci95.low <= 0 <= seen.ci95.high
        return "inconclusive", (
            f"apart by itself, not when all {family} levels are counted (Holm)" if alone else None
        )
    own = _own_error(seen)
    if own >= abs(seen.ci95.middle):
        return "invalid", (
            f"the instrument's own error ({100 * own:.2g} %) is as large as the difference "
            f"({100 * abs(bounded_exp(seen.ci95.middle) - 1):.2g} %)"
        )
    rises = seen.ci95.middle > 0
    return "b_faster" if rises == (seen.given.better == "higher") else "a_faster", None


def _obstacle(seen: _Seen) -> tuple[str, str] | None:
    """Return what forbids any verdict, or None."""
    given = seen.given
    if given.fatal:
        return "invalid", "fatal doubt: " + ", ".join(dict.fromkeys(given.fatal))
    rest = [name for name in given.unlike if name not in given.accepted]
    if rest:
        return "not_comparable", unlike_reason(rest)
    if not given.pairs:
        return "inconclusive", "no pair is complete"
    if not seen.logs:
        return "invalid", "no pair has a value above 0 on both sides"
    middle = sum(seen.logs) / len(seen.logs)
    if _own_error(seen) >= max(given.delta, abs(middle)):
        return "invalid", (
            f"the instrument's own error ({given.instrument_error_pct:.2g} %) is as large as what "
            f"is to be told apart ({100 * given.delta:.3g} %)"
        )
    return None


def unlike_reason(names: Sequence[str]) -> str:
    """Return why a comparison is refused, and how to have it all the same."""
    said = f"unlike: {', '.join(names)} (--accept {','.join(names)} takes it as it is)"
    if "order" in names:
        said += (
            "; the sides were measured one after the other, so a drift of the machine looks like "
            "a difference: `concbench ab` interleaves them"
        )
    return said


def _own_error(seen: _Seen) -> float:
    return (seen.given.instrument_error_pct or 0.0) / 100


def _named(seen: _Seen) -> list[str]:
    """Return a remark for each side whose runs fall in two states, or of which one is apart."""
    return [
        f"{BIMODAL} {name} {states.text}" if states.two_states else f"{name} has {states.text}"
        for name, states in seen.states
    ]


def bimodal_side(why: str | None, side: str) -> str | None:
    """Return what a reason says of a side whose runs fall in two states, or None."""
    text = rf"{re.escape(side)} runs fall in two groups, \d+ near \S+ and \d+ near [^\s;]+"
    found = re.search(f"{BIMODAL} ({text})", why or "")
    return None if found is None else found[1]


def _ratio(seen: _Seen) -> Estimate | None:
    """Return B ÷ A: the geometric mean with the interval that holds at all looks together."""
    if not seen.logs:
        return None
    n = len(seen.logs)
    point = bounded_exp(sum(seen.logs) / n)
    if seen.ci95 is None:
        return Estimate(
            point=point,
            low=None,
            high=None,
            n=n,
            method=f"geometric mean of {n} pair{'s' if n != 1 else ''}, range",
            range=(bounded_exp(min(seen.logs)), bounded_exp(max(seen.logs))),
        )
    looked = "" if seen.given.looks is None else ", holds at all looks together"
    return Estimate(
        point=point,
        low=bounded_exp(seen.ci95.low),
        high=bounded_exp(seen.ci95.high),
        n=n,
        method=f"geometric mean of {n} pairs, t interval on logarithms{looked}",
    )


def _beyond(interval: Interval | None, limit: float) -> bool:
    """Return whether the whole interval lies beyond ±δ."""
    return interval is not None and (interval.low > limit or interval.high < -limit)


def _pairs_needed(seen: _Seen, limit: float) -> int | None:
    """Return how many pairs would settle it, or the least that have an interval."""
    if len(seen.logs) < MIN_PAIRS:
        return max(MIN_PAIRS, min(seen.given.looks)) if seen.given.looks else MIN_PAIRS
    return pairs_to_settle(seen.logs, limit, ALPHA)


def _signed(log_ratio: float) -> str:
    return f"{100 * (bounded_exp(log_ratio) - 1):+.1f} %".replace("-", "−")


def mirrored(row: VerdictResult) -> VerdictResult:
    """Return the same verdict with the sides exchanged: ratio a / b, winner renamed."""
    flipped = {"a_faster": "b_faster", "b_faster": "a_faster"}
    ratio = row.ratio
    if ratio is not None:
        seen = ratio.range
        ratio = replace(
            ratio,
            point=1 / ratio.point,
            low=None if ratio.high is None else 1 / ratio.high,
            high=None if ratio.low is None else 1 / ratio.low,
            range=None if seen is None else (1 / seen[1], 1 / seen[0]),
        )
    return replace(
        row,
        a=row.b,
        b=row.a,
        cell_a=row.cell_b,
        cell_b=row.cell_a,
        value_a=row.value_b,
        value_b=row.value_a,
        ratio=ratio,
        verdict=flipped.get(row.verdict, row.verdict),
    )

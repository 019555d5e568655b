"""Comparing figures that were told: no pairs, no controls, and whatever interval came with them.

A single reading on either side has no interval: nothing is claimed of it, and only the crossover is
told by points, beyond ±δ. Two intervals give one for the ratio, their relative widths added in
quadrature; "the intervals overlap" is no test. All of it is provisional.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from scipy.special import ndtri

from concbench.analyse.compare import (
    Outcome,
    Party,
    crossovers_from,
    doubts_of_verdicts,
    unlike_parties,
)
from concbench.analyse.crossover import Contest
from concbench.analyse.intervals import Interval
from concbench.analyse.severity import doubt
from concbench.analyse.verdict import DELTA, unlike_reason
from concbench.domain import Doubt, Estimate, Summary
from concbench.result import CellResult, VerdictResult

SERVER_RATE = "server_output_tok_per_s"
_METRICS = (
    "steady_output_tok_per_s",
    "output_tok_per_s",
    SERVER_RATE,
    "decode_tok_per_s",
    "prefill_tok_per_s",
    "per_request_tok_per_s",
    "ttft_ms.p50",
    "tpot_ms.p50",
    "e2e_ms.p50",
)
_Z95 = -float(ndtri(0.025))
_Z90 = -float(ndtri(0.05))


def compare_told(parties: Sequence[Party], accepted: Sequence[str] = ()) -> Outcome:
    """Judge every two sides by what was told of them. A is the one that comes first."""
    rows: list[VerdictResult] = []
    gains: list[tuple[float, float | None]] = []
    for a, b in combinations(parties, 2):
        for key in sorted(a.cells.keys() & b.cells.keys(), key=lambda key: (key[0], key[1])):
            for metric in _METRICS:
                sides = _told(a.cells[key], metric), _told(b.cells[key], metric)
                if sides[0] is None or sides[1] is None:
                    continue
                rows.append(_verdict(a, b, a.cells[key], b.cells[key], metric, accepted))
                gains.append(_gain(sides[0], sides[1], metric))
    rows = _holm(rows)
    contests = [
        (row, _contest(row, gain, half, sum(other.metric == row.metric for other in rows)))
        for row, (gain, half) in zip(rows, gains, strict=True)
        if row.verdict != "not_comparable"
    ]
    doubts = [*doubts_of_verdicts(rows), *_client_against_server(rows)]
    return Outcome(
        comparisons=(),
        verdicts=tuple(rows),
        crossovers=tuple(crossovers_from(contests)),
        doubts=tuple(doubts),
    )


def _told(cell: CellResult, metric: str) -> Estimate | None:
    """Return a told figure as an estimate; of a latency its median, else its mean."""
    base = metric.partition(".")[0]
    found = (
        cell.server.output_tok_per_s if base == SERVER_RATE else getattr(cell.client, base, None)
    )
    if isinstance(found, Summary):
        middle = found.p50 if found.p50 is not None else found.mean
        if middle is None:
            return None
        found = Estimate(point=middle, low=None, high=None, n=found.n, method="as told")
    return found if isinstance(found, Estimate) and found.point > 0 else None


def _better(metric: str) -> str:
    return "lower" if "_ms" in metric else "higher"


def _gain(a: Estimate, b: Estimate, metric: str) -> tuple[float, float | None]:
    """Return ln of how much better B is, and the 95 % half-width of it or None."""
    sign = 1 if _better(metric) == "higher" else -1
    middle = sign * math.log(b.point / a.point)
    widths = [_relative(one) for one in (a, b)]
    known = [width for width in widths if width is not None]
    return middle, math.hypot(*known) if len(known) == 2 else None


def _relative(one: Estimate) -> float | None:
    if one.low is None or one.high is None:
        return None
    return (one.high - one.low) / 2 / one.point


def _verdict(
    a: Party, b: Party, cell_a: CellResult, cell_b: CellResult, metric: str, accepted: Sequence[str]
) -> VerdictResult:
    left, right = _told(cell_a, metric), _told(cell_b, metric)
    assert left is not None
    assert right is not None
    gain, half = _gain(left, right, metric)
    names = unlike_parties(a, b, cell_a, cell_b, (), (), interleaved=False)
    rest = [name for name in names if name not in accepted]
    verdict, why = ("not_comparable", unlike_reason(rest)) if rest else _judged(gain, half)
    sign = 1 if _better(metric) == "higher" else -1
    return VerdictResult(
        metric=metric,
        better=_better(metric),
        a=a.name,
        b=b.name,
        cell_a=cell_a.cell,
        cell_b=cell_b.cell,
        concurrency=cell_a.concurrency,
        context_tok=cell_a.context_tok,
        ratio=_ratio(sign * gain, half),
        verdict=verdict,
        why=why,
        beyond_delta=half is not None and abs(gain) - half > math.log1p(DELTA),
        provisional=True,
        unlike=list(names),
        accepted=[name for name in names if name in accepted],
    )


def _judged(gain: float, half: float | None) -> tuple[str, str | None]:
    limit = math.log1p(DELTA)
    if half is None:
        return "inconclusive", "a single reading on at least one side: no interval, so no verdict"
    ninety = half * _Z90 / _Z95
    if abs(gain) + ninety < limit:
        return "equivalent", None
    if abs(gain) > half:
        return ("b_faster" if gain > 0 else "a_faster"), None
    return "inconclusive", None


def _holm(rows: Sequence[VerdictResult]) -> list[VerdictResult]:
    """Take back claims of "faster" that do not survive Holm's steps over the levels."""
    kept = list(rows)
    for key in dict.fromkeys((row.metric, row.a, row.b) for row in rows):
        mine = [k for k, row in enumerate(rows) if (row.metric, row.a, row.b) == key]
        claims = [k for k in mine if rows[k].verdict in ("a_faster", "b_faster")]
        claims.sort(key=lambda k: -_z(rows[k]))
        for step, k in enumerate(claims):
            if _z(rows[k]) < -float(ndtri(0.025 / (len(mine) - step))):
                for late in claims[step:]:
                    kept[late].verdict = "inconclusive"
                    kept[late].beyond_delta = False
                    kept[late].why = f"apart by itself, not over all {len(mine)} levels (Holm)"
                break
            kept[k].adjusted = "holm" if len(mine) > 1 else None
    return kept


def _z(row: VerdictResult) -> float:
    """Return how many standard errors a told ratio is from 1."""
    ratio = row.ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        return 0.0
    half = (math.log(ratio.high) - math.log(ratio.low)) / 2
    return math.inf if half == 0 else abs(math.log(ratio.point)) / half * _Z95


def _ratio(log: float, half: float | None) -> Estimate:
    bounds = None if half is None else Interval(log, log - half, log + half)
    return Estimate(
        point=math.exp(log),
        low=None if bounds is None else math.exp(bounds.low),
        high=None if bounds is None else math.exp(bounds.high),
        n=1,
        method="ratio of told figures"
        + ("" if bounds is None else ", relative widths in quadrature"),
    )


def _contest(row: VerdictResult, gain: float, half: float | None, family: int) -> Contest:
    wide = None if half is None else half * -float(ndtri(0.025 / max(1, family))) / _Z95
    return Contest(
        level=row.concurrency,
        a=row.a,
        b=row.b,
        gain=gain,
        low=None if wide is None else gain - wide,
        high=None if wide is None else gain + wide,
    )


def _client_against_server(rows: Sequence[VerdictResult]) -> list[Doubt]:
    """Return a doubt where the client's figure moved and the server's own did not."""
    found: list[Doubt] = []
    own = {(r.a, r.b, r.cell_a): r for r in rows if r.metric == SERVER_RATE}
    for row in rows:
        server = own.get((row.a, row.b, row.cell_a))
        if row.metric != "output_tok_per_s" or server is None:
            continue
        client, told = row.ratio, server.ratio
        if client is None or told is None or told.low is None or told.high is None:
            continue
        if told.low <= client.point <= told.high:
            continue
        moved, steady, low, high = (
            f"{100 * (value - 1):+.1f} %".replace("-", "−")
            for value in (client.point, told.point, told.low, told.high)
        )
        message = (
            f"{row.b} against {row.a} at N = {row.concurrency}: the client's figure moved by "
            f"{moved}, the server's own by {steady} [{low}, {high}]. Both are of the same runs: "
            "what changed is the measuring, and the server's figure is the headline."
        )
        evidence = {"client_ratio": client.point, "server_ratio": told.point}
        found.append(doubt("client_server_disagree", row.cell_b, message, evidence))
    return found

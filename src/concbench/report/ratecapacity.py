"""Which rate a box carries, in words and as a table: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from concbench.analyse.ratecapacity import RateCapacity, RateLevel
from concbench.plan.levels import Slo
from concbench.report.inert import inert
from concbench.report.objectives import (
    STANDINGS,
    TEXT_LIMIT,
    headings,
    not_measured,
    number,
    values,
)
from concbench.report.view import PlainTable


def rate_name(series: RateCapacity) -> str:
    """Return what tells a series from others: lane, link, length of the prompts."""
    parts = [inert(series.lane), inert(series.link or ""), f"{series.context_tok:,} tokens"]
    return " · ".join(filter(None, parts))


def rate_lines(series: RateCapacity, think_s: float) -> Iterator[str]:
    """Yield one series as lines: the answer first, then a line a rate."""
    yield f"{rate_name(series)}: {rate_answer(series, think_s)}"
    for level in series.levels:
        yield f"  {level.rate_rps:<6g} req/s {_level_text(level)}"


def rate_answer(series: RateCapacity, think_s: float) -> str:
    """Return the capacity in requests a second in one sentence, with what bounds it."""
    holding = next((e for e in series.levels if e.rate_rps == series.holds_rps), None)
    if holding is None:
        text = "no measured rate is shown to hold the objectives"
    else:
        noun = "round" if series.confirmed_rounds == 1 else "rounds"
        text = f"{holding.rate_rps:g} requests a second hold the objectives"
        text += f" over {series.confirmed_rounds} {noun}"
        if holding.in_flight is not None:
            text += f", {holding.in_flight:.1f} at once on average"
        if think_s and holding.users is not None:
            text += f", {holding.users:.0f} users who pause for {think_s:g} s"
    if series.fails_rps is not None:
        text += f"; {series.fails_rps:g} do not"
    elif holding is not None:
        text += "; no higher rate was shown to fail"
    if series.open_rps:
        text += f"; open at {', '.join(f'{rate:g}' for rate in series.open_rps)}"
    missing = [each for each in series.levels if each.standing == "unmeasured"]
    return text + not_measured((f"{each.rate_rps:g}", each.why) for each in missing)


def rate_table(series: RateCapacity, title: str, slos: Sequence[Slo], think_s: float) -> PlainTable:
    """Return one series: a row a rate, a pair of columns an objective."""
    top = ("req/s", "standing", "queue", "rounds", "requests", "at once", "users")
    rows = []
    for level in series.levels:
        texts = [
            f"{level.rate_rps:g}",
            STANDINGS[level.standing],
            level.state or "unknown",
            str(level.rounds),
            str(level.requests),
            "–" if level.in_flight is None else f"{level.in_flight:.1f}",
            "–" if level.users is None else f"{level.users:,.0f}",
        ]
        rows.append((*texts, *values(level.objectives, slos)))
    pause = [f"users pause for {think_s:g} s"] if think_s else []
    why = [f"{level.rate_rps:g} req/s: {level.why}" for level in series.levels if level.why]
    notes = tuple(inert(text, TEXT_LIMIT) for text in (*pause, *why))
    return PlainTable(title, (*top, *headings(slos)), tuple(rows), notes, words=3)


def _level_text(level: RateLevel) -> str:
    checks = "; ".join(
        f"{each.slo} {number(each.value)} (bound {number(each.bound)}, limit {each.limit:g})"
        for each in level.objectives
    )
    why = f": {level.why}" if level.why else ""
    queue = level.state or "unknown"
    noun = "round" if level.rounds == 1 else "rounds"
    return (
        f"{STANDINGS[level.standing]}{why} · queue {queue} · {level.requests} requests in "
        f"{level.rounds} {noun} · {checks}"
    )

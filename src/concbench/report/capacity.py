"""How many users a box carries, in words and as a table: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from concbench.analyse.capacity import Capacity, LevelCapacity
from concbench.analyse.ratecapacity import RateCapacity
from concbench.plan.levels import Slo, parse_slo
from concbench.report.inert import inert
from concbench.report.objectives import (
    STANDINGS,
    TEXT_LIMIT,
    headings,
    not_measured,
    number,
    values,
)
from concbench.report.ratecapacity import rate_answer, rate_name, rate_table
from concbench.report.view import PlainTable


def series_lines(series: Capacity, think_s: float) -> Iterator[str]:
    """Yield one series as lines: the answer first, then a line a level, then KV and knee."""
    yield f"{_name(series)}: {answer(series, think_s)}"
    for level in series.levels:
        yield f"  N = {level.concurrency:<5} {_level_text(level)}"
    yield from (f"  {note}" for note in _notes(series))


def answer(series: Capacity, think_s: float) -> str:
    """Return the capacity in one sentence, with what bounds it."""
    if series.holds is None:
        text = "no measured level is shown to hold the objectives"
    else:
        text = f"{series.holds} at once hold the objectives"
        if think_s and series.users is not None:
            text += f", {series.users:.0f} users who pause for {think_s:g} s"
    if series.fails is not None:
        text += f"; {series.fails} at once do not"
    elif series.holds is not None:
        text += "; no higher level was shown to fail"
    doubted = [each.concurrency for each in series.levels if each.standing == "doubted"]
    still = [level for level in series.open if level not in doubted]
    if still:
        text += f"; open at {', '.join(map(str, still))} (sustain gives more requests)"
    if doubted:
        text += f"; nothing can be said at {', '.join(map(str, doubted))} (a fatal doubt)"
    missing = [each for each in series.levels if each.standing == "unmeasured"]
    return text + not_measured((str(each.concurrency), each.why) for each in missing)


def capacity_tables(payload: Mapping[str, Any] | None) -> tuple[PlainTable, ...]:
    """Return a table a series of what `capacity` and `find` put into the payload, else none.

    Of several series each has its own answer in its title. Raises msgspec.ValidationError for a
    payload that is none of theirs.
    """
    told = (payload or {}).get("capacity")
    if not told:
        return ()
    levels, rates = _found(told)
    answers = capacity_answers(payload)
    one = len(answers) == 1
    slos, think_s = parse_slo(str(told["slo"])), float(told["think_s"])

    def title(kind: str, place: int) -> str:
        return f"{kind} against objectives" + ("" if one else f" · {answers[place]}")

    return (
        *(_table(each, title("Levels", n), slos, think_s) for n, each in enumerate(levels)),
        *(
            rate_table(each, title("Rates", n), slos, think_s)
            for n, each in enumerate(rates, len(levels))
        ),
    )


def capacity_answers(payload: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the answer of each series that `capacity` and `find` put into the payload.

    A single series is not named. Raises msgspec.ValidationError as `capacity_tables` does.
    """
    told = (payload or {}).get("capacity")
    if not told:
        return ()
    levels, rates = _found(told)
    think_s = float(told["think_s"])
    texts = [(_name(each), answer(each, think_s)) for each in levels]
    texts += [(rate_name(each), rate_answer(each, think_s)) for each in rates]
    return tuple(text if len(texts) == 1 else f"{name}: {text}" for name, text in texts)


def _found(told: Mapping[str, Any]) -> tuple[list[Capacity], list[RateCapacity]]:
    return (
        msgspec.convert(told["series"], list[Capacity]),
        msgspec.convert(told.get("rates", []), list[RateCapacity]),
    )


def _table(series: Capacity, title: str, slos: Sequence[Slo], think_s: float) -> PlainTable:
    """Return one series: a row a level, a pair of columns an objective."""
    top = ("N", "standing", "tok/s", "gain a doubling", "users")
    rows = []
    for level in series.levels:
        texts = [
            str(level.concurrency),
            STANDINGS[level.standing],
            "–" if level.tok_per_s is None else f"{level.tok_per_s:,.0f}",
            "–" if level.gain_per_doubling is None else f"{level.gain_per_doubling:.2f} ×",
            "–" if level.users is None else f"{level.users:,.0f}",
        ]
        rows.append((*texts, *values(level.objectives, slos)))
    why = [f"N = {level.concurrency}: {level.why}" for level in series.levels if level.why]
    pause = [f"users pause for {think_s:g} s"] if think_s else []
    notes = [inert(text, TEXT_LIMIT) for text in (*pause, *_notes(series), *why)]
    return PlainTable(title, (*top, *headings(slos)), tuple(rows), tuple(notes), words=2)


def _name(series: Capacity) -> str:
    # A label that is no length is a kind of content.
    label = series.context_label
    kind = "" if label == "short" or label.isdigit() else inert(label, 40)
    place = [f"{series.context_tok:,} tokens", kind]
    return " · ".join(filter(None, [inert(series.lane), inert(series.link or ""), *place]))


def _notes(series: Capacity) -> Iterator[str]:
    """Yield what the KV pool holds, and where the knee is."""
    if series.n_kv is not None:
        yield (
            f"KV pool {series.pool_tok:,} tokens: {series.n_kv:,} requests of "
            f"{series.context_tok:,} + {series.output_tok:,.0f} tokens at once"
        )
    if series.knee is not None:
        seen = series.ceiling in ("reached", "passed")
        beyond = "" if seen else " or beyond: throughput still grows at the highest level"
        yield f"knee near N = {series.knee:.1f}{beyond}"


def _level_text(level: LevelCapacity) -> str:
    rate = "–" if level.tok_per_s is None else f"{level.tok_per_s:,.0f} tok/s"
    gain = (
        "" if level.gain_per_doubling is None else f", {level.gain_per_doubling:.2f} × a doubling"
    )
    checks = "; ".join(
        f"{each.slo} {number(each.value)} (bound {number(each.bound)}, limit {each.limit:g})"
        for each in level.objectives
    )
    why = f": {level.why}" if level.why else ""
    return f"{STANDINGS[level.standing]}{why} · {rate}{gain} · {checks}"

"""One lane, link or flag value beside another, cell by cell, as texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from concbench.analyse.matrix_model import AgainstRow, Change, Unlike
from concbench.report import numbers
from concbench.report.inert import inert
from concbench.report.matrix_text import FATAL, NO_DIFFERENCE, context_text
from concbench.report.numbers import MISSING
from concbench.report.view import PlainTable

_METRICS = {
    "prefill_tok_per_s": "prefill tok/s",
    "decode_tok_per_s": "decode tok/s",
    "ttft_ms": "TTFT ms",
    "aggregate_tok_per_s": "aggregate tok/s",
}
TOO_FEW = "fewer than 3 rounds on a side, or too few requests for a median's interval"
READINGS = {"within": NO_DIFFERENCE}
"""How a reading is written, where not as it is."""

CHANCE = "each at 95 %: of figures that do not differ about 1 in 20 is beyond by chance"
_AXES = {"link": "Links", "lane": "Lanes", "flag": "Flags", "control": "Controls"}


def against_tables(rows: Sequence[AgainstRow], unlike: Sequence[Unlike]) -> Iterable[PlainTable]:
    """Yield one table for each pair of sides."""
    names = {(one.axis, one.a, one.b): one.names for one in unlike}
    groups: dict[tuple[str, str, str, str | None], list[AgainstRow]] = {}
    for row in rows:
        groups.setdefault((row.axis, row.a, row.b, row.shared), []).append(row)
    for (axis, a, b, shared), members in groups.items():
        where = f" ({inert(shared, 60)})" if shared else ""
        yield PlainTable(
            title=f"{_AXES[axis]}: {inert(b, 60)} against {inert(a, 60)}{where}",
            headings=("context", "N", "figure", inert(a, 40), inert(b, 40), "change", "noise"),
            rows=tuple(tuple(_against_row(row)) for row in members),
            notes=(_sum_up(members), *_unlike_notes(names.get((axis, a, b), ()))),
            words=1,
        )


def _against_row(row: AgainstRow) -> list[str]:
    return [
        context_text(row.context_label, row.context_tok),
        str(row.concurrency),
        _METRICS[row.metric],
        numbers.estimate_text(row.a_value),
        numbers.estimate_text(row.b_value),
        MISSING if row.fatal else change_text(row.change),
        f"{FATAL} {inert(', '.join(row.fatal), 80)}"
        if row.fatal
        else READINGS.get(row.reading, row.reading),
    ]


def change_text(found: Change) -> str:
    """Return a change with its interval where it has one: `+12.5 % [1.7, 24.4]`."""
    text = numbers.percent(found.relative_pct, signed=True)
    if found.low_pct is None or found.high_pct is None:
        return text
    return f"{text} [{numbers.fixed(found.low_pct, 1)}, {numbers.fixed(found.high_pct, 1)}]"


def _sum_up(rows: Sequence[AgainstRow]) -> str:
    sound = [row for row in rows if not row.fatal]
    beyond = sum(row.reading == "beyond" for row in sound)
    unknown = sum(row.reading == "unknown" for row in sound)
    bases = ", ".join(dict.fromkeys(row.change.basis for row in rows))
    changes = [row.change.relative_pct for row in sound if row.metric == "aggregate_tok_per_s"]
    span = (
        f"; aggregate {numbers.percent(min(changes), signed=True)} to "
        f"{numbers.percent(max(changes), signed=True)}"
        if changes
        else ""
    )
    left = len(rows) - len(sound)
    doubted = f", {left} left out for a fatal doubt" if left else ""
    unjudged = f", {unknown} unknown ({TOO_FEW})" if unknown else ""
    chance = f"; {CHANCE}" if len(sound) - unknown > 1 else ""
    drift = _drift_text([row for row in sound if row.reading == "drifted"])
    return (
        f"{beyond} of {len(sound)} figures beyond the noise{unjudged}{doubted}{span}; "
        f"noise judged by {bases}{chance}{drift}"
    )


def _drift_text(rows: Sequence[AgainstRow]) -> str:
    known = [row.drift_pct for row in rows if row.drift_pct is not None]
    if not known:
        return ""
    most = numbers.percent(max(known, key=abs), signed=True)
    return f"; drifted: the control moved by {most}, more than half of the change"


def _unlike_notes(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [
        f"unlike: {', '.join(names)}: a change is that of all of these together, and no verdict"
    ]

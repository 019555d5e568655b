"""One link, lane or flag value against another, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from concbench.analyse.change import change
from concbench.analyse.matrix_model import AgainstRow, Change, Reading, Unlike
from concbench.analyse.single import Single
from concbench.domain import Estimate
from concbench.result import CellResult

CONTROL_MARK = "~control"

Place = tuple[str, str | None, int, str]
Side = tuple[str, str | None]


def _alike(a: str, b: str) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Caveats:
    """What forbids to read a difference: fatal doubts by cell id, how far controls moved by lane
    and link (in percent), and what makes two lanes unlike."""

    fatal: Mapping[str, Sequence[str]] = field(default_factory=dict)
    drift_pct: Mapping[Side, float] = field(default_factory=dict)
    unlike: Callable[[str, str], Sequence[str]] = _alike


def unlike_sides(groups: Mapping[Place, Sequence[CellResult]], caveats: Caveats) -> list[Unlike]:
    """Return what makes the lanes and flag values unlike that `against_rows` sets side by side."""
    lanes = list(dict.fromkeys(place[0] for place in groups))
    pairs = {(axis, a[0], b[0]): None for a, b, axis in _pairs(lanes, [None]) if axis != "control"}
    found = [(place, list(caveats.unlike(place[1], place[2]))) for place in pairs]
    return [Unlike(axis=axis, a=a, b=b, names=names) for (axis, a, b), names in found if names]


def against_rows(
    groups: Mapping[Place, Sequence[CellResult]],
    singles: Mapping[Place, Single | None],
    caveats: Caveats,
) -> list[AgainstRow]:
    """Return every cell of the first link against each other, and of the first lane likewise.

    Flag values of one lane are compared among themselves; a lane whose every value was measured
    takes part in the comparison of lanes with its first.
    """
    lanes = list(dict.fromkeys(place[0] for place in groups))
    links = list(dict.fromkeys(place[1] for place in groups))
    rows: list[AgainstRow] = []
    for a, b, axis in _pairs(lanes, links):
        for place in groups:
            other: Place = (b[0], b[1], place[2], place[3])
            if (place[0], place[1]) != a or other not in groups:
                continue
            names = (a[1] or "no link", b[1] or "no link") if axis == "link" else (a[0], b[0])
            shared = a[0] if axis == "link" else a[1]
            for n, metric, before, after in _figures(groups, singles, place, other):
                found = change(before, after)
                if found is None or before is None or after is None:
                    continue
                fatal = _fatal(caveats, (names[0], groups[place]), (names[1], groups[other]), n)
                drift = None if axis == "control" else _drift(caveats, a, b)
                rows.append(
                    AgainstRow(
                        axis=axis,
                        a=names[0],
                        b=names[1],
                        shared=shared,
                        context_label=place[3],
                        context_tok=place[2],
                        concurrency=n,
                        metric=metric,
                        a_value=before,
                        b_value=after,
                        change=found,
                        reading=reading(found, fatal, drift),
                        fatal=fatal,
                        drift_pct=drift,
                    )
                )
    return rows


def reading(found: Change, fatal: Sequence[str], drift_pct: float | None) -> Reading:
    """Return what may be said of a change: nothing where a fatal doubt stands on either cell, and
    that the machine drifted where its control moved by more than half of it (the control gate of a
    comparison, with the change in the margin's place)."""
    if fatal:
        return "invalid"
    if found.exceeds_noise is None:
        return "unknown"
    if not found.exceeds_noise:
        return "within"
    moved = 0.0 if drift_pct is None else abs(math.log1p(drift_pct / 100))
    return "drifted" if moved > abs(math.log1p(found.relative_pct / 100)) / 2 else "beyond"


def _fatal(
    caveats: Caveats,
    a: tuple[str, Sequence[CellResult]],
    b: tuple[str, Sequence[CellResult]],
    n: int,
) -> list[str]:
    """Return the fatal doubts of the two cells of N, each with its side."""
    return [
        f"{code} ({name})"
        for name, cells in (a, b)
        for cell in cells
        if cell.concurrency == n
        for code in caveats.fatal.get(cell.cell, ())
    ]


def _drift(caveats: Caveats, a: Side, b: Side) -> float | None:
    """Return the control that moved more, of either side."""
    known = [caveats.drift_pct[side] for side in (a, b) if side in caveats.drift_pct]
    return max(known, key=lambda pct: abs(math.log1p(pct / 100)), default=None)


def _pairs(lanes: Sequence[str], links: Sequence[str | None]) -> Iterator[tuple[Side, Side, str]]:
    """Yield sides that differ in one axis alone."""
    for link in links[1:]:
        for lane in lanes:
            yield (lane, links[0]), (lane, link), "link"
    firsts: dict[str, str] = {}
    for lane in lanes:
        base = firsts.setdefault(family(lane), lane)
        if base == lane:
            continue
        axis = "control" if lane.endswith(CONTROL_MARK) else "flag"
        for link in links:
            yield (base, link), (lane, link), axis
    first, *others = firsts.values() if firsts else ("",)
    for lane in others:
        for link in links:
            yield (first, link), (lane, link), "lane"


def family(lane: str) -> str:
    """Return a lane's name without the flag values and the mark of a control behind it."""
    name = lane.removesuffix(CONTROL_MARK)
    return name.partition("[")[0] if name.endswith("]") else name


def _figures(
    groups: Mapping[Place, Sequence[CellResult]],
    singles: Mapping[Place, Single | None],
    place: Place,
    other: Place,
) -> Iterator[tuple[int, str, Estimate | None, Estimate | None]]:
    a, b = singles[place], singles[other]
    if a is not None and b is not None:
        if a.prefill_method == b.prefill_method:
            yield 1, "prefill_tok_per_s", a.prefill, b.prefill
        yield 1, "decode_tok_per_s", a.decode, b.decode
        yield 1, "ttft_ms", a.ttft_ms, b.ttft_ms
    levels = {cell.concurrency: cell for cell in groups[other]}
    for cell in groups[place]:
        if cell.concurrency in levels:
            after = levels[cell.concurrency].client.output_tok_per_s
            yield cell.concurrency, "aggregate_tok_per_s", cell.client.output_tok_per_s, after

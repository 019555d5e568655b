"""One link, lane or flag value against another, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from concbench.analyse.change import change
from concbench.analyse.matrix_model import AgainstRow
from concbench.analyse.single import Single
from concbench.domain import Estimate
from concbench.result import CellResult

CONTROL_MARK = "~control"

Place = tuple[str, str | None, int, str]
Side = tuple[str, str | None]


def against_rows(
    groups: Mapping[Place, Sequence[CellResult]], singles: Mapping[Place, Single | None]
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
                    )
                )
    return rows


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

"""The tables that people make of a matrix by hand, made from its cells. Pure.

One stream alone by context; what concurrency adds, up to the KV pool and beyond it; the peak
against what prefill alone predicts; how many at once. Formulas: the docstrings of
`concbench.analyse.matrix_model`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from concbench.analyse.change import change
from concbench.analyse.matrix_against import Caveats, against_rows, unlike_sides
from concbench.analyse.matrix_model import (
    ConcurrencyRow,
    GainRow,
    Matrix,
    MaxRow,
    PredictedRow,
    SingleRow,
)
from concbench.analyse.overkv import CONSTANT_WITHIN, all_answered
from concbench.analyse.single import Single, output_tok, single_of
from concbench.domain import Estimate, TargetFacts
from concbench.result import CellResult

SATURATED_SHARE = 0.97
"""Throughput that counts as the peak's."""

LONG_CONTEXT = 16
"""Prompt ÷ answer from which prefill alone decides the aggregate."""

Place = tuple[str, str | None, int, str]
"""Lane, link, context in tokens and its label."""


def is_matrix(cells: Sequence[CellResult]) -> bool:
    """Return whether there is more than one lane, link or context to put side by side."""
    axes = ({c.lane for c in cells}, {c.link for c in cells}, {c.context_tok for c in cells})
    return any(len(values) > 1 for values in axes)


def matrix(
    cells: Sequence[CellResult],
    targets: Mapping[str, TargetFacts],
    output_tokens: int | None = None,
    *,
    lanes: Sequence[str] = (),
    links: Sequence[str | None] = (),
    demands: Mapping[str, Mapping[str, Any]] | None = None,
    caveats: Caveats | None = None,
) -> Matrix:
    """Return all tables. `output_tokens` is what was asked for, for cells without an answer.

    `lanes` and `links` give the order: the first is what others are compared with; those not named
    follow in the order of the cells. `demands` is by cell what a sweep knew when it ran it:
    `pool_tok`, `demand_tok`, `over_kv`; the lane's facts tell it otherwise. Cells of an offered
    rate are left out: they have no concurrency of their own. `caveats` is what forbids to read some
    of it: see `matrix_against`.
    """
    groups = _groups([cell for cell in cells if cell.rate_rps is None], lanes, links)
    known, caveats = demands or {}, caveats or Caveats()
    pools = {place: _pool(group, targets, known) for place, group in groups.items()}
    singles = {place: single_of(group) for place, group in groups.items()}
    rows = {
        place: _concurrency(place, group, pools[place], output_tokens, known, caveats)
        for place, group in groups.items()
    }
    return Matrix(
        single_stream=_single_rows(groups, singles, caveats),
        concurrency=[row for group in rows.values() for row in group],
        gain=[gain for place, group in rows.items() if (gain := _gain(place, group)) is not None],
        predicted=[
            found
            for place, group in rows.items()
            if (found := _predicted(place, singles[place], group, groups[place])) is not None
        ],
        max_concurrency=[
            _max_row(place, group, pools[place], _answer(groups[place], output_tokens))
            for place, group in rows.items()
        ],
        against=against_rows(groups, singles, caveats),
        unlike=unlike_sides(groups, caveats),
    )


def _groups(
    cells: Sequence[CellResult], lanes: Sequence[str], links: Sequence[str | None]
) -> dict[Place, list[CellResult]]:
    groups: dict[Place, list[CellResult]] = {}
    for cell in cells:
        place = (cell.lane, cell.link, cell.context_tok, cell.context_label)
        groups.setdefault(place, []).append(cell)
    all_lanes = list(dict.fromkeys([*lanes, *(place[0] for place in groups)]))
    all_links = list(dict.fromkeys([*links, *(place[1] for place in groups)]))
    order = sorted(groups, key=lambda p: (all_lanes.index(p[0]), all_links.index(p[1]), p[2], p[3]))
    return {place: sorted(groups[place], key=lambda c: c.concurrency) for place in order}


def _pool(
    cells: Sequence[CellResult],
    targets: Mapping[str, TargetFacts],
    known: Mapping[str, Mapping[str, Any]],
) -> int | None:
    told = [known[cell.cell]["pool_tok"] for cell in cells if cell.cell in known]
    if told:
        return next((pool for pool in told if pool is not None), None)
    facts = targets.get(cells[0].lane)
    return None if facts is None else facts.kv_capacity_tok


def _answer(cells: Sequence[CellResult], asked: int | None) -> float | None:
    """Return output tokens a request, as received; as asked where no answer came."""
    known = [tokens for cell in cells if (tokens := output_tok(cell)) is not None]
    if known:
        return max(known)
    return None if asked is None else float(asked)


def _single_rows(
    groups: Mapping[Place, Sequence[CellResult]],
    singles: Mapping[Place, Single | None],
    caveats: Caveats,
) -> list[SingleRow]:
    """Return one row a place; changes are against the first lane (or link) at that context."""
    first: dict[tuple[int, str], tuple[Place, Single]] = {}
    found = []
    fatal = {
        place: [code for c in group if c.concurrency == 1 for code in caveats.fatal.get(c.cell, ())]
        for place, group in groups.items()
    }
    for place, one in singles.items():
        if one is None:
            continue
        lane, link, context, label = place
        base_place, base = first.setdefault((context, label), (place, one))
        is_base = base_place == place
        told = not (is_base or fatal[place] or fatal[base_place])
        # A slope leaves out what prompt ÷ TTFT holds: the two are no pair.
        alike = told and base.prefill_method == one.prefill_method
        found.append(
            SingleRow(
                lane=lane,
                link=link,
                context_label=label,
                context_tok=context,
                prefill_tok_per_s=one.prefill,
                prefill_method=one.prefill_method,
                decode_tok_per_s=one.decode,
                ttft_ms=one.ttft_ms,
                against=None if is_base else _name(base_place),
                prefill_change=change(base.prefill, one.prefill) if alike else None,
                decode_change=change(base.decode, one.decode) if told else None,
                ttft_change=change(base.ttft_ms, one.ttft_ms) if told else None,
                fatal=fatal[place],
            )
        )
    return sorted(found, key=lambda row: row.context_tok)


def _name(place: Place) -> str:
    return place[0] if place[1] is None else f"{place[0]} · {place[1]}"


def _concurrency(
    place: Place,
    cells: Sequence[CellResult],
    pool: int | None,
    asked: int | None,
    known: Mapping[str, Mapping[str, Any]],
    caveats: Caveats,
) -> list[ConcurrencyRow]:
    answer = _answer(cells, asked)
    known = {cell.cell: known[cell.cell] for cell in cells if cell.cell in known}
    demand = {
        cell.cell: None if answer is None else round(cell.concurrency * (place[2] + answer))
        for cell in cells
    } | {name: entry["demand_tok"] for name, entry in known.items()}
    over = {
        cell.cell: pool is not None and (need := demand[cell.cell]) is not None and need > pool
        for cell in cells
    } | {name: bool(entry["over_kv"]) for name, entry in known.items()}
    # What a fatal doubt stands on is shown, and nothing is set against it.
    sound = [c for c in cells if not caveats.fatal.get(c.cell)]
    alone = next((c.client.output_tok_per_s for c in sound if c.concurrency == 1), None)
    took = {cell.cell: elapsed_s(cell, known.get(cell.cell)) for cell in cells}
    inside = [c for c in sound if not over[c.cell] and took[c.cell] is not None]
    rows = []
    for cell in cells:
        below = [c for c in inside if c.concurrency < cell.concurrency]
        fatal = list(caveats.fatal.get(cell.cell, ()))
        row = _row(cell, below[-1] if below else None, alone, fatal, took)
        rows.append(
            msgspec.structs.replace(
                row,
                over_kv=over[cell.cell],
                over_slots=bool(known.get(cell.cell, {}).get("capped")),
                kv_demand_tok=demand[cell.cell],
                kv_pool_tok=pool,
            )
        )
    return rows


def _row(
    cell: CellResult,
    base: CellResult | None,
    alone: Estimate | None,
    fatal: list[str],
    took: Mapping[str, float | None],
) -> ConcurrencyRow:
    rate = cell.client.output_tok_per_s
    return ConcurrencyRow(
        cell=cell.cell,
        lane=cell.lane,
        link=cell.link,
        context_label=cell.context_label,
        context_tok=cell.context_tok,
        concurrency=cell.concurrency,
        outcome=cell.outcome,
        aggregate_tok_per_s=rate,
        per_stream_tok_per_s=cell.client.per_request_tok_per_s.mean,
        scaling=_ratio(rate.point, alone.point) if rate and alone else None,
        overlap=cell.overlap,
        elapsed_s=took[cell.cell],
        relative_to=None if base is None else base.concurrency,
        elapsed_ratio=None if base is None else _ratio(took[cell.cell], took[base.cell]),
        concurrency_ratio=None if base is None else cell.concurrency / base.concurrency,
        throughput_constant=None if base is None or fatal else _constant(base, cell),
        failures=cell.requests.failed + cell.requests.incomplete,
        preemptions=cell.server.preemptions,
        waiting_max=cell.server.waiting_max,
        queue_mean_ms=_mean_of(cell.server.queue_ms),
        fatal=fatal,
    )


def elapsed_s(cell: CellResult, known: Mapping[str, Any] | None = None) -> float | None:
    """Return the wall of one batch in seconds: the mean of its rounds, where a sweep knows it.

    Otherwise the output tokens ÷ the batch figure. None where not every request was answered.
    """
    if not all_answered(cell):
        return None
    told = (known or {}).get("elapsed_s")
    if told is not None:
        return float(told)
    rate, counts = cell.client.output_tok_per_s, cell.requests
    if rate is None or rate.point <= 0:
        return None
    return cell.tokens.output / counts.ok * cell.concurrency / rate.point


def _mean_of(queue_ms: Mapping[str, object] | None) -> float | None:
    found = (queue_ms or {}).get("mean")
    return float(found) if isinstance(found, int | float) else None


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def _constant(base: CellResult, cell: CellResult) -> bool | None:
    found = change(base.client.output_tok_per_s, cell.client.output_tok_per_s)
    if found is None:
        return None
    if abs(found.relative_pct) <= 100 * CONSTANT_WITHIN:
        return True
    # A large change within a large noise is neither.
    return False if found.exceeds_noise else None


def _sound(rows: Sequence[ConcurrencyRow]) -> list[tuple[ConcurrencyRow, float]]:
    """Return the rows that have a rate which may be used, each with it."""
    return [
        (row, row.aggregate_tok_per_s.point)
        for row in rows
        if row.aggregate_tok_per_s and not row.fatal
    ]


def _gain(place: Place, rows: Sequence[ConcurrencyRow]) -> GainRow | None:
    known = _sound(rows)
    if len(known) < 2 or known[0][0].concurrency != 1 or known[0][1] <= 0:
        return None
    peak, peak_rate = max(known, key=lambda one: one[1])
    enough = next(row for row, rate in known if rate >= SATURATED_SHARE * peak_rate)
    return GainRow(
        **_at(place),
        single_tok_per_s=known[0][1],
        peak_tok_per_s=peak_rate,
        peak_concurrency=peak.concurrency,
        saturation_concurrency=enough.concurrency,
        gain=peak_rate / known[0][1],
        saturated=enough.concurrency < known[-1][0].concurrency,
    )


def _predicted(
    place: Place,
    single: Single | None,
    rows: Sequence[ConcurrencyRow],
    cells: Sequence[CellResult],
) -> PredictedRow | None:
    known = _sound(rows)
    answer = _answer(cells, None)
    doubted = any(row.fatal for row in rows if row.concurrency == 1)
    if single is None or single.prefill is None or doubted or not known or not answer:
        return None
    prefill = single.prefill.point
    predicted = prefill * answer / (place[2] + answer)
    row, measured = max(known, key=lambda one: one[1])
    return PredictedRow(
        **_at(place),
        output_tok=answer,
        prefill_tok_per_s=prefill,
        prefill_method=single.prefill_method or "",
        predicted_tok_per_s=predicted,
        measured_tok_per_s=measured,
        measured_concurrency=row.concurrency,
        measured_to_predicted=measured / predicted,
        long_context=place[2] >= LONG_CONTEXT * answer,
    )


def _max_row(
    place: Place, rows: Sequence[ConcurrencyRow], pool: int | None, answer: float | None
) -> MaxRow:
    clean = [
        r
        for r in rows
        if r.outcome == "measured" and not r.failures and r.aggregate_tok_per_s is not None
    ]
    inside = [r for r in clean if not r.over_kv and not r.over_slots]
    over = [r for r in rows if r.over_kv]
    bad = [r for r in rows if r.outcome not in ("measured", "interrupted") or r.failures]
    limit = None if pool is None or answer is None else int(pool // (place[2] + answer))
    last = over[-1] if over else None
    return MaxRow(
        **_at(place),
        kv_pool_tok=pool,
        kv_limit=limit,
        max_clean=inside[-1].concurrency if inside else None,
        over_concurrency=None if last is None else last.concurrency,
        over_ratio=None if last is None else _ratio(last.concurrency, limit),
        over_failures=None if last is None else last.failures,
        over_preemptions=None if last is None else last.preemptions,
        over_outcome=None if last is None else last.outcome,
        first_bad=bad[0].concurrency if bad else None,
        first_bad_outcome=_why(bad[0]) if bad else None,
    )


def _why(row: ConcurrencyRow) -> str:
    return row.outcome if row.outcome != "measured" else f"{row.failures} failed"


def _at(place: Place) -> dict[str, Any]:
    lane, link, context, label = place
    return {"lane": lane, "link": link, "context_label": label, "context_tok": context}

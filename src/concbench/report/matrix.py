"""The tables of a matrix as texts, the same for terminal, Markdown and page; and flat for CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from concbench.analyse.matrix_model import (
    AgainstRow,
    Change,
    ConcurrencyRow,
    GainRow,
    Matrix,
    MaxRow,
    PredictedRow,
    SingleRow,
)
from concbench.analyse.overkv import CONSTANT_WITHIN
from concbench.domain import Estimate
from concbench.report import numbers
from concbench.report.inert import inert
from concbench.report.matrix_sides import TOO_FEW, against_tables, change_text
from concbench.report.matrix_text import (
    NO_DIFFERENCE,
    context_text,
    fatal_notes,
    lane_text,
    marked,
)
from concbench.report.numbers import MISSING, TIMES
from concbench.report.view import PlainTable

UNKNOWN = "noise unknown"
OVERLAP_NOTE = (
    "overlap = (N·T₁/T_N − 1)/(N − 1): 1 parallel, 0 no gain from concurrency, below 0 worse "
    "than one after another"
)
SCALE = "aggregate scale"
SCALE_NOTE = (
    "aggregate scale = aggregate ÷ that of N = 1: ramp and drain are in both, so it is not the "
    "scale of the steady rates that stands with each series"
)
RATIO_NOTE = (
    "elapsed ratio and N ratio are against the row of the level below, over the KV pool against "
    "the last row inside: equal ratios mean that what does not fit only waits. throughput is "
    f"constant where the aggregate is within {100 * CONSTANT_WITHIN:g} % of that row's, changed "
    "where it is off by more than that and than the noise"
)
PREDICTED_NOTE = (
    "predicted = prefill × G ÷ (context + G), G output tokens a request; it leaves decode out, "
    "so it holds at long context (at least 16 times the answer)"
)
CHANGE_NOTE = (
    f"with the 95 % interval of the change; {NO_DIFFERENCE}: it holds 0, which does not show that "
    f"both are equal; noise unknown: {TOO_FEW}"
)
RATIO_PREFILL_NOTE = "‡ prompt ÷ TTFT: the first step and the network are in it"


def matrix_of(payload: Mapping[str, Any] | None) -> Matrix | None:
    """Return the tables that a result's payload holds, or None."""
    found = (payload or {}).get("matrix")
    return None if found is None else msgspec.convert(found, Matrix)


def matrix_tables(payload: Mapping[str, Any] | None) -> tuple[PlainTable, ...]:
    """Return the tables to show, none where the result is no matrix."""
    found = matrix_of(payload)
    links = _links((payload or {}).get("links", ()))
    if found is None:
        return (links,) if links.rows else ()
    tables = [
        links,
        _single(found.single_stream),
        *_concurrency(found.concurrency),
        _gain(found.gain),
        _predicted(found.predicted),
        _max(found.max_concurrency),
        *against_tables(found.against, found.unlike),
    ]
    return tuple(table for table in tables if table.rows)


def _links(notes: Sequence[Mapping[str, Any]]) -> PlainTable:
    """Return what `concbench link` put into the study: one row a link, the latest of each."""
    latest = {str(note["link"]): note for note in notes}
    rows = []
    for name, note in latest.items():
        runs = [msgspec.convert(run, LinkRun) for run in note.get("throughput", ())]
        one = {run.way: run for run in runs if run.direction != "both" and run.streams == 1}
        both = {run.way: run for run in runs if run.direction == "both"}
        most = max((run for run in runs if run.streams > 1), key=_rate, default=None)
        trip = (note.get("round_trip") or {}).get("ms") or {}
        rows.append(
            (
                inert(name, 40),
                *(_gb(one.get(way)) for way in ("there", "back")),
                " / ".join(_gb(both.get(way)) for way in ("there", "back")) if both else MISSING,
                MISSING if most is None else f"{_gb(most)} ({most.streams})",
                numbers.fixed(trip.get("p50"), 3),
                numbers.fixed(trip.get("p99"), 3),
            )
        )
    return PlainTable(
        title="Links as measured",
        headings=(
            *("link", "there Gb/s", "back Gb/s", "both at once", "streams"),
            *("round trip ms", "p99 ms"),
        ),
        rows=tuple(rows),
        notes=("gigabits of TCP payload a second, as received",),
    )


class LinkRun(msgspec.Struct, frozen=True, kw_only=True):
    """What the table needs of a run of iperf3."""

    direction: str
    way: str
    streams: int
    received_gb_per_s: float


def _rate(run: LinkRun) -> float:
    return run.received_gb_per_s


def _gb(run: LinkRun | None) -> str:
    return MISSING if run is None else numbers.number(run.received_gb_per_s)


def _place(row: SingleRow | ConcurrencyRow | GainRow | PredictedRow | MaxRow) -> list[str]:
    return [context_text(row.context_label, row.context_tok), lane_text(row.lane, row.link)]


def _single(rows: Sequence[SingleRow]) -> PlainTable:
    changed = any(row.against is not None for row in rows)
    headings = ["context", "lane", "prefill tok/s", "decode tok/s", "TTFT ms"]
    if changed:
        headings = [*headings, "prefill", "decode", "TTFT"]
    by_ratio = any(row.prefill_method == "prompt ÷ TTFT" for row in rows)
    notes = [RATIO_PREFILL_NOTE] if by_ratio else []
    notes += fatal_notes((row.fatal, [*_place(row), "N = 1"]) for row in rows)
    bases = list(dict.fromkeys(row.against for row in rows if row.against))
    if bases:
        notes.insert(0, f"changes against {inert(bases[0])}; {CHANGE_NOTE}")
    return PlainTable(
        title="One stream alone",
        headings=tuple(headings),
        rows=tuple(tuple(_single_row(row, changed=changed)) for row in rows),
        notes=tuple(notes),
        words=2,
    )


def _single_row(row: SingleRow, *, changed: bool) -> list[str]:
    mark = "‡" if row.prefill_method == "prompt ÷ TTFT" else ""
    prefill = numbers.estimate_text(row.prefill_tok_per_s)
    context, lane = _place(row)
    shown = [
        context,
        marked(lane, row.fatal),
        prefill + mark if row.prefill_tok_per_s else prefill,
        numbers.estimate_text(row.decode_tok_per_s),
        numbers.estimate_text(row.ttft_ms),
    ]
    if changed:
        found = (row.prefill_change, row.decode_change, row.ttft_change)
        shown += [_difference(one) if row.against else "" for one in found]
    return shown


def _difference(found: Change | None) -> str:
    if found is None:
        return MISSING
    text = change_text(found)
    if found.exceeds_noise is None:
        return f"{text} ({UNKNOWN})"
    return text if found.exceeds_noise else f"{text} ({NO_DIFFERENCE})"


def _concurrency(rows: Sequence[ConcurrencyRow]) -> Iterable[PlainTable]:
    """Yield one table a lane and link."""
    groups: dict[tuple[str, str | None], list[ConcurrencyRow]] = {}
    for row in rows:
        groups.setdefault((row.lane, row.link), []).append(row)
    for (lane, link), members in groups.items():
        yield PlainTable(
            title=f"Concurrency on {lane_text(lane, link)}",
            headings=(
                *("context", "N", "aggregate tok/s", "each", SCALE, "overlap", "elapsed s"),
                *(
                    "elapsed ratio",
                    "N ratio",
                    "throughput",
                    "KV pool",
                    "failed",
                    "preempted",
                    "waiting",
                ),
            ),
            rows=tuple(tuple(_level(row)) for row in members),
            notes=(
                *((OVERLAP_NOTE, SCALE_NOTE, RATIO_NOTE) if len(members) > 1 else ()),
                *fatal_notes(
                    (row.fatal, [_place(row)[0], f"N = {row.concurrency}"]) for row in members
                ),
            ),
            words=1,
        )


def _level(row: ConcurrencyRow) -> list[str]:
    rate = row.aggregate_tok_per_s
    constant = {True: "constant", False: "changed", None: MISSING}[row.throughput_constant]
    return [
        context_text(row.context_label, row.context_tok),
        marked(f"{row.concurrency}{_beyond(row)}", row.fatal),
        row.outcome if rate is None and row.outcome != "measured" else numbers.estimate_text(rate),
        numbers.number(row.per_stream_tok_per_s),
        numbers.ratio(row.scaling),
        numbers.fixed(row.overlap, 2),
        numbers.number(row.elapsed_s),
        numbers.ratio(row.elapsed_ratio, 3),
        numbers.ratio(row.concurrency_ratio, 3),
        constant,
        _pool(row),
        str(row.failures),
        MISSING if row.preemptions is None else str(row.preemptions),
        numbers.count(row.waiting_max),
    ]


def _beyond(row: ConcurrencyRow) -> str:
    """Return the mark of a row that asks for more than can run at once."""
    if row.over_kv:
        return " over-KV"
    return " over slots" if row.over_slots else ""


def _pool(row: ConcurrencyRow) -> str:
    if not row.kv_pool_tok or row.kv_demand_tok is None:
        return MISSING
    return f"{numbers.fixed(row.kv_demand_tok / row.kv_pool_tok, 2)} {TIMES}"


def _gain(rows: Sequence[GainRow]) -> PlainTable:
    return PlainTable(
        title="From one stream to saturation",
        headings=("context", "lane", "N = 1 tok/s", "peak tok/s", "at N", "gain", "97 % from N"),
        rows=tuple(
            (
                *_place(row),
                numbers.number(row.single_tok_per_s),
                numbers.number(row.peak_tok_per_s),
                str(row.peak_concurrency),
                f"{numbers.ratio(row.gain, 2)} "
                f"({numbers.percent(100 * (row.gain - 1), signed=True)})",
                str(row.saturation_concurrency) if row.saturated else "not reached",
            )
            for row in rows
        ),
        notes=("not reached: the largest N was still the fastest",)
        if any(not row.saturated for row in rows)
        else (),
        words=2,
    )


def _predicted(rows: Sequence[PredictedRow]) -> PlainTable:
    return PlainTable(
        title="Aggregate as prefill alone predicts it, and as measured",
        headings=("context", "lane", "predicted tok/s", "measured peak", "at N", "ratio", ""),
        rows=tuple(
            (
                *_place(row),
                numbers.number(row.predicted_tok_per_s),
                numbers.number(row.measured_tok_per_s),
                str(row.measured_concurrency),
                numbers.ratio(row.measured_to_predicted, 2),
                "" if row.long_context else "context too short for it",
            )
            for row in rows
        ),
        notes=(PREDICTED_NOTE,),
        words=2,
    )


def _max(rows: Sequence[MaxRow]) -> PlainTable:
    return PlainTable(
        title="How many at once",
        headings=("context", "lane", "KV pool holds", "measured clean", "pushed to", "trouble"),
        rows=tuple(
            (
                *_place(row),
                MISSING if row.kv_limit is None else f"{row.kv_limit:,}",
                MISSING if row.max_clean is None else str(row.max_clean),
                _pushed(row),
                ""
                if row.first_bad is None
                else f"{row.first_bad_outcome} at {row.first_bad}".replace("_", " "),
            )
            for row in rows
        ),
        words=2,
    )


def _pushed(row: MaxRow) -> str:
    if row.over_concurrency is None:
        return MISSING
    ratio = "" if row.over_ratio is None else f" ({numbers.ratio(row.over_ratio, 2)})"
    if row.over_outcome != "measured":
        return f"{row.over_concurrency}{ratio}: {inert(row.over_outcome)}".replace("_", " ")
    preempted = row.over_preemptions
    waits = "" if preempted is None else f", {preempted} preempted"
    return f"{row.over_concurrency}{ratio}: {row.over_failures} failed{waits}"


def flat_rows(rows: Sequence[msgspec.Struct]) -> tuple[list[str], list[list[Any]]]:
    """Return header and rows of one table with its numbers: estimates and changes in columns."""
    flat = [dict(_flattened(msgspec.to_builtins(row))) for row in rows]
    header = list(dict.fromkeys(name for row in flat for name in row))
    return header, [[row.get(name) for name in header] for row in flat]


def _flattened(row: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in row.items():
        if name.endswith("change"):
            known = value or {}
            yield f"{name}_pct", known.get("relative_pct")
            yield from ((f"{name}_{part}", known.get(part)) for part in _CHANGE_PARTS)
        elif name in _ESTIMATES:
            known = value if isinstance(value, Mapping) else {"point": value}
            spread = known.get("range") or (None, None)
            yield name, known.get("point")
            yield from ((f"{name}_{part}", known.get(part)) for part in ("low", "high", "n"))
            yield from zip((f"{name}_range_min", f"{name}_range_max"), spread, strict=True)
        else:
            yield name, "; ".join(map(str, value)) if isinstance(value, list) else value


_CHANGE_PARTS = ("low_pct", "high_pct", "exceeds_noise", "spreads_overlap", "basis")
_ESTIMATES = {
    field.name
    for struct in (SingleRow, ConcurrencyRow, AgainstRow)
    for field in msgspec.structs.fields(struct)
    if field.type in (Estimate, Estimate | None)
}

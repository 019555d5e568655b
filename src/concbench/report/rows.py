"""The table of one series: typed cells from the numbers of each level."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from concbench.domain import Doubt, Estimate, Summary
from concbench.report import numbers
from concbench.report.headline import fatal_codes, headline, like_for_like
from concbench.report.inert import inert
from concbench.report.view import FOOTNOTE_MARKS, Column, Quantity, Row, Table
from concbench.result import CellResult

MAXIMUM_SHOWN = "too few requests for this percentile: the largest value is shown"
NOT_TIMED = "not timed: no answer came"
NO_ROUND = "not measured: no round of this level counts"
NOT_STREAMED = "not timed: answers were not streamed"
BUFFERED = "not timed: the stream was buffered, so no token has a time of its own"
NO_AGREEMENT = "not comparable with the server: it counts nothing, or the counts do not balance"
RANGES = "fewer than 3 rounds: brackets hold the range from least to greatest, not an interval"
OPEN_AT_END = "not ended when the measurement did"
BATCH_SCALE = "scale from the batch figures, for want of a steady one"
Filled = tuple[Column, list[Quantity]]


def table_of(cells: Sequence[CellResult], doubts: Sequence[Doubt]) -> Table:
    """Return the table of a series, rows by level. Columns without any number are left out."""
    ordered = sorted(cells, key=level_of)
    filled = [
        *_throughput(ordered, doubts),
        *_per_request(ordered),
        *_latency(ordered, "ttft", "TTFT", lambda cell: cell.client.ttft_ms, doubts),
        *_latency(ordered, "e2e", "E2E", lambda cell: cell.client.e2e_ms, doubts),
        *_relations(ordered, doubts),
        *_served(ordered),
    ]
    columns = tuple(column for column, _ in filled)
    rows = tuple(
        Row(
            level_text(cell),
            level_of(cell),
            cell.cell,
            tuple(values[index] for _, values in filled),
            _codes(cell, doubts),
            fatal=bool(fatal_codes(cell, doubts)),
            suspect=_codes(cell, doubts, notes=False),
        )
        for index, cell in enumerate(ordered)
    )
    heading = "req/s" if any(cell.rate_rps is not None for cell in ordered) else "N"
    return Table(heading, columns, rows, _footnotes(rows))


def level_of(cell: CellResult) -> float:
    """Return the number that orders a series: the rate where there is one, else N."""
    return cell.concurrency if cell.rate_rps is None else cell.rate_rps


def level_text(cell: CellResult) -> str:
    """Return the level as the table's first column prints it."""
    return f"{cell.concurrency:,}" if cell.rate_rps is None else f"{cell.rate_rps:g}"


def _codes(cell: CellResult, doubts: Sequence[Doubt], *, notes: bool = True) -> tuple[str, ...]:
    """Return the codes of the doubts that name this cell, with or without mere notes."""
    found = [doubt for doubt in doubts if doubt.cell == cell.cell]
    return tuple(
        dict.fromkeys(inert(one.code, 60) for one in found if notes or one.severity != "note")
    )


def _footnotes(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Give each distinct note a mark, in order of appearance; the ranges' note has none."""
    notes = dict.fromkeys(cell.note for row in rows for cell in row.cells if cell.note)
    size = len(FOOTNOTE_MARKS)
    marked = [
        (FOOTNOTE_MARKS[index % size] * (index // size + 1), note)
        for index, note in enumerate(notes)
    ]
    if any(cell.is_range and cell.spread for row in rows for cell in row.cells):
        marked.append(("", RANGES))
    return tuple(marked)


def missing(unit: str, note: str | None = None) -> Quantity:
    """Return the cell for no number."""
    return Quantity(None, unit, numbers.MISSING, note=note)


def of_estimate(estimate: Estimate | None, unit: str, note: str | None = None) -> Quantity:
    """Return the cell of an estimate, with its interval or range."""
    if estimate is None:
        return missing(unit, note)
    return Quantity(
        estimate.point,
        unit,
        numbers.estimate_number(estimate),
        numbers.estimate_spread(estimate),
        numbers.spread_of(estimate),
        is_range=estimate.low is None and numbers.spread_of(estimate) is not None,
        note=note,
    )


def _throughput(cells: Sequence[CellResult], doubts: Sequence[Doubt]) -> list[Filled]:
    """Return the headline and the classic figure beside it."""
    heads = [headline(cell, doubts) for cell in cells]
    steady = [of_estimate(head.estimate, "tok/s", head.note) for head in heads]
    batch = [_point(cell.client.output_tok_per_s, "tok/s") for cell in cells]
    return [
        (Column("steady", "steady tok/s", "", "tok/s", "steady"), steady),
        (Column("batch", "batch tok/s", "(classic)", "tok/s", "batch"), batch),
    ]


def _point(estimate: Estimate | None, unit: str) -> Quantity:
    """Return an estimate's cell without its spread in print; the interval stays with it."""
    whole = of_estimate(estimate, unit)
    return Quantity(
        whole.number, unit, whole.text, interval=whole.interval, is_range=whole.is_range
    )


def _per_request(cells: Sequence[CellResult]) -> list[Filled]:
    """Return the speed of single requests: least, mean, greatest."""
    group = "per request tok/s"
    keys: list[tuple[str, Callable[[Summary], float | None]]] = [
        ("min", lambda summary: summary.min),
        ("mean", lambda summary: summary.mean),
        ("max", lambda summary: summary.max),
    ]
    return [
        (
            Column(f"per_request_{label}", group, label, "tok/s", "per_request"),
            [
                _speed(get(speed), speed.ci.get(label))
                for speed in (cell.client.per_request_tok_per_s for cell in cells)
            ],
        )
        for label, get in keys
    ]


def _speed(value: float | None, bounds: tuple[float, float] | None) -> Quantity:
    """Return the cell of a speed; the mean alone has an interval, over rounds."""
    if value is None or bounds is None:
        return _bare(value, "tok/s")
    width = (bounds[1] - bounds[0]) / 2
    spread = f"± {numbers.relative_width(100 * width / value)}" if value else ""
    return Quantity(value, "tok/s", numbers.number(value, width), spread, bounds)


def _bare(value: float | None, unit: str) -> Quantity:
    """Return the cell of a number that has no interval."""
    return missing(unit) if value is None else Quantity(value, unit, numbers.number(value))


def _latency(
    cells: Sequence[CellResult],
    key: str,
    name: str,
    get: Callable[[CellResult], Summary],
    doubts: Sequence[Doubt],
) -> list[Filled]:
    """Return p50 and p95 of a duration, all in one unit."""
    summaries = [get(cell) for cell in cells]
    shown = [value for summary in summaries for value in (summary.p50, summary.p95, summary.max)]
    unit = numbers.duration_unit(shown)
    return [
        (
            Column(f"{key}_{label}", f"{name} {unit}", label, unit, key),
            [
                percentile(summary, label, unit, _untimed(cell, doubts))
                for cell, summary in zip(cells, summaries, strict=True)
            ],
        )
        for label in ("p50", "p95")
    ]


def _untimed(cell: CellResult, doubts: Sequence[Doubt]) -> str | None:
    """Return why a cell may have no times; None where its outcome says it."""
    if cell.outcome != "measured":
        return None
    if not cell.rounds:
        return NO_ROUND
    if not cell.requests.ok:
        return NOT_TIMED
    buffered = any(d.cell == cell.cell and d.code == "buffered_stream" for d in doubts)
    return BUFFERED if buffered else NOT_STREAMED


def percentile(
    summary: Summary, label: str, unit: str, untimed: str | None = NOT_TIMED
) -> Quantity:
    """Return a percentile with its order-statistic interval; the maximum where n is too small."""
    value = {"p50": summary.p50, "p95": summary.p95}[label]
    note = None
    if value is None and summary.max is not None:
        value, note = summary.max, MAXIMUM_SHOWN
    if value is None:
        return missing(unit, untimed)
    bounds = summary.ci.get(label) if note is None else None
    interval = None
    if bounds is not None:
        interval = (numbers.in_unit(bounds[0], unit), numbers.in_unit(bounds[1], unit))
    in_unit = numbers.in_unit(value, unit)
    width = None if interval is None else (interval[1] - interval[0]) / 2
    return Quantity(in_unit, unit, numbers.number(in_unit, width), interval=interval, note=note)


def _relations(cells: Sequence[CellResult], doubts: Sequence[Doubt]) -> list[Filled]:
    """Return how levels relate to the first, to one another, and to the server's own count."""
    overlaps = [cell.overlap for cell in cells]
    filled = _scale(cells, doubts)
    if any(overlap is not None for overlap in overlaps):
        values = [_overlap(overlap) for overlap in overlaps]
        filled.append((Column("overlap", "overlap", "", "", "overlap"), values))
    agreement = [_agreement(cell) for cell in cells]
    filled.append((Column("agreement", "server", "agrees", "%", "agreement"), agreement))
    return filled


def _overlap(overlap: float | None) -> Quantity:
    """Return the cell of an overlap, a pure number."""
    return Quantity(overlap, "", numbers.fixed(overlap, 2))


def _agreement(cell: CellResult) -> Quantity:
    """Return how far the client's rate is from the server's, with its sign."""
    if cell.agreement_pct is None:
        return missing("%", NO_AGREEMENT if cell.outcome == "measured" and cell.rounds else None)
    return Quantity(cell.agreement_pct, "%", numbers.percent(cell.agreement_pct, signed=True))


def _scale(cells: Sequence[CellResult], doubts: Sequence[Doubt]) -> list[Filled]:
    """Return throughput against the smallest level that has one; none for an open loop.

    Nor for a single level: against itself it is 1 and says nothing.
    """
    if any(cell.rate_rps is not None for cell in cells):
        return []
    usable = [cell for cell in cells if cell.client.output_tok_per_s is not None]
    if len(usable) < 2:
        return []
    base = usable[0]
    label = "" if base.concurrency == 1 else f"vs N = {base.concurrency}"
    values = [_scale_of(base, cell, doubts) for cell in cells]
    return [(Column("scale", "scale", label, "×", "scale"), values)]


def _scale_of(base: CellResult, cell: CellResult, doubts: Sequence[Doubt]) -> Quantity:
    """Return one cell of scale: like against like, steady rates first, else batch rates."""
    if cell is base:
        return Quantity(1.0, "×", numbers.ratio(1.0))
    known = like_for_like(base, cell, doubts)
    if known is None:
        return missing("×")
    step, by_batch = known
    interval = (step.ratio * (1 - step.error), step.ratio * (1 + step.error))
    return Quantity(
        step.ratio,
        "×",
        numbers.ratio(step.ratio),
        interval=interval if step.error else None,
        note=BATCH_SCALE if by_batch else None,
    )


def _served(cells: Sequence[CellResult]) -> list[Filled]:
    """Return a column of served and sent requests where any was not served."""
    if all(cell.requests.ok == cell.requests.sent for cell in cells):
        return []
    values = [_served_of(cell) for cell in cells]
    return [(Column("served", "requests", "ok/sent", "requests", None), values)]


def _served_of(cell: CellResult) -> Quantity:
    """Return served and sent requests of a cell, with the kinds of error as its note."""
    requests = cell.requests
    kinds = [f"{inert(kind, 60)} × {times:,}" for kind, times in sorted(requests.errors.items())]
    said = [f"not served: {', '.join(kinds)}"] if kinds else []
    if requests.incomplete:
        # Cut off by the client's own end, which is no fault of the server.
        said.append(f"{requests.incomplete:,} {OPEN_AT_END}")
    note = "; ".join(said) or None
    text = f"{requests.ok:,}/{requests.sent:,}"
    return Quantity(float(requests.ok), "requests", text, note=note)

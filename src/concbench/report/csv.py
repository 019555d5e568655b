"""The result as CSV (RFC 4180): one row a cell, units in the headers, full precision.

Text that a spreadsheet would take for a formula is preceded by an apostrophe. CSV has no place
above its header, so that corrections and an interruption are the first columns of every row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence

from concbench.domain import Estimate, Summary
from concbench.report.inert import shown, without_credentials
from concbench.report.matrix import flat_rows, matrix_of
from concbench.result import CellResult, Result

Value = str | int | float | bool | None
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")

ESTIMATES: dict[str, Callable[[CellResult], Estimate | None]] = {
    "steady_output_tok_per_s": lambda cell: cell.client.steady_output_tok_per_s,
    "output_tok_per_s": lambda cell: cell.client.output_tok_per_s,
    "server_output_tok_per_s": lambda cell: cell.server.output_tok_per_s,
    "prefill_tok_per_s": lambda cell: cell.client.prefill_tok_per_s,
    "decode_tok_per_s": lambda cell: cell.client.decode_tok_per_s,
}
SUMMARIES: dict[str, Callable[[CellResult], Summary]] = {
    "per_request_tok_per_s": lambda cell: cell.client.per_request_tok_per_s,
    "ttft_ms": lambda cell: cell.client.ttft_ms,
    "ttft_from_due_ms": lambda cell: cell.client.ttft_from_due_ms,
    "ttfo_ms": lambda cell: cell.client.ttfo_ms,
    "icl_ms": lambda cell: cell.client.icl_ms,
    "itl_ms": lambda cell: cell.client.itl_ms,
    "tpot_ms": lambda cell: cell.client.tpot_ms,
    "e2e_ms": lambda cell: cell.client.e2e_ms,
    "e2e_from_due_ms": lambda cell: cell.client.e2e_from_due_ms,
    "send_delay_ms": lambda cell: cell.client.send_delay_ms,
    "read_lateness_ms": lambda cell: cell.instrument.read_lateness_ms,
}
SUMMARY_FIELDS = ("n", "mean", "min", "max", "p50", "p90", "p95", "p99")


FILE_ENCODING = "utf-8-sig"
"""Of files: without the mark spreadsheets take UTF-8 for the machine's own code page."""


def to_csv(result: Result) -> str:
    """Return the cells as CSV text with CRLF line ends. Unknown is empty."""
    placed = _placed(result)
    rows = [_row(result, cell) | placed(cell) for cell in result.cells]
    header = list(rows[0]) if rows else list(_front(result))
    return rows_to_csv(header, (row.values() for row in rows))


MATRIX_COLUMNS = (
    "scaling",
    "elapsed_s",
    "relative_to",
    "elapsed_ratio",
    "concurrency_ratio",
    "throughput_constant",
    "over_kv",
    "kv_demand_tok",
    "kv_pool_tok",
    "preemptions",
    "waiting_max",
    "queue_mean_ms",
)
"""What a cell's place in a matrix adds to its row."""


def _placed(result: Result) -> Callable[[CellResult], dict[str, Value]]:
    """Return what gives a cell's matrix columns; nothing where the result is no matrix."""
    found = matrix_of(result.payload)
    if found is None:
        return lambda cell: {}
    rows = {row.cell: row for row in found.concurrency}
    return lambda cell: {
        name: getattr(rows[cell.cell], name) if cell.cell in rows else None
        for name in MATRIX_COLUMNS
    }


def matrix_csv(result: Result) -> dict[str, str]:
    """Return the matrix's tables as CSV texts by name; none where the result is no matrix."""
    found = matrix_of(result.payload)
    if found is None:
        return {}
    return {name: rows_to_csv(*flat_rows(getattr(found, name))) for name in found.__struct_fields__}


def rows_to_csv(header: Sequence[str], rows: Iterable[Iterable[Value]]) -> str:
    """Return a table as CSV text; text cells cannot become formulas."""
    target = io.StringIO(newline="")
    writer = csv.writer(target, lineterminator="\r\n")
    writer.writerow([_safe(name) for name in header])
    writer.writerows([_safe(value) for value in row] for row in rows)
    return target.getvalue()


def _safe(value: Value) -> str:
    """Return one field's text; only text can start like a formula, numbers stay as they are."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    clean = shown(value.replace("\x00", ""))
    return f"'{clean}" if clean.lstrip(" ").startswith(FORMULA_STARTS) else clean


def _front(result: Result) -> dict[str, Value]:
    """Return the columns that are equal in every row."""
    said = [
        " ".join(f"{key}={_words(value)}" for key, value in entry.items() if value is not None)
        for entry in result.corrections
    ]
    return {
        "corrections": "; ".join(said),
        "interrupted": result.interrupted,
        "schema": result.schema,
        "tool_version": result.tool_version,
        "command": result.command,
        "study": result.study,
        "began_utc": result.began_utc,
    }


def _words(value: object) -> str:
    """Return one value of a correction: sentences that were taken back stand in quotes."""
    if isinstance(value, list | tuple):
        return " / ".join(f'"{each}"' for each in value) or "–"
    return str(value)


def _row(result: Result, cell: CellResult) -> dict[str, Value]:
    """Return one cell as a flat row."""
    row = _front(result) | _lane(result, cell) | _counts(cell)
    for name, estimate_of in ESTIMATES.items():
        row |= _estimate(name, estimate_of(cell))
    for name, summary_of in SUMMARIES.items():
        summary = summary_of(cell)
        row |= {f"{field}_{name}": getattr(summary, field) for field in SUMMARY_FIELDS}
    doubts = [doubt for doubt in result.doubts if doubt.cell in (None, cell.cell)]
    row |= {
        "steady_estimand": cell.steady.estimand,
        "steady_reason": cell.steady.reason,
        "agreement_pct": cell.agreement_pct,
        "overlap": cell.overlap,
        "stamp": cell.instrument.stamp,
        "min_rtt_ms": cell.instrument.min_rtt_ms,
        "ceiling_tok_per_s": cell.instrument.ceiling_tok_per_s,
        "fatal_doubts": " ".join(d.code for d in doubts if d.severity == "fatal"),
        "doubts": " ".join(dict.fromkeys(d.code for d in doubts)),
    }
    return row


def _lane(result: Result, cell: CellResult) -> dict[str, Value]:
    """Return what was measured: the lane's facts and the cell's place."""
    facts = result.targets.get(cell.lane)
    return {
        "lane": cell.lane,
        "engine": facts.engine if facts else None,
        "engine_version": facts.engine_version if facts else None,
        "base_url": without_credentials(facts.base_url) if facts else None,
        "model": facts.model if facts else None,
        "quantization": facts.quantization if facts else None,
        "kv_cache_dtype": facts.kv_cache_dtype if facts else None,
        "cell": cell.cell,
        "link": cell.link,
        "context_label": cell.context_label,
        "context_tok": cell.context_tok,
        "concurrency": cell.concurrency,
        "rate_rps": cell.rate_rps,
        "rounds": cell.rounds,
        "outcome": cell.outcome,
        "outcome_detail": cell.outcome_detail,
        "ended_by": cell.ended_by,
    }


def _counts(cell: CellResult) -> dict[str, Value]:
    """Return requests and tokens of a cell."""
    return {
        "requests_sent": cell.requests.sent,
        "requests_ok": cell.requests.ok,
        "requests_failed": cell.requests.failed,
        "requests_incomplete": cell.requests.incomplete,
        "prompt_tok": cell.tokens.prompt,
        "cached_tok": cell.tokens.cached,
        "output_tok": cell.tokens.output,
        "token_source": cell.tokens.source,
    }


def _estimate(name: str, estimate: Estimate | None) -> dict[str, Value]:
    """Return an estimate's columns: point, interval, range and number of rounds."""
    spread = estimate.range if estimate and estimate.range else (None, None)
    return {
        name: estimate.point if estimate else None,
        f"low_{name}": estimate.low if estimate else None,
        f"high_{name}": estimate.high if estimate else None,
        f"range_min_{name}": spread[0],
        f"range_max_{name}": spread[1],
        f"n_{name}": estimate.n if estimate else None,
    }

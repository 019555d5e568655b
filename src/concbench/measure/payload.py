"""What `rate` adds to a result: the rate that was really sent, and the objectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from concbench.analyse.capacity import failed_pct_of
from concbench.domain import Round, to_builtins
from concbench.plan.levels import Slo, parse_slo
from concbench.result import CellResult, Result


def rate_payload(result: Result, rounds: Iterable[Round], slo: str | None) -> dict[str, Any]:
    """Return `rate`, one entry a cell, and with objectives `slo`, `goodput_rps` and `good_pct`.

    The goodput is the cell's own (`analyse.goodput`), judged with the same objectives.
    """
    grouped: dict[str, list[Round]] = {}
    for each in rounds:
        grouped.setdefault(each.cell.cell, []).append(each)
    wanted = parse_slo(slo) if slo else []
    entries = []
    for cell in result.cells:
        entry = {"cell": cell.cell, "asked_rps": cell.rate_rps, **_sent(grouped.get(cell.cell, ()))}
        if wanted:
            entry |= _goodput(cell)
            entry["slo"] = objectives(cell, wanted)
        entries.append(entry)
    return {"rate": entries}


def objectives(cell: CellResult, slos: Sequence[Slo]) -> list[dict[str, Any]]:
    """Return each objective with the cell's value and whether it is met.

    A value that is not known meets nothing.
    """
    found = []
    for slo in slos:
        value = _value(cell, slo)
        met = value is not None and (value <= slo.limit if slo.at_most else value >= slo.limit)
        found.append({"slo": slo.key, "limit": slo.limit, "value": value, "met": met})
    return found


def _goodput(cell: CellResult) -> dict[str, Any]:
    found = cell.goodput or {"requests_per_s": None, "attainment_pct": None, "requests": 0}
    return {
        "goodput_rps": to_builtins(found["requests_per_s"]),
        "good_pct": found["attainment_pct"],
        "requests": found["requests"],
    }


def _value(cell: CellResult, slo: Slo) -> float | None:
    if slo.metric == "failed_pct":
        return failed_pct_of(cell)
    if slo.metric == "user_tok_per_s":
        slowest_ms = cell.client.tpot_ms.p95
        return 1e3 / slowest_ms if slowest_ms else None
    found: float | None = getattr(getattr(cell.client, slo.metric), slo.quantile or "p95")
    return found


def _sent(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return the scheduled and the sent rate in requests a second, and how many at once it took.

    Both are over the gaps between requests: (n − 1) ÷ (last − first).
    """
    due = [_rate([r.due_ns for r in each.requests]) for each in rounds]
    sent = [_rate([r.sent_ns for r in each.requests if r.sent_ns is not None]) for each in rounds]
    unsent = sum(r.sent_ns is None for each in rounds for r in each.requests)
    return {
        "due_rps": _mean(due),
        "sent_rps": _mean(sent),
        "unsent": unsent,
        "connections_max": max((len({r.worker for r in e.requests}) for e in rounds), default=0),
    }


def _rate(stamps_ns: Sequence[int]) -> float | None:
    if len(stamps_ns) < 2 or max(stamps_ns) == min(stamps_ns):
        return None
    return (len(stamps_ns) - 1) / (max(stamps_ns) - min(stamps_ns)) * 1e9


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

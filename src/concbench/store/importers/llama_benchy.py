"""llama-benchy: one cell a row of its table, each figure with the values of its repetitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from concbench.domain import TargetFacts
from concbench.store.importers import safe
from concbench.store.importers.model import Imported, ToldCell

TOOL = "llama-benchy"

_FIGURES = {
    "prefill_tok_per_s": "pp_throughput",
    "steady_output_tok_per_s": "tg_throughput",
    "per_request_tok_per_s": "tg_req_throughput",
    "ttft_ms": "e2e_ttft",
}

WHY = {
    "steady_output_tok_per_s": "theirs is generation alone, prefill left out, over a burst that is "
    "not refilled; the ragged end is in it",
    "prefill_tok_per_s": "theirs subtracts an estimated latency from the time to first response",
    "per_request_tok_per_s": "theirs leaves the wait for the first token out",
    "ttft_ms": "theirs is the time to the first response with content",
}


def is_benchy(value: object) -> bool:
    """Return whether a JSON value is a result of llama-benchy."""
    found = safe.mapping(value)
    rows = safe.sequence(found.get("benchmarks"))
    return "latency_mode" in found and bool(rows) and "tg_throughput" in safe.mapping(rows[0])


def read(value: Mapping[str, Any], lane: str, began_utc: str) -> Imported:
    """Return llama-benchy's table. It keeps no requests, so nothing is computed again."""
    del began_utc
    cells: list[ToldCell] = []
    remarks: list[str] = []
    for one in safe.sequence(value.get("benchmarks")):
        told = _cell(safe.mapping(one), lane)
        if any(each.cell == told.cell for each in cells):
            remarks.append(f"{told.cell} is there more than once: the first is used")
        else:
            cells.append(told)
    if value.get("prefix_caching_enabled") is True:
        remarks.append("prefix caching was on: prefill figures may be the cache's")
    return Imported(
        tool=TOOL,
        version=safe.text(value.get("version")),
        facts=[
            TargetFacts(
                lane=lane,
                engine="openai",
                base_url="imported",
                model=safe.text(value.get("model")),
            )
        ],
        cells=cells,
        why=dict(WHY),
        remarks=remarks,
    )


def _cell(row: Mapping[str, Any], lane: str) -> ToldCell:
    level = safe.whole(row.get("concurrency")) or 1
    depth = safe.whole(row.get("context_size")) or 0
    prompt = safe.whole(row.get("prompt_size")) or 0
    output = safe.whole(row.get("response_size")) or 0
    figures = {
        ours: safe.figure(
            values=safe.mapping(row.get(theirs)).get("values"),
            mean=safe.mapping(row.get(theirs)).get("mean"),
            std=safe.mapping(row.get(theirs)).get("std"),
        )
        for ours, theirs in _FIGURES.items()
    }
    runs = max((len(told.get("values", ())) for told in figures.values()), default=0) or 1
    warm = ".prefill" if row.get("is_context_prefill_phase") is True else ""
    return ToldCell(
        cell=f"{lane}.{depth + prompt}.c{level}{warm}",
        lane=lane,
        concurrency=level,
        context_tok=depth + prompt,
        context_label=f"pp{prompt} @ d{depth}{warm}",
        sent=level * runs,
        ok=level * runs,
        output_tok=output * level * runs,
        figures=safe.without_empty(figures),
    )

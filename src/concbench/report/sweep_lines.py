"""What a sweep tells beyond its cells, a line each: over the pool, controls, ceilings, failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def sweep_lines(payload: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines: cells beyond the pool, controls, ceilings, failures."""
    for entry in payload["cells"]:
        if (entry["over_kv"] or entry["capped"]) and entry["elapsed_s"] is not None:
            yield _over_line(entry)
    for entry in payload["controls"]:
        yield (
            f"control {entry['cell']}: {entry['elapsed_s']:.3f} s before, "
            f"{entry['control_elapsed_s']:.3f} s at the end ({entry['drift_pct']:+.1f} % speed)"
        )
    for entry in payload["ceilings"]:
        yield _ceiling_line(entry)
    for entry in payload["failures"]:
        if entry["outcome"] != "skipped":
            yield f"failed  {entry['cell']}: {entry['outcome']}: {entry['why']}"


def _over_line(entry: Mapping[str, Any]) -> str:
    pool = "unknown" if entry["pool_tok"] is None else f"{entry['pool_tok']:,}"
    mark = "over-KV" if entry["over_kv"] else f"over the {entry['cap']} that run at once"
    told = [f"{entry['failures']} failures"]
    if entry["preemptions"] is not None:
        told.append(f"{entry['preemptions']} preemptions")
    if entry["waiting_max"] is not None:
        told.append(f"{entry['waiting_max']:.0f} waiting at most")
    against = entry["against"]
    if against is not None and against["elapsed_ratio"] is not None:
        told.append(
            f"elapsed {against['elapsed_ratio']:.3f} × beside concurrency "
            f"{against['concurrency_ratio']:.3f} ×"
        )
        if against["throughput_ratio"] is not None:
            word = "constant" if against["constant"] else "not constant"
            told.append(f"throughput {against['throughput_ratio']:.3f} ×, {word}")
    shown = f"{entry['demand_tok']:,} of {pool} tokens"
    return f"beyond  {entry['cell']}: {mark}, {shown}: {', '.join(told)}"


def _ceiling_line(entry: Mapping[str, Any]) -> str:
    where = f" over {entry['link']}" if entry["link"] else ""
    accepted, rejected = entry["accepted_tok"], entry["rejected_tok"]
    if accepted is None:
        found = f"nothing was accepted, {rejected:,} tokens and less were refused"
    elif rejected is None:
        found = f"at least {accepted:,} tokens, no longer one was tried"
    else:
        found = f"{accepted:,} tokens accepted, {rejected:,} rejected"
    declared = entry["declared_tok"]
    told = "" if declared is None else f" (the engine says {declared:,})"
    head = f"ceiling {entry['variant']}{where}"
    return f"{head}: {found}{told}, with {entry['output_tok']} output tokens"

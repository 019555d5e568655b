"""What stands beside the table: the server's own view, the machine, silences, rates, objectives.

One line each, for every format. What is not known is left out of a line, and a line that would say
nothing is left out altogether.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from concbench.report.inert import inert
from concbench.report.numbers import fixed, percent
from concbench.report.sweep_lines import sweep_lines
from concbench.result import CellResult, Result, Server

GIB = 1 << 30
MOST_CELLS = 16
SEPARATOR = " · "


def beside_lines(result: Result, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines; `labels` are how cells are called, by their id."""
    busiest = max(result.cells, key=_foreign_cores, default=None)
    # A matrix has tables of its own, and too many cells for a line each.
    told = result.cells if len(result.cells) <= MOST_CELLS else [busiest]
    lines = [
        line
        for cell in told
        if cell is not None
        for line in _of_cell(cell, labels, machine=cell is busiest)
    ]
    payload = result.payload if isinstance(result.payload, Mapping) else {}
    for entry in payload.get("idle") or ():
        lines.append(_idle(entry, labels))
    for entry in payload.get("rate") or ():
        lines += _rate(entry, labels)
    for crash in (payload.get("ab") or {}).get("crashes", ()):
        lines.append(f"crash  {crash['cell']}: {crash['why']}")
    if payload.get("sweep"):
        lines += sweep_lines(payload["sweep"])
    return tuple(inert(line, 400) for line in lines)


def _foreign_cores(cell: CellResult) -> float:
    return (cell.host or {}).get("cpu_foreign_cores") or 0.0


def _of_cell(cell: CellResult, labels: Mapping[str, str], *, machine: bool) -> Iterator[str]:
    """The machine is told of once, where others used it most: all cells have it in the JSON."""
    name = labels.get(cell.cell, cell.cell)
    host = cell.host if machine else None
    for title, parts in (
        ("server", _server(cell.server)),
        ("queue", _saturation(cell.saturation)),
        ("machine", _machine(host)),
        *(("gpu", _gpu(entry)) for entry in (host or {}).get("gpus", ())),
    ):
        if parts:
            yield f"{title}  {name}: {SEPARATOR.join(parts)}"


def _server(server: Server) -> list[str]:
    """Effective concurrency, queueing, preemptions, KV use, acceptance, what reading it cost."""
    parts = []
    if server.running_mean is not None:
        most = "" if server.running_max is None else f" ({fixed(server.running_max, 0)} at most)"
        parts.append(f"ran {fixed(server.running_mean, 1)} at once{most}")
    if server.waiting_max is not None:
        parts.append(f"{fixed(server.waiting_max, 0)} waiting at most")
    mean_ms = (server.queue_ms or {}).get("mean")
    if mean_ms is not None:
        parts.append(f"queued {fixed(mean_ms, 1)} ms on average")
    if server.preemptions is not None:
        parts.append(f"{server.preemptions} preempted")
    if server.kv_usage_max is not None:
        parts.append(f"KV cache {percent(100 * server.kv_usage_max)} at most")
    if server.cached_tok is not None:
        parts.append(f"{server.cached_tok:,} prompt tokens from the cache")
    if server.acceptance:
        parts.append(_acceptance(server.acceptance))
    if server.scrape_ms:
        parts.append(f"{server.scrape_ms['n']} readings of {fixed(server.scrape_ms['mean'], 1)} ms")
    return parts


def _acceptance(found: Mapping[str, Any]) -> str:
    text = f"{fixed(found['mean_len'], 2)} tokens a step"
    if found.get("tokens_per_step") is not None:
        # Steps that draft nothing yield one token: then a draft's yield is not a step's.
        text = f"{fixed(found['tokens_per_step'], 2)} tokens a step"
        text += f", {fixed(found['mean_len'], 2)} a draft"
    if found.get("rate") is not None:
        text += f", {percent(100 * found['rate'])} of drafts accepted"
    places = found.get("per_position")
    if places:
        text += f" (by place {', '.join(percent(100 * share) for share in places)})"
    return f"{text}, on {found.get('content', 'this content')} only: {found.get('note', '')}"


def _signed(value: float) -> str:
    """Return a slope with its sign, none for what rounds to zero."""
    text = fixed(value, 3)
    return f"+{text}" if round(value, 3) > 0 else text


def _saturation(found: Mapping[str, Any] | None) -> list[str]:
    """The state of an open loop with its queue's slope, and asked against sent rates."""
    if not found:
        return []
    parts = [
        str(found["state"]),
        f"in flight {_signed(found['queue_slope_per_s'])} a second",
        f"{percent(100 * found['completions_per_arrival'])} of arrivals ended",
    ]
    names = (("asked_rps", "asked"), ("scheduled_rps", "drawn"), ("sent_rps", "sent"))
    rates = [f"{word} {found[key]:.3f}" for key, word in names if found.get(key) is not None]
    return [*parts, ", ".join(rates) + " requests/s"] if rates else parts


def _machine(host: Mapping[str, Any] | None) -> list[str]:
    if not host:
        return []
    parts = []
    busy, cores, others = host["cpu_busy_cores"], host["cpu_cores"], host["cpu_foreign_cores"]
    if busy is not None and cores is not None:
        by = "" if others is None else f", {others:.2f} by other processes"
        parts.append(f"{busy:.2f} of {cores:.0f} cores busy{by}")
    groups = host.get("cpu_group_cores") or {}
    if groups:
        parts.append(", ".join(f"{name} {used:.2f}" for name, used in groups.items()) + " cores")
    if host["memory_available_min_bytes"] is not None:
        parts.append(f"{host['memory_available_min_bytes'] / GIB:.1f} GiB free at least")
    if host["page_cache_bytes"] is not None:
        parts.append(f"page cache {host['page_cache_bytes'] / GIB:.1f} GiB")
    if host["swap_used_max_bytes"] is not None:
        moved = host["swapped_bytes"] or 0.0
        parts.append(f"swap {host['swap_used_max_bytes'] / GIB:.1f} GiB, {moved / GIB:.2f} moved")
    if host["cpu_clock_mhz"] is not None:
        parts.append(f"{host['cpu_clock_mhz']:.0f} MHz")
    return parts


def _gpu(entry: Mapping[str, Any]) -> list[str]:
    units = (
        ("clock_mhz", "{:.0f} MHz"),
        ("memory_clock_mhz", "memory {:.0f} MHz"),
        ("power_w", "{:.0f} W"),
        ("temperature_c", "{:.0f} °C at most"),
    )
    parts = [f"GPU {entry['gpu']}"]
    if entry["util"] is not None:
        parts.append(f"{percent(100 * entry['util'])} busy")
    parts += [form.format(entry[key]) for key, form in units if entry[key] is not None]
    if entry["memory_used_bytes"] is not None:
        parts.append(f"{entry['memory_used_bytes'] / GIB:.1f} GiB used at most")
    return parts


def _idle(entry: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    name = labels.get(entry["cell"], entry["cell"])
    return (
        f"idle  {name}: first request after {entry['idle_s']:.1f} s of silence: TTFT "
        f"{_ms(entry['ttft_ms'])} (warm {_ms(entry['warm_ttft_ms'])}), E2E "
        f"{_ms(entry['e2e_ms'])} (warm {_ms(entry['warm_e2e_ms'])})"
    )


def _rate(entry: Mapping[str, Any], labels: Mapping[str, str]) -> Sequence[str]:
    """Asked against sent, the goodput, and each objective."""
    name = labels.get(entry["cell"], entry["cell"])
    due, sent, good = entry.get("due_rps"), entry.get("sent_rps"), entry.get("goodput_rps")
    lines = []
    if due is not None and sent is not None:
        unsent = f", {entry['unsent']} never sent" if entry.get("unsent") else ""
        lines.append(
            f"rate  {name}: scheduled {due:.3f} requests/s, sent {sent:.3f}{unsent}; "
            f"{entry.get('connections_max', 0)} connections at most"
        )
    if good is not None:
        lines.append(
            f"goodput  {name}: {good['point']:.3f} requests/s met every objective "
            f"({entry['good_pct']:.1f} % of requests)"
        )
    for slo in entry.get("slo") or ():
        value = "unknown" if slo["value"] is None else f"{slo['value']:.4g}"
        met = "met" if slo["met"] else "not known" if slo["value"] is None else "not met"
        lines.append(f"objective  {name}: {slo['slo']} {value}, limit {slo['limit']:g}: {met}")
    return lines


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} ms"

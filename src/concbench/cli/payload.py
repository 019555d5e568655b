"""What a command measured beside its cells, in lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from concbench.cli.sweep_result import sweep_lines


def payload_lines(payload: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield a line for each silence, rate, objective and crash in a result's payload."""
    for entry in (payload or {}).get("idle", ()):
        yield (
            f"idle    first request after {entry['idle_s']:.1f} s of silence: TTFT "
            f"{_ms(entry['ttft_ms'])} (warm {_ms(entry['warm_ttft_ms'])}), E2E "
            f"{_ms(entry['e2e_ms'])} (warm {_ms(entry['warm_e2e_ms'])})"
        )
    for crash in ((payload or {}).get("ab") or {}).get("crashes", ()):
        yield f"crash   {crash['cell']}: {crash['why']}"
    for entry in (payload or {}).get("rate", ()):
        yield from _rate_lines(entry)
    if "sweep" in (payload or {}):
        yield from sweep_lines((payload or {})["sweep"])


def _rate_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    due, sent = entry["due_rps"], entry["sent_rps"]
    if due is not None and sent is not None:
        unsent = f", {entry['unsent']} never sent" if entry["unsent"] else ""
        yield (
            f"rate    asked {due:.3f} req/s, sent {sent:.3f} req/s{unsent}; "
            f"{entry['connections_max']} connections at most"
        )
    good = entry.get("goodput_rps")
    if good is not None:
        share = entry["good_pct"]
        yield f"goodput {good['point']:.3f} req/s met every objective ({share:.1f} % of requests)"
    for slo in entry.get("slo", ()):
        value = "unknown" if slo["value"] is None else f"{slo['value']:.4g}"
        yield f"slo     {slo['slo']}: {value}, limit {slo['limit']:g}: {_verdict(slo['met'])}"


def _verdict(met: object) -> str:
    return "met" if met else "not met"


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} ms"

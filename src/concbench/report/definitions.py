"""What each figure means: printed by `concbench report --definitions`, shown on hover, in the docs.

Tools use the same words for different things, so no figure is shown without its definition.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Definition:
    """`formula` uses the words of the text; `unit` is empty for pure numbers."""

    name: str
    unit: str
    text: str
    formula: str


def _latency() -> dict[str, Definition]:
    """Return the definitions of what one request feels like."""
    return {
        "ttft": Definition(
            "TTFT",
            "ms",
            "Time to first token: from the first byte of the request on the wire to the first "
            "event that carries content, reasoning or a tool call. Openers without text, pings "
            "and usage events do not count.",
            "first token event − sent",
        ),
        "ttft_from_due": Definition(
            "TTFT from due",
            "ms",
            "The same, counted from the moment the schedule wanted the request sent, so that a "
            "late client cannot hide a wait.",
            "first token event − due",
        ),
        "ttfo": Definition(
            "TTFO",
            "ms",
            "Time to first output: the first token that the user sees, which is not reasoning.",
            "first non-reasoning token event − sent",
        ),
        "icl": Definition(
            "ICL",
            "ms",
            "Inter-chunk latency: the gap between one token event and the next of a stream, "
            "however many tokens they carry.",
            "token event k − token event k−1",
        ),
        "itl": Definition(
            "ITL",
            "ms",
            "Inter-token latency: that gap shared out over the tokens of the later event. Its "
            "percentiles are estimates where an event carries several tokens.",
            "gap ÷ tokens of the later event",
        ),
        "tpot": Definition(
            "TPOT",
            "ms",
            "Time per output token after the first event, averaged over one request. Not defined "
            "for a single event; answers under 16 tokens are left out.",
            "(last − first token event) ÷ (output tokens − tokens of the first event)",
        ),
        "e2e": Definition(
            "E2E",
            "ms or s",
            "The whole request as the user waits for it: from its first byte sent to its last "
            "token.",
            "last token event − sent",
        ),
        "send_delay": Definition(
            "send delay",
            "ms",
            "How much later than scheduled the client sent a request: the client's own fault, "
            "kept apart from the server's queue.",
            "sent − due",
        ),
        "per_request": Definition(
            "per-request tok/s",
            "tok/s",
            "The speed one user sees, waiting for the first token included. Answers under 16 "
            "tokens are left out.",
            "output tokens ÷ (last token event − sent)",
        ),
    }


def _throughput() -> dict[str, Definition]:
    """Return the definitions of what the server delivers to all together."""
    return {
        "steady": Definition(
            "steady tok/s",
            "tok/s",
            "The headline: tokens that arrived while the load was in its steady state. In a "
            "burst that is while all N streams were generating; in a closed loop from every "
            "worker's first finish to the last issue. The window never looks at the rate itself.",
            "tokens stamped inside the window ÷ length of the window",
        ),
        "batch": Definition(
            "batch tok/s (classic)",
            "tok/s",
            "What most scripts print: everything divided by the wall time, ramp-up and the tail "
            "of stragglers included. Shown for comparison; it moves by tens of percent between "
            "equal runs.",
            "output tokens of completed requests ÷ (last end − first sent)",
        ),
        "prefill": Definition(
            "prefill tok/s",
            "tok/s",
            "How fast a prompt is read, at concurrency 1: the slope of TTFT between two prompt "
            "lengths, over tokens that no cache answered. Not given below about 256 tokens.",
            "Δ uncached prompt tokens ÷ Δ TTFT",
        ),
        "decode": Definition(
            "decode tok/s",
            "tok/s",
            "How fast one stream alone generates.",
            "1 ÷ TPOT at concurrency 1",
        ),
        "scale": Definition(
            "scale",
            "×",
            "Throughput against that of one request at a time, or against the smallest level "
            "measured, which is then named.",
            "tok/s at N ÷ tok/s at 1",
        ),
        "overlap": Definition(
            "overlap",
            "",
            "How far requests really ran at the same time: 1 is fully parallel, 0 no gain from "
            "concurrency (one after another, or saturated), below 0 worse than one after another.",
            "(N · T₁ ÷ T_N − 1) ÷ (N − 1), T the wall time of one and of N requests",
        ),
        "acceptance": Definition(
            "acceptance",
            "tokens",
            "Mean length accepted per step of speculative decoding, from the server's counters.",
            "1 + accepted ÷ drafts",
        ),
        "goodput": Definition(
            "goodput",
            "requests/s",
            "Requests a second that met every objective that was set.",
            "requests within all objectives ÷ time",
        ),
        "agreement": Definition(
            "server agrees",
            "%",
            "How far our rate is from the server's own count over the same window. Only given "
            "where asked, received and generated tokens balance.",
            "100 · (client − server) ÷ server",
        ),
    }


def _pictures() -> dict[str, Definition]:
    """Return the definitions of what is drawn and is no single figure."""
    return {
        "timeline": Definition(
            "one round over time",
            "s",
            "Each request of the cell's last round as a bar, from sent to its last token. The "
            "client cannot see when a server begins to read a prompt: as long as one request "
            "alone takes to its first token counts as prefill, the rest of the wait as waiting, "
            "which includes a prefill that was shared with others.",
            "prefill = min(TTFT, TTFT p50 at N = 1); waiting = TTFT − prefill",
        ),
        "kv_queue": Definition(
            "KV cache and queue",
            "%, requests",
            "The server's own gauges at their peak. Beyond the pool requests queue: then the time "
            "a round takes grows as N does, and throughput stays.",
            "pool holds ⌊KV tokens ÷ (context + output tokens)⌋ requests",
        ),
        "ratio": Definition(
            "B ÷ A",
            "×",
            "The figure of B against that of A over pairs that were measured one after the other, "
            "with the interval over pairs.",
            "exp(mean of ln(B ÷ A) over pairs)",
        ),
    }


def _instrument() -> dict[str, Definition]:
    """Return the definitions of the client's own error and of how figures are summed up."""
    return {
        "read_lateness": Definition(
            "reads late by",
            "ms",
            "How long bytes lay in the kernel before the client noticed: its own stamp against "
            "the kernel's. Times use the kernel's stamp where there is one.",
            "our stamp − kernel's stamp",
        ),
        "late_after_stamp": Definition(
            "late after stamp",
            "ms",
            "The error that remains once the kernel's stamps are used: reads that arrived "
            "together, and reads without a stamp.",
            "remaining lateness of reads",
        ),
        "loop_lag": Definition(
            "loop lag",
            "ms",
            "How much later than planned the client's event loop woke up.",
            "woken − planned",
        ),
        "ceiling": Definition(
            "ceiling",
            "tok/s",
            "The rate at which this client saturates on this machine, against a server that does "
            "nothing. Above 80 % of it the result is called client-bound.",
            "calibrated tok/s",
        ),
        "min_rtt": Definition(
            "min RTT",
            "ms",
            "The shortest round trip of the connection as the kernel saw it. Stated, never "
            "subtracted.",
            "minimum of TCP's round-trip time",
        ),
        "interval": Definition(
            "± and [ , ]",
            "%",
            "95 % interval over rounds, the unit of replication; never over tokens or requests. "
            "With fewer than 3 rounds the range from least to greatest is shown instead.",
            "mean ± t(0.975, k−1) · s ÷ √k over k rounds",
        ),
        "percentile": Definition(
            "p50, p90, p95, p99",
            "",
            "Nearest rank over the requests of all rounds, given from 2, 10, 20 and 100 requests "
            "on. With fewer the greatest value is shown and marked; nothing is extrapolated.",
            "the ⌈p · n⌉-th smallest value",
        ),
    }


DEFINITIONS: dict[str, Definition] = {
    **_latency(),
    **_throughput(),
    **_pictures(),
    **_instrument(),
}
"""Every definition by its key, in the order in which they are read."""


def hover_text(key: str | None) -> str:
    """Return a definition in one line for a tooltip; empty for no key."""
    definition = DEFINITIONS.get(key or "")
    return "" if definition is None else f"{definition.text} = {definition.formula}"


def render_definitions(console: Console) -> None:
    """Print every definition to the console."""
    for definition in DEFINITIONS.values():
        unit = f"  ({definition.unit})" if definition.unit else ""
        console.print(Text(definition.name, style="bold").append(unit, style="not bold"))
        console.print(Padding(Text(definition.text), (0, 0, 0, 2), expand=False))
        console.print(
            Padding(Text(f"= {definition.formula}", style="dim"), (0, 0, 1, 2), expand=False)
        )

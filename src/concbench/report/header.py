"""The lines above a table: what was measured, and with what instrument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from concbench.domain import Summary, TargetFacts
from concbench.report import numbers
from concbench.report.inert import inert, without_credentials, without_secrets
from concbench.report.rows import level_text
from concbench.report.view import FactView, PanelRow
from concbench.result import CellResult, Instrument

ENGINE_LABELS = {
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llama-swap": "llama-swap",
    "ollama": "Ollama",
    "trtllm": "TensorRT-LLM",
    "tgi": "TGI",
    "lmstudio": "LM Studio",
    "openai": "OpenAI-compatible server",
}
COMMAND_LIMIT = 4_000
UNKNOWN = "unknown"
PANEL_HEADINGS = (
    ("stamps", None),
    ("stamped", None),
    ("reads late p50 ms", "read_lateness"),
    ("p99 ms", "read_lateness"),
    ("late after stamp p99 ms", "late_after_stamp"),
    ("loop lag p99 ms", "loop_lag"),
    ("min RTT ms", "min_rtt"),
    ("client CPU s/s", None),
    ("ceiling tok/s", "ceiling"),
    ("of ceiling", "ceiling"),
)
"""Headings of the instrument panel with the key of their definition."""


def engine_line(facts: TargetFacts | None, cells: Sequence[CellResult]) -> tuple[str, ...]:
    """Return the parts of the line on the engine; what is not known is left out, not guessed."""
    if facts is None:
        return ()
    label = ENGINE_LABELS.get(facts.engine, inert(facts.engine, 40))
    parts = [
        f"{label} {inert(facts.engine_version, 40)}" if facts.engine_version else label,
        _model(facts),
        f"KV {inert(facts.kv_cache_dtype, 30)}" if facts.kv_cache_dtype else "",
        f"{facts.slots:,} running at most" if facts.slots is not None else "",
        f"{facts.max_context_tok:,} context" if facts.max_context_tok is not None else "",
        _prefix_cache(facts, cells),
        f"speculation {inert(facts.speculation, 40)}" if facts.speculation else "",
        "eager (no graphs)" if facts.eager else "",
        _origin(facts),
    ]
    return tuple(part for part in parts if part)


def _model(facts: TargetFacts) -> str:
    """Return the model's name with its quantisation, unless the name says it already."""
    name = inert(facts.model, 80) if facts.model else ""
    kind = inert(facts.quantization, 30) if facts.quantization else ""
    return name if kind.lower() in name.lower() else f"{name} {kind}".strip()


def _prefix_cache(facts: TargetFacts, cells: Sequence[CellResult]) -> str:
    """Return whether prompts are cached, and how much of them the cache answered."""
    hit = cached_percent(cells)
    if facts.prefix_caching is None and hit is None:
        return ""
    state = {None: "", True: " on", False: " off"}[facts.prefix_caching]
    return f"prefix cache{state}" + ("" if hit is None else f" ({numbers.percent(hit)} hit)")


def cached_percent(cells: Iterable[CellResult]) -> float | None:
    """Return the share of prompt tokens that a cache answered, None where nobody counted."""
    counted = [
        (cell.tokens.cached, cell.tokens.prompt)
        for cell in cells
        if cell.tokens.cached is not None and cell.tokens.prompt
    ]
    total = sum(prompt for _, prompt in counted if prompt)
    return 100 * sum(cached for cached, _ in counted if cached) / total if total else None


def _origin(facts: TargetFacts) -> str:
    """Return how the engine came to run."""
    if facts.lane == "embedded":
        return "embedded"
    if facts.container:
        return "in a container"
    return "started here" if facts.launch else "attached"


def instrument_line(cells: Sequence[CellResult]) -> tuple[str, ...]:
    """Return the parts of the line on the client's own error: the worst of the cells."""
    # A level without a round has no stamps: it must not pass for one of user stamps.
    instruments = [c.instrument for c in cells if c.outcome == "measured" and c.rounds]
    if not instruments:
        return ()
    stamps = {instrument.stamp for instrument in instruments}
    kind = stamps.pop() if len(stamps) == 1 else "kernel and user"
    parts = [f"{inert(kind, 20)} stamps", _lateness(instruments)]
    ceiling = _worst(min, (instrument.ceiling_tok_per_s for instrument in instruments))
    rtt = _worst(max, (instrument.min_rtt_ms for instrument in instruments))
    parts.append("" if ceiling is None else f"ceiling {numbers.number(ceiling)} tok/s")
    parts.append("" if rtt is None else f"min RTT {milliseconds(rtt)} ms")
    return tuple(part for part in parts if part)


def _lateness(instruments: Sequence[Instrument]) -> str:
    """Return how late reads were in the worst cell; its p99, or the maximum where n is small."""
    middle = _worst(max, (instrument.read_lateness_ms.p50 for instrument in instruments))
    if middle is None:
        return "read lateness not known"
    tail = _worst(max, (instrument.read_lateness_ms.p99 for instrument in instruments))
    name = "p99"
    if tail is None:
        tail = _worst(max, (instrument.read_lateness_ms.max for instrument in instruments))
        name = "max"
    return f"reads late by {milliseconds(middle)} ms ({name} {milliseconds(tail)})"


def _worst(choose: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    """Return the chosen one of the known values, None for none."""
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def milliseconds(value: float | None) -> str:
    """Return a small duration to a hundredth of a millisecond, the stamps' own worth."""
    return numbers.fixed(value, 2 if value is not None and abs(value) < 10 else 1)


def _tail(summary: Summary) -> str:
    """Return the p99, or the maximum where n is too small for it."""
    if summary.p99 is None and summary.max is not None:
        return f"{milliseconds(summary.max)} (max)"
    return milliseconds(summary.p99)


def panel_row(cell: CellResult) -> PanelRow:
    """Return the client's own error in one cell."""
    own = cell.instrument
    batch = cell.client.output_tok_per_s
    used = None
    if batch is not None and own.ceiling_tok_per_s:
        used = 100 * batch.point / own.ceiling_tok_per_s
    return PanelRow(
        level_text(cell),
        (
            inert(own.stamp, 20),
            numbers.percent(own.stamped_pct),
            milliseconds(own.read_lateness_ms.p50),
            _tail(own.read_lateness_ms),
            _tail(own.late_after_stamp_ms),
            _tail(own.loop_lag_ms),
            milliseconds(own.min_rtt_ms),
            numbers.fixed(own.client_cpu, 2),
            numbers.number(own.ceiling_tok_per_s),
            numbers.percent(used),
        ),
    )


def lane_facts(facts: TargetFacts | None) -> tuple[FactView, ...]:
    """Return every fact of a lane, unknown ones named as such, each with its source."""
    if facts is None:
        return ()
    yes_no = {None: UNKNOWN, True: "on", False: "off"}
    texts: list[tuple[str, str, str]] = [
        ("engine", "engine", ENGINE_LABELS.get(facts.engine, inert(facts.engine, 40))),
        ("version", "engine_version", _known(facts.engine_version)),
        ("address", "base_url", inert(without_credentials(facts.base_url), 200)),
        ("model", "model", _known(facts.model)),
        ("quantization", "quantization", _known(facts.quantization)),
        ("KV cache type", "kv_cache_dtype", _known(facts.kv_cache_dtype)),
        ("context, tokens", "max_context_tok", _count(facts.max_context_tok)),
        ("running at most", "slots", _count(facts.slots)),
        ("KV capacity, tokens", "kv_capacity_tok", _count(facts.kv_capacity_tok)),
        ("memory, bytes", "memory_bytes", _count(facts.memory_bytes)),
        ("speculation", "speculation", _known(facts.speculation)),
        ("prefix caching", "prefix_caching", yes_no[facts.prefix_caching]),
        ("eager (no graphs)", "eager", yes_no[facts.eager]),
        ("cold start, s", "cold_start_s", _seconds(facts.cold_start_s)),
        ("first request, s", "first_request_s", _seconds(facts.first_request_s)),
        ("launched with", "launch", launch_text(facts)),
    ]
    return tuple(
        FactView(name, text, inert(facts.facts_from.get(key, ""), 60)) for name, key, text in texts
    )


def _known(value: str | None) -> str:
    """Return a text fact, or that it is not known."""
    return UNKNOWN if value is None else inert(value)


def _count(value: int | None) -> str:
    """Return a whole number, or that it is not known."""
    return UNKNOWN if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    """Return seconds, or that they are not known."""
    return UNKNOWN if value is None else numbers.number(value)


def launch_text(facts: TargetFacts) -> str:
    """Return the engine's command line without keys, or that it was not started by us."""
    if not facts.launch:
        return "not started by this tool"
    return inert(" ".join(without_secrets(facts.launch)), COMMAND_LIMIT)

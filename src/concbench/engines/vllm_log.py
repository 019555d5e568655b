"""vLLM's log lines, V0 (0.6) to V1 (0.33): windows, speculation, iterations, start-up.

A window line is read as key and value parts, since parts come and go between versions. vLLM's own
`Preemptions:` part never prints a true count (the count is cleared before it is written), so it is
not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from concbench.engines.reading import (
    GIB,
    bytes_of,
    clean,
    number,
    positive,
    python_value,
    told,
    whole,
)
from concbench.engines.spec import LogRecord

_N = r"(-?\d+(?:,\d{3})*(?:\.\d+)?)"
_PREFIX = re.compile(r"\(([\w-]+)(?: rank=(\d+))? pid=\d+\)")
_ENGINE = re.compile(r"Engine (\d+): |\b(\d{1,6}) Engines Aggregated: ")
_AMOUNT = re.compile(rf"{_N}(%?)")
_FETCH = re.compile(r"KV fetch: (\d+) waiting to start, (\d+) in progress, (\d+) completed waiting")
_POSITIONS = re.compile(r"Per-position acceptance rate: ([\d.]+(?:, [\d.]+)*)")
_ITERATION = re.compile(
    rf"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, "
    rf"(\d+) generation requests, (\d+) generation tokens, iteration elapsed time: {_N} ms"
)
_V0_HIT_RATE = re.compile(rf"Prefix cache hit rate: GPU: {_N}%, CPU: {_N}%")
_V0_SPEC = re.compile(
    rf"Speculative metrics: Draft acceptance rate: {_N}, System efficiency: {_N}, "
    r"Number of speculative tokens: (\d+), Number of accepted tokens: (\d+), "
    r"Number of draft tokens: (\d+), Number of emitted tokens: (\d+)"
)

_WINDOW_NAMES = {
    "Avg prompt throughput": "prompt_tok_per_s",
    "Avg generation throughput": "output_tok_per_s",
    "Running": "running",
    "Waiting": "waiting",
    "Pending": "waiting",
    "Swapped": "swapped",
    "Deferred": "deferred",
    "Corrupted": "corrupted",
    "Prefix cache hit rate": "prefix_hit_rate",
    "External prefix cache hit rate": "external_prefix_hit_rate",
    "MM cache hit rate": "mm_hit_rate",
}
_SPEC_NAMES = {
    "Mean acceptance length": "accept_len",
    "Accepted throughput": "accepted_tok_per_s",
    "Drafted throughput": "drafted_tok_per_s",
    "Accepted": "accepted_tok",
    "Drafted": "drafted_tok",
    "Avg Draft acceptance rate": "accept_rate",
    "Draft acceptance rate": "accept_rate",
}
_WHOLE = {"running", "waiting", "swapped", "deferred", "corrupted", "accepted_tok", "drafted_tok"}


def parse_log(line: str) -> LogRecord | None:
    """Return what a line says, None for one that says nothing known. Never raises."""
    text = clean(line)
    for mark, read in _READERS:
        if mark in text:
            record = read(text)
            if record is not None:
                return record
    return _startup(text)


def rank(text: str) -> str:
    """Return which process wrote the line (`EngineCore_DP0`, `Worker_TP1`), empty when unsaid."""
    match = _PREFIX.search(text)
    if match is None:
        return ""
    return f"{match.group(1)}-{match.group(2)}" if match.group(2) else match.group(1)


def _engine_key(text: str) -> str:
    match = _ENGINE.search(text)
    if match is None:
        return ""
    return "all" if match.group(1) is None else (match.group(1).lstrip("0") or "0")


def _amounts(text: str) -> Iterator[tuple[str, float]]:
    """Yield name and number of each `name: number unit` part; percentages as fractions."""
    for part in text.split(", "):
        name, _, said = part.partition(": ")
        match = _AMOUNT.match(said)
        value = number(match.group(1)) if match else None
        if match is not None and value is not None:
            yield name, value / 100 if match.group(2) else value


def _parts(text: str, names: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in _amounts(text):
        if (key := names.get(name)) is not None:
            values[key] = int(value) if key in _WHOLE else value
    return values


def _window(text: str) -> LogRecord | None:
    body = text[text.index("Avg prompt throughput") :]
    values = _parts(body, _WINDOW_NAMES)
    usages = {
        name.removesuffix(" KV cache usage"): usage
        for name, usage in _amounts(body)
        if name.endswith(" KV cache usage")
    }
    # V0 names the GPU's and the CPU's (swap) cache side by side; a CPU build has the CPU's alone.
    device = next((name for name in usages if name != "CPU"), "CPU")
    if (usage := usages.get(device)) is not None:
        values["kv_usage"] = usage
    if fetch := _FETCH.search(body):
        values["kv_fetching"] = sum(whole(count) or 0 for count in fetch.groups())
    return LogRecord("window", values, _engine_key(text)) if values else None


def _spec(text: str) -> LogRecord | None:
    values = _parts(text[text.index("SpecDecoding metrics: ") + 22 :], _SPEC_NAMES)
    if positions := _POSITIONS.search(text):
        rates = [number(part) for part in positions.group(1).split(", ")]
        values["accept_rate_per_position"] = rates if None not in rates else None
    values = told(values)
    return LogRecord("spec", values, _engine_key(text)) if values else None


def _v0_spec(text: str) -> LogRecord | None:
    match = _V0_SPEC.search(text)
    if match is None:
        return None
    rate, efficiency, depth, accepted, drafted, emitted = match.groups()
    return LogRecord(
        "spec",
        told(
            {
                "accept_rate": number(rate),
                "efficiency": number(efficiency),
                "speculation_tok": whole(depth),
                "accepted_tok": whole(accepted),
                "drafted_tok": whole(drafted),
                "emitted_tok": whole(emitted),
            }
        ),
    )


def _v0_hit_rate(text: str) -> LogRecord | None:
    match = _V0_HIT_RATE.search(text)
    rate = number(match.group(1)) if match else None
    return None if rate is None else LogRecord("cache", {"prefix_hit_rate": rate / 100})


def _iteration(text: str) -> LogRecord | None:
    match = _ITERATION.search(text)
    if match is None:
        return None
    names = ("iteration", "prefilling", "prompt_tok", "decoding", "output_tok")
    values: dict[str, Any] = {
        name: whole(amount) for name, amount in zip(names, match.groups(), strict=False)
    }
    values["step_ms"] = number(match.group(6))
    return LogRecord("iteration", told(values), _engine_key(text))


_READERS: tuple[tuple[str, Callable[[str], LogRecord | None]], ...] = (
    ("Avg prompt throughput", _window),
    ("SpecDecoding metrics: ", _spec),
    ("Speculative metrics: ", _v0_spec),
    ("Prefix cache hit rate: GPU", _v0_hit_rate),
    ("Iteration(", _iteration),
)

_STARTUP: tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (mark, re.compile(pattern), names)
    for mark, pattern, names in (
        ("KV cache size", rf"KV cache size: {_N} tokens", ("kv_capacity_tok",)),
        (
            "Maximum concurrency",
            rf"Maximum concurrency for {_N} tokens per request: {_N}x",
            ("max_context_tok", "kv_max_concurrency"),
        ),
        ("blocks: ", r"# \w+ blocks: (\d+), # CPU blocks: (\d+)", ("kv_blocks", "kv_cpu_blocks")),
        ("Available KV cache memory", rf"Available KV cache memory: {_N} GiB", ("kv_gib",)),
        ("GiB for KV cache on node", rf"\({_N}/[\d.]+\) GiB for KV cache", ("kv_gib",)),
        ("oading", rf"(?:Model loading|Loading model weights) took {_N} Gi?B", ("weights_gib",)),
        ("seconds", rf"GiB (?:memory )?and {_N} seconds", ("weights_load_s",)),
        (
            "Graph capturing",
            rf"Graph capturing finished in {_N} secs?, took {_N} GiB",
            ("graph_capture_s", "graph_gib"),
        ),
        ("max_num_batched_tokens=", r"max_num_batched_tokens=(\d+)", ("max_batched_tok",)),
        ("API server version", r"API server version ([\w.+-]+)", ("engine_version",)),
        ("█", r"version ([\w.+-]+)\s*$", ("engine_version",)),
        ("Using max model len", r"Using max model len (\d+)", ("max_context_tok",)),
        ("init engine", rf"init engine .*? took {_N} s", ("init_s",)),
    )
)
_TEXTS = {"engine_version"}
_GIB_NAMES = {"kv_gib": "kv_bytes", "weights_gib": "weights_bytes", "graph_gib": "graph_bytes"}
_INTEGERS = {"kv_capacity_tok", "max_context_tok", "kv_blocks", "kv_cpu_blocks", "max_batched_tok"}
_CONFIG = re.compile(r"Initializing an? (?:V\d )?LLM engine \(v([^)]+)\) with config: (.*)", re.S)
_SAMPLING = re.compile(
    r"(?:[Uu]sing default (?:\w+ )?sampling params from [^:]*: "
    r"|[Dd]efault vLLM sampling parameters have been overridden by [^:]*: ?`?)(\{.*?\})"
)


def _startup(text: str) -> LogRecord | None:
    values: dict[str, Any] = {}
    for mark, pattern, names in _STARTUP:
        if mark in text and (match := pattern.search(text)):
            for name, found in zip(names, match.groups(), strict=True):
                values[_GIB_NAMES.get(name, name)] = _startup_value(name, found)
    if match := _CONFIG.search(text):
        values |= _engine_config(match.group(1), match.group(2))
    if "non-default args: " in text:
        flags = python_value(text.partition("non-default args: ")[2].strip())
        if isinstance(flags, dict):
            values["flags"] = {str(key).replace("_", "-"): item for key, item in flags.items()}
    if match := _SAMPLING.search(text):
        sampling = python_value(match.group(1))
        values |= {"sampling_defaults": sampling} if isinstance(sampling, dict) else {}
    if "Application startup complete" in text:
        values["ready"] = True
    values = told(values)
    return LogRecord("startup", values, rank(text)) if values else None


def _startup_value(name: str, found: str) -> str | float | int | None:
    if name in _TEXTS:
        return found
    if name in _GIB_NAMES:
        return bytes_of(found, GIB)
    return whole(found) if name in _INTEGERS else number(found)


def _engine_config(version: str, config: str) -> dict[str, Any]:
    """Return what the line that prints the whole configuration tells."""

    def setting(key: str) -> str | None:
        match = re.search(rf"(?:^|[ (,]){key}=('[^']*'|[^,]+)", config)
        return match.group(1).strip("'") if match else None

    values: dict[str, Any] = {
        "engine_version": version,
        "model_path": setting("model"),
        "max_context_tok": positive(setting("max_seq_len")),
        "tensor_parallel": positive(setting("tensor_parallel_size")),
        "pipeline_parallel": positive(setting("pipeline_parallel_size")),
        "data_parallel": positive(setting("data_parallel_size")),
        "quantization": setting("quantization"),
        "kv_cache_dtype": setting("kv_cache_dtype"),
        "weights_dtype": (setting("dtype") or "").removeprefix("torch.") or None,
        "model": setting("served_model_name"),
        "eager": _truth(setting("enforce_eager")),
        "prefix_caching": _truth(setting("enable_prefix_caching")),
        "cuda_graph_max_tok": _graph_ceiling(config),
    }
    values |= _speculation(config)
    return {key: value for key, value in values.items() if value not in (None, "None")}


def _truth(text: str | None) -> bool | None:
    return {"True": True, "False": False}.get(text or "")


def _graph_ceiling(config: str) -> int | None:
    if match := re.search(r"'?max_(?:cudagraph_)?capture_size'?: (\d+)", config):
        return whole(match.group(1))
    match = re.search(r"cudagraph_capture_sizes'?\"?: ?\[(\d[\d, ]*)\]", config)
    sizes = match.group(1).split(",") if match else []
    return max((size for part in sizes if (size := whole(part)) is not None), default=None)


def _speculation(config: str) -> dict[str, Any]:
    match = re.search(r"speculative_config=(None|SpeculativeConfig\((.*?)\))", config)
    if match is None:
        return {}
    if match.group(1) == "None":
        return {"speculative_config": None, "speculation": "none"}
    pairs = re.findall(r"(\w+)=('[^']*'|[^,)]+)", match.group(2))
    return {"speculative_config": {key: value.strip("'") for key, value in pairs}}

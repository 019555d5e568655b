"""llama-server's log lines, from the one multi-line message of old builds to today's.

A request's timings come as several lines (prompt, eval, total); each is a record of its own with
the task's number as key. Rates divide by n − 1 steps in current builds and by n in older ones, so
`output_tok_per_s` is kept as printed beside `output_tok` and `output_ms`.
"""

from __future__ import annotations

import re
from typing import Any

from concbench.engines.reading import MIB, bytes_of, clean, number, told, truth, whole, word
from concbench.engines.spec import LogRecord

_SLOT = re.compile(r"id\s+(-?\d+) \| task (-?\d+) \|")
_TIMING = re.compile(
    r"(prompt eval|(?<!prompt )eval|total) time\s*=\s*(\S+) ms /\s*(\d+) (?:tokens|runs)"
    r"(?:\s*\(\s*\S+ ms per token,\s*(\S+) tokens per second\))?"
)
_TIMING_NAMES = {
    "prompt eval": ("prompt_ms", "prompt_tok", "prompt_tok_per_s"),
    "eval": ("output_ms", "output_tok", "output_tok_per_s"),
    "total": ("total_ms", "total_tok", None),
}
_GRAPHS = re.compile(r"graphs reused =\s*(\d+)")
_STOP = re.compile(r"stop processing: n_(?:tokens|past) =\s*(\d+), truncated =\s*(\d+)")
_DRAFT = re.compile(
    r"draft acceptance(?: rate)? =\s*(\S+) \(\s*(\d+) accepted /\s*(\d+) generated\)"
    r"(?:, mean len =\s*(\S+))?"
)
_DRAFT_SUMS = re.compile(
    r"statistics\s+(\S+): .*?#gen drafts =\s*(\d+), #acc drafts =\s*(\d+), "
    r"#gen tokens =\s*(\d+), #acc tokens =\s*(\d+)"
)
_LIVE = re.compile(r"n_gen =\s*(\d+), tg =\s*(\S+) t/s(?:, tg_3s =\s*(\S+) t/s)?")
_PROMPT = re.compile(
    r"prompt processing(?: progress)?, (?:n_past =\s*\d+, )?n_tokens =\s*(\d+)"
    r"(?:, batch\.n_tokens =\s*\d+)?, progress =\s*([\d.]+)"
    r"(?:, t =\s*(\S+) s / (\S+) tokens per second)?"
)


def parse_log(line: str) -> LogRecord | None:
    """Return what a line (or an old build's whole message) says, else None. Never raises."""
    text = clean(line)
    slot = _SLOT.search(text)
    key = slot.group(2) if slot else ""
    for read in (_spec, _request, _live, _prompt):
        record = read(text, key)
        if record is not None:
            return record
    return _startup(text)


def _request(text: str, key: str) -> LogRecord | None:
    values: dict[str, Any] = {}
    for kind, took, tokens, rate in _TIMING.findall(text):
        ms_name, tok_name, rate_name = _TIMING_NAMES[kind]
        values[ms_name], values[tok_name] = number(took), whole(tokens)
        if rate_name and number(rate) is not None:
            values[rate_name] = number(rate)
    if match := _GRAPHS.search(text):
        values["graphs_reused"] = whole(match.group(1))
    if match := _STOP.search(text):
        values["total_tok"], values["truncated"] = whole(match.group(1)), match.group(2) != "0"
    values = told(values)
    return LogRecord("request", values, key) if values else None


def _spec(text: str, key: str) -> LogRecord | None:
    if match := _DRAFT.search(text):
        rate, accepted, drafted, length = match.groups()
        values: dict[str, Any] = {"accepted_tok": whole(accepted), "drafted_tok": whole(drafted)}
        if number(rate) is not None:
            values["accept_rate"] = number(rate)
        if number(length) is not None:
            values["accept_len"] = number(length)
        return LogRecord("spec", told(values), key)
    if match := _DRAFT_SUMS.search(text):
        names = ("drafts", "accepted_drafts", "drafted_tok", "accepted_tok")
        sums = dict(zip(names, map(whole, match.groups()[1:]), strict=True))
        return LogRecord("spec", told(sums), match.group(1))
    return None


def _live(text: str, key: str) -> LogRecord | None:
    match = _LIVE.search(text)
    if match is None:
        return None
    values: dict[str, Any] = {"output_tok": whole(match.group(1))}
    for name, found in zip(
        ("output_tok_per_s", "recent_tok_per_s"), match.groups()[1:], strict=True
    ):
        if number(found) is not None:
            values[name] = number(found)
    return LogRecord("progress", told(values), key)


def _prompt(text: str, key: str) -> LogRecord | None:
    match = _PROMPT.search(text)
    if match is None:
        return None
    values: dict[str, Any] = {
        "prompt_tok": whole(match.group(1)),
        "progress": number(match.group(2)),
    }
    if (took := number(match.group(3))) is not None:
        values["prompt_ms"] = took * 1e3
    if (rate := number(match.group(4))) is not None:
        values["prompt_tok_per_s"] = rate
    return LogRecord("prefill", told(values), key)


_KV_CACHE = re.compile(
    r"size =\s*(\S+) MiB \(\s*(\d+) cells,\s*(\d+) layers,\s*(\d+)(?:/\s*(\d+))? seqs\), "
    r"K \((\w+)\):.*?V \((\w+)\)"
)
_OLD_KV_CACHE = re.compile(r"KV self size\s*=\s*(\S+) MiB, K \((\w+)\):.*?V \((\w+)\)")
_STARTUP: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), names)
    for pattern, names in (
        (
            r"initializing(?: slots)?, n_slots =\s*(\d+)"
            r"(?:, n_ctx_slot =\s*(\d+))?(?:, kv_unified = '(\w+)')?",
            ("slots", "max_context_tok", "kv_unified"),
        ),
        (r"new slot,? n_ctx(?:_slot)? =\s*(\d+)", ("max_context_tok",)),
        (r"using n_parallel =\s*(\d+) and kv_unified = (\w+)", ("slots", "kv_unified")),
        (r"\bn_ctx_(?:per_)?seq\s+=\s*(\d+)", ("max_context_tok",)),
        (r":\s+n_ctx\s+=\s*(\d+)\s*$", ("total_context_tok",)),
        (r"\bkv_unified\s+=\s*(\w+)\s*$", ("kv_unified",)),
        (r"\bflash_attn\s+=\s*(\w+)\s*$", ("flash_attention",)),
        (r"\bn_ctx_train\s+=\s*(\d+)\s*$", ("trained_context_tok",)),
        (r"build_info: (\S+)", ("engine_version",)),
        (r"\bbuild: (\d+ \(\w+\))", ("engine_version",)),
        (r"loading model '([^']+)'", ("model_path",)),
        (r"adding speculative implementation '([^']+)'", ("speculation",)),
        (r"(?:file type|model ftype)\s*=\s*(\S.*?)\s*$", ("quantization",)),
        (r"model params\s*=\s*(\S+ [KMBT])\b", ("parameters",)),
        (r"model buffer size =\s*(\S+) MiB", ("weights_mib",)),
        (r"context size reduced from (\d+) to (\d+)", ("asked_context_tok", "total_context_tok")),
    )
)
_SIZES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def _startup(text: str) -> LogRecord | None:
    values: dict[str, Any] = {}
    for pattern, names in _STARTUP:
        if match := pattern.search(text):
            for name, found in zip(names, match.groups(), strict=True):
                if found is not None and (value := _value(name, found)) is not None:
                    values["weights_bytes" if name == "weights_mib" else name] = value
    values |= told(_kv_cache(text))
    if "synthetic speculative acceptance is enabled" in text:
        values["simulated_acceptance"] = True
    if re.search(r"\b(?:server is )?listening on ", text):
        values["ready"] = True
    return LogRecord("startup", values) if values else None


def _value(name: str, found: str) -> str | int | float | bool | None:
    if name == "weights_mib":
        return bytes_of(found, MIB)
    if name == "parameters":
        amount, unit = found.split()
        return bytes_of(amount, _SIZES[unit])
    if name == "kv_unified":
        return truth(found)
    return whole(found) if name.endswith("_tok") or name == "slots" else word(found)


def _kv_cache(text: str) -> dict[str, Any]:
    """Return size, type and tokens of one KV cache; cells are counted for each stream."""
    if match := _KV_CACHE.search(text):
        size, cells, _, sequences, streams, key_type, value_type = match.groups()
        cells_tok, streams_n = whole(cells), whole(streams or "1")
        values = {
            "kv_bytes": bytes_of(size, MIB),
            "kv_cache_dtype": kv_dtype(key_type, value_type),
            "kv_capacity_tok": cells_tok * streams_n if cells_tok and streams_n else None,
        }
        if streams is not None and sequences != "1":
            values["kv_unified"] = streams_n == 1
        return values
    if match := _OLD_KV_CACHE.search(text):
        size, key_type, value_type = match.groups()
        return {"kv_bytes": bytes_of(size, MIB), "kv_cache_dtype": kv_dtype(key_type, value_type)}
    return {}


def kv_dtype(keys: str, values: str) -> str:
    """Return one name for the types of keys and values: `q8_0`, or `q8_0/f16`."""
    return keys if keys == values else f"{keys}/{values}"

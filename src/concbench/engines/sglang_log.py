"""SGLang's log lines, 0.4 to 0.5.23: decode and prefill reports, start-up.

Reports come every so many decode steps, not at fixed times, and a decode rate counts the wall time
since the previous report, idle gaps included: the first one after idling says nothing.
`accept rate` changed its meaning after 0.5.10 (before, the bonus token counted), so only
`accept_len` compares across versions.
"""

from __future__ import annotations

import re
from typing import Any

from concbench.engines.reading import GIB, bytes_of, clean, number, positive, told, truth, whole
from concbench.engines.spec import LogRecord

_RANKS = re.compile(r"^[^\[]*\[[^\]]*?((?: (?:DP|TP|PP|EP|ATTN_\w+?)\d+)+)\]")
_REPORT = re.compile(r"(Decode|Prefill) batch(?: \[(\d+)\])?[.,] ?(.*)", re.S)
_NUMBERS = {
    "#running-req": "running",
    "#queue-req": "waiting",
    "#token": "kv_tok",
    "#full token": "kv_tok",
    "#swa token": "swa_tok",
    "#new-seq": "new_sequences",
    "#new-token": "prompt_tok",
    "#cached-token": "cached_tok",
    "#pending-token": "pending_tok",
    "#prealloc-req": "preallocated",
    "#transfer-req": "transferring",
    "#retracted-req": "preemptions",
    "mamba num": "mamba_states",
    "gen throughput (token/s)": "output_tok_per_s",
    "input throughput (token/s)": "prompt_tok_per_s",
    "accept len": "accept_len",
    "accept rate": "accept_rate",
    "cap len": "cap_len",
    "block accept len": "block_accept_len",
    "pre-allocated usage": "preallocated_usage",
}
_USAGES = ("token usage", "full token usage", "swa token usage", "mamba usage")
_WHOLE = {
    "running", "waiting", "kv_tok", "swa_tok", "new_sequences", "prompt_tok", "cached_tok",
    "pending_tok", "preallocated", "transferring", "preemptions", "mamba_states",
}  # fmt: skip
_STARTUP_PAIR = re.compile(
    r"\b(max_total_num_tokens|chunked_prefill_size|max_prefill_tokens|max_running_requests|"
    r"context_len|available_gpu_mem)=([\d.]+)"
)
_STARTUP_NAMES = {
    "max_total_num_tokens": "kv_capacity_tok",
    "chunked_prefill_size": "chunked_prefill_tok",
    "max_prefill_tokens": "max_batched_tok",
    "max_running_requests": "slots",
    "context_len": "max_context_tok",
}
_KV_CACHE = re.compile(
    r"KV Cache is allocated\.(?:.*?dtype: [\w.]+,)? #tokens: (\d+), "
    r"K size: ([\d.]+) GB, V size: ([\d.]+) GB"
)
_WEIGHTS = re.compile(r"Load weight end\..*?mem usage=([\d.]+) GB")
_GRAPHS = re.compile(r"Capture (?:cuda|npu|cpu) graph bs \[([\d, ]+)\]")
_CLAMP = re.compile(r"max_running_requests (?:is |was )?(?:set|reset|reduced) to (\d+)", re.I)


def parse_log(line: str) -> LogRecord | None:
    """Return what a line says, None for one that says nothing known. Never raises."""
    text = clean(line)
    match = _REPORT.search(text)
    if match is not None:
        return _report(text, *match.groups())
    return _startup(text)


def rank(text: str) -> str:
    """Return the ranks that the line's prefix names, such as `DP1 TP0`, empty when unsaid."""
    match = _RANKS.search(text)
    return match.group(1).strip() if match else ""


def _report(text: str, kind: str, iteration: str | None, body: str) -> LogRecord | None:
    values: dict[str, Any] = {} if iteration is None else {"iteration": whole(iteration)}
    usages: list[float] = []
    for part in body.split(","):
        name, _, found = (piece.strip() for piece in part.partition(":"))
        if name.endswith("graph"):
            values |= {"cuda_graph": on} if (on := truth(found)) is not None else {}
            continue
        amount = number(found.rstrip("%."))
        if amount is None:
            continue
        if name in _USAGES:
            usages.append(amount)
        elif name == "cache hit rate":
            values["prefix_hit_rate"] = amount / 100
        elif (key := _NUMBERS.get(name)) is not None:
            values[key] = int(amount) if key in _WHOLE else amount
    if usages:
        values["kv_usage"] = max(usages)
    if not values:
        return None
    return LogRecord("window" if kind == "Decode" else "prefill", values, rank(text))


def _startup(text: str) -> LogRecord | None:
    values = _limits(text) | _sizes(text)
    if match := _CLAMP.search(text):
        values["slots"] = whole(match.group(1))
    if "server_args=ServerArgs(" in text:
        values["flags"] = _server_args(text)
    if "The server is fired up and ready to roll!" in text:
        values["ready"] = True
    values = told(values)
    return LogRecord("startup", values, rank(text)) if values else None


def _limits(text: str) -> dict[str, Any]:
    if "max_total_num_tokens=" not in text:
        return {}
    values: dict[str, Any] = {}
    for name, found in _STARTUP_PAIR.findall(text):
        if name == "available_gpu_mem":
            values["free_bytes"] = bytes_of(found, GIB)
        elif (amount := positive(found)) is not None:
            values[_STARTUP_NAMES[name]] = amount
    return values


def _sizes(text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if match := _KV_CACHE.search(text):
        tokens, keys, rest = map(number, match.groups())
        if tokens is not None and keys is not None and rest is not None:
            values = {"kv_capacity_tok": int(tokens), "kv_bytes": bytes_of(keys + rest, GIB)}
    if match := _WEIGHTS.search(text):
        values["weights_bytes"] = bytes_of(match.group(1), GIB)
    if match := _GRAPHS.search(text):
        sizes = [size for part in match.group(1).split(",") if (size := whole(part)) is not None]
        values |= {"cuda_graph_max_seqs": max(sizes)} if sizes else {}
    return values


_ARG = re.compile(r"[(,] ?(\w+)=('[^']*'|\"[^\"]*\"|\[[^\]]*\]|[^,()\[\]]+)")


def _server_args(text: str) -> dict[str, Any]:
    """Return the printed settings by their flag names; `None` and unreadable ones left out."""
    printed = text[text.index("ServerArgs(") + len("ServerArgs") :]
    flags: dict[str, Any] = {}
    for name, found in _ARG.findall(printed):
        value = found.strip().strip("'\"")
        if value in ("None", ""):
            continue
        flags[name.replace("_", "-")] = {"True": True, "False": False}.get(value, value)
    return flags

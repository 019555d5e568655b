"""aiperf and genai-perf: a summary in JSON, and aiperf's records with one request a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.domain import Arrival, Cell, TargetFacts
from concbench.store.importers import safe
from concbench.store.importers.model import Imported, ToldCell
from concbench.store.importers.requests import RawRequest, round_of

AIPERF, GENAI_PERF = "aiperf", "genai-perf"

_FIGURES = {
    "ttft_ms": "time_to_first_token",
    "tpot_ms": "inter_token_latency",
    "icl_ms": "inter_chunk_latency",
    "e2e_ms": "request_latency",
    "output_tok_per_s": "output_token_throughput",
    "per_request_tok_per_s": "output_token_throughput_per_user",
}
_TO_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6}

WHY = {
    "tpot_ms": "their ITL is a mean per request, TPOT here, over tokens that the client counted by "
    "tokenizing the answers again, unless it was told to use the server's counts",
    "ttft_ms": "theirs is the first response with any content; ours leaves out each worker's first "
    "request, which met the start wave",
    "e2e_ms": "theirs runs to the last response of any kind, ours to the last token",
    "output_tok_per_s": "theirs divides by the benchmark's duration, ours by first send to last "
    "end; their tokens are counted by the client",
    "per_request_tok_per_s": "theirs is 1 ÷ ITL, so the wait for the first token is not in it; "
    "ours is tokens ÷ time from send to last token",
}


def is_summary(value: object) -> bool:
    """Return whether a JSON value is a summary of aiperf or genai-perf."""
    found = safe.mapping(value)
    told = safe.mapping(found.get("request_latency")) or safe.mapping(
        found.get("output_token_throughput")
    )
    return "avg" in told and ("input_config" in found or "aiperf_version" in found)


def is_record(value: object) -> bool:
    """Return whether a JSON value is one record of aiperf's JSON Lines."""
    found = safe.mapping(value)
    return "metrics" in found and "request_start_ns" in safe.mapping(found.get("metadata"))


def read(
    summaries: Sequence[Mapping[str, Any]],
    records: Sequence[Mapping[str, Any]],
    lane: str,
    began_utc: str,
) -> Imported:
    """Return one cell from a summary, from its records, or from both, given together."""
    summary = summaries[0] if summaries else {}
    # One source of counts for all: a study that mixes two says neither.
    by_server = bool(records) and all(map(_has_usage, records))
    raws = [_request(one, by_server=by_server) for one in records]
    told = _cell(summary, raws, lane)
    cell = Cell(
        cell=told.cell,
        lane=lane,
        concurrency=told.concurrency,
        context_tok=told.context_tok,
        context_label=told.context_label,
        rate_rps=told.rate_rps,
    )
    rounds, remarks = [], []
    if raws:
        made, dropped = round_of(
            raws,
            cell,
            arrival=_arrival(told, len(raws)),
            source="usage" if by_server else "tokenizer",
            began_utc=safe.text(summary.get("start_time")) or began_utc,
            tool=AIPERF,
        )
        rounds.append(made)
        if dropped:
            remarks.append(f"{dropped} requests have impossible times: left out")
    if summary.get("was_cancelled") is True:
        remarks.append("the run was cancelled: these are its figures until then")
    if len(summaries) > 1:
        remarks.append("several summaries were given: the first is used")
    version = safe.text(summary.get("aiperf_version"))
    return Imported(
        tool=AIPERF if version or records else GENAI_PERF,
        version=version,
        facts=[TargetFacts(lane=lane, engine="openai", base_url="imported", model=_model(summary))],
        cells=[told],
        rounds=rounds,
        why=dict(WHY),
        remarks=remarks,
    )


def _model(summary: Mapping[str, Any]) -> str | None:
    config = safe.mapping(summary.get("input_config"))
    names = safe.mapping(config.get("endpoint")).get("model_names") or config.get("model")
    if isinstance(names, list):
        names = names[0] if names else None
    return safe.text(names)


def _config(summary: Mapping[str, Any], key: str) -> object:
    """Return a load setting, which versions keep in different places."""
    config = safe.mapping(summary.get("input_config"))
    for part in ("loadgen", "perf_analyzer", "input"):
        found = safe.mapping(config.get(part)).get(key)
        if found is not None:
            return found
    stimulus = safe.mapping(safe.mapping(config.get("perf_analyzer")).get("stimulus"))
    return config.get(key, stimulus.get(key))


def _cell(summary: Mapping[str, Any], raws: Sequence[RawRequest], lane: str) -> ToldCell:
    figures = {ours: _of(summary, theirs) for ours, theirs in _FIGURES.items()}
    ok = safe.whole(_of(summary, "request_count").get("mean"))
    failed = safe.whole(_of(summary, "error_request_count").get("mean")) or 0
    if ok is None:
        ok = sum(raw.error is None and not raw.cut for raw in raws)
        ok = ok or int(figures["e2e_ms"].get("n", 0))
        failed = failed or sum(raw.error is not None for raw in raws)
    context = _of(summary, "input_sequence_length").get("mean")
    if context is None:
        known = [raw.prompt_tok for raw in raws if raw.prompt_tok is not None]
        context = sum(known) / len(known) if known else 0.0
    level = safe.whole(_config(summary, "concurrency"))
    if not level:
        effective = _of(summary, "effective_concurrency").get("mean")
        level = round(effective) if effective else _at_once(raws)
    rate = safe.positive(_config(summary, "request_rate"))
    name = f"{lane}.{round(context)}.c{level}" + (f".r{rate:g}" if rate is not None else "")
    return ToldCell(
        cell=name,
        lane=lane,
        concurrency=max(1, level),
        context_tok=round(context),
        context_label=str(round(context)),
        rate_rps=rate,
        sent=ok + failed,
        ok=ok,
        failed=failed,
        prompt_tok=safe.whole(_of(summary, "total_isl").get("mean")),
        output_tok=safe.whole(_of(summary, "total_osl").get("mean")),
        figures=safe.without_empty(figures),
    )


def _of(summary: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return what is told of a metric, times in milliseconds."""
    one = safe.mapping(summary.get(name))
    told = safe.figure(
        mean=one.get("avg"),
        std=one.get("std"),
        n=one.get("count"),
        min=one.get("min"),
        max=one.get("max"),
        p50=one.get("p50"),
        p90=one.get("p90"),
        p95=one.get("p95"),
        p99=one.get("p99"),
    )
    return safe.scaled(told, _TO_MS.get(str(one.get("unit", "")).lower(), 1.0))


def _has_usage(one: Mapping[str, Any]) -> bool:
    """Return whether a record has the server's own count; one that failed need not."""
    return _USAGE in safe.mapping(one.get("metrics")) or bool(one.get("error"))


def _request(one: Mapping[str, Any], *, by_server: bool) -> RawRequest:
    metadata, metrics = safe.mapping(one.get("metadata")), safe.mapping(one.get("metrics"))
    error = safe.mapping(one.get("error"))
    start, end = (safe.number(_scaled_ns(metadata.get(key))) for key in _STAMPS)
    said = safe.text(error.get("message")) or safe.text(error.get("type"))
    cancelled = metadata.get("was_cancelled") is True

    def seconds(name: str) -> float | None:
        entry = safe.mapping(metrics.get(name))
        value = safe.number(entry.get("value"))
        factor = _TO_MS.get(str(entry.get("unit", "ms")).lower(), 1.0)
        return None if value is None else value * factor / 1e3

    def count(*names: str) -> int | None:
        values = (safe.whole(safe.mapping(metrics.get(name)).get("value")) for name in names)
        return next((value for value in values if value is not None), None)

    gaps = safe.mapping(metrics.get("inter_chunk_latency"))
    factor = _TO_MS.get(str(gaps.get("unit", "ms")).lower(), 1.0) / 1e3
    length = seconds("request_latency")
    if length is None and start is not None and end is not None:
        length = end - start
    return RawRequest(
        start_s=start,
        ttft_s=seconds("time_to_first_token"),
        gaps_s=[gap * factor for gap in safe.numbers(gaps.get("value"))],
        last_s=length,
        end_s=length,
        prompt_tok=count(*_PROMPT[by_server], "input_sequence_length", "error_isl"),
        output_tok=count(*_OUTPUT[by_server], "output_sequence_length", "output_token_count"),
        error=None if cancelled or not error else said or "error",
        cut=cancelled,
    )


_USAGE = "usage_completion_tokens"
_PROMPT: dict[bool, tuple[str, ...]] = {True: ("usage_prompt_tokens",), False: ()}
_OUTPUT: dict[bool, tuple[str, ...]] = {True: (_USAGE,), False: ()}
_STAMPS = ("request_start_ns", "request_end_ns")


def _scaled_ns(stamp: object) -> float | None:
    """Return a stamp since 1970 in seconds; nanoseconds are too many for a plausible number."""
    return stamp / 1e9 if isinstance(stamp, (int, float)) and 0 <= stamp < 1e19 else None


def _at_once(raws: Sequence[RawRequest]) -> int:
    """Return how many requests were under way at most; failed ones may have ended at once."""
    moves: list[tuple[float, int]] = []
    for raw in raws:
        if raw.error is None and raw.start_s is not None and raw.end_s is not None:
            moves += [(raw.start_s, 1), (raw.start_s + raw.end_s, -1)]
    now = most = 0
    for _, step in sorted(moves):
        now += step
        most = max(most, now)
    return max(1, most)


def _arrival(told: ToldCell, requests: int) -> Arrival:
    if told.rate_rps is not None:
        return "poisson"
    return "burst" if requests <= told.concurrency else "closed"

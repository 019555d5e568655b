"""`vllm bench serve` and SGLang's `bench_serving`: near relatives, with keys of their own.

Both give `mean_`, `median_`, `std_` and `pNN_` of each latency in milliseconds, and with their
detailed output lists by request in seconds. vLLM also keeps `start_times`; without them a rate
cannot be computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.domain import Arrival, Cell, TargetFacts, TokenSource
from concbench.store.importers import safe
from concbench.store.importers.model import Imported, ToldCell
from concbench.store.importers.requests import RawRequest, round_of

VLLM, SGLANG = "vllm bench", "sglang bench_serving"

_LATENCIES = {
    "ttft_ms": "ttft_ms",
    "tpot_ms": "tpot_ms",
    "icl_ms": "itl_ms",
    "e2e_ms": "e2el_ms",
}
_SGLANG_LATENCIES = {**_LATENCIES, "e2e_ms": "e2e_latency_ms"}

WHY_VLLM = {
    "output_tok_per_s": "their throughput divides by the whole run, first send to last end, ramp "
    "and drain included; so does this figure of ours",
    "ttft_ms": "their clock starts when a request is let through the concurrency limit; the wait "
    "before it is not in it. Ours leaves out each worker's first request, which met the start wave",
    "tpot_ms": "theirs takes one token for the first chunk and includes every request; ours leaves "
    "out answers under 16 tokens and the start wave",
    "icl_ms": "their ITL is the gap between chunks, which is ICL here; a chunk is not a token",
    "e2e_ms": "theirs runs to the end of the response in some versions; ours to the last token",
}
WHY_SGLANG = {
    **WHY_VLLM,
    "output_tok_per_s": "their output tokens are the requested lengths unless the server sent "
    "usage: an answer that ended early counts in full",
    "ttft_ms": "every request opens a connection of its own, and that is in their TTFT",
    "tpot_ms": "their output tokens are the requested lengths unless the server sent usage, so an "
    "answer that ended early looks faster a token than it was",
    "icl_ms": "their ITL is the gap between chunks; with speculation a chunk is a verify step",
}


def is_vllm(value: object) -> bool:
    """Return whether a JSON value is a result of `vllm bench serve`."""
    keys = safe.mapping(value).keys()
    return {"total_output_tokens", "output_throughput", "model_id"} <= keys


def is_sglang(value: object) -> bool:
    """Return whether a JSON value is a result of SGLang's `bench_serving`."""
    keys = safe.mapping(value).keys()
    marks = {"total_output_tokens_retokenized", "mean_e2e_latency_ms", "total_throughput"}
    return "output_throughput" in keys and bool(marks & keys)


def read_vllm(values: Sequence[Mapping[str, Any]], lane: str, began_utc: str) -> Imported:
    """Return the results of `vllm bench serve`, one cell each."""
    return _read(values, lane, began_utc, VLLM, _LATENCIES, WHY_VLLM, "usage")


def read_sglang(values: Sequence[Mapping[str, Any]], lane: str, began_utc: str) -> Imported:
    """Return the results of SGLang's `bench_serving`, one cell a line."""
    return _read(values, lane, began_utc, SGLANG, _SGLANG_LATENCIES, WHY_SGLANG, "tokenizer")


def _read(
    values: Sequence[Mapping[str, Any]],
    lane: str,
    began_utc: str,
    tool: str,
    latencies: Mapping[str, str],
    why: Mapping[str, str],
    source: TokenSource,
) -> Imported:
    cells: list[ToldCell] = []
    rounds, remarks, timed = [], [], True
    for index, value in enumerate(values):
        told = _cell(value, lane, index, latencies)
        same = sum(one.cell == told.cell for one in cells)
        cells += [] if same else [told]
        raws = _requests(value)
        if not raws:
            if same:
                remarks.append(f"{told.cell} is there more than once: the first is used")
            continue
        timed = timed and all(raw.start_s is not None for raw in raws)
        made, dropped = round_of(
            raws,
            _place(told),
            arrival=_arrival(value, told),
            source="chunks" if _as_asked(value) else source,
            began_utc=safe.text(value.get("date")) or began_utc,
            tool=tool,
            index=index,
        )
        rounds.append(made)
        if dropped:
            remarks.append(f"{dropped} requests of {told.cell} have impossible times: left out")
        remarks += _retokenized(value, told.cell)
    model = next((found for one in values if (found := safe.text(_model(one)))), None)
    return Imported(
        tool=tool,
        version=None,
        facts=[
            TargetFacts(
                lane=lane,
                engine="sglang" if tool == SGLANG else "openai",
                base_url="imported",
                model=model,
            )
        ],
        cells=cells,
        rounds=rounds,
        timed=timed,
        why=dict(why),
        remarks=remarks,
    )


def _model(value: Mapping[str, Any]) -> object:
    return value.get("model_id") or safe.mapping(value.get("server_info")).get("model_path")


def _place(told: ToldCell) -> Cell:
    return Cell(
        cell=told.cell,
        lane=told.lane,
        concurrency=told.concurrency,
        context_tok=told.context_tok,
        context_label=told.context_label,
        rate_rps=told.rate_rps,
    )


def _cell(
    value: Mapping[str, Any], lane: str, index: int, latencies: Mapping[str, str]
) -> ToldCell:
    completed, failed = safe.whole(value.get("completed")) or 0, safe.whole(value.get("failed"))
    total_in, total_out = value.get("total_input_tokens"), value.get("total_output_tokens")
    prompts = safe.whole(value.get("num_prompts")) or completed
    context = round((safe.number(total_in) or 0.0) / completed) if completed else 0
    rate = safe.positive(value.get("request_rate"))
    level = (
        safe.whole(value.get("max_concurrency"))
        or safe.whole(value.get("max_concurrent_requests"))
        or prompts
        or 1
    )
    figures = {
        name: safe.figure(
            mean=value.get(f"mean_{key}"),
            std=value.get(f"std_{key}"),
            n=completed,
            p50=value.get(f"median_{key}", value.get(f"p50_{key}")),
            p90=value.get(f"p90_{key}"),
            p95=value.get(f"p95_{key}"),
            p99=value.get(f"p99_{key}"),
        )
        for name, key in latencies.items()
        if safe.number(value.get(f"mean_{key}")) is not None
    }
    figures["duration_s"] = safe.figure(mean=safe.positive(value.get("duration")))
    figures["output_tok_per_s"] = safe.figure(mean=safe.positive(value.get("output_throughput")))
    name = f"{lane}.{context}.c{level}" + (f".r{rate:g}" if rate is not None else "")
    return ToldCell(
        cell=name,
        lane=lane,
        concurrency=level,
        context_tok=context,
        context_label=str(context),
        rate_rps=rate,
        sent=completed + (failed if failed is not None else max(0, prompts - completed)),
        ok=completed,
        failed=failed if failed is not None else max(0, prompts - completed),
        prompt_tok=safe.whole(total_in),
        output_tok=safe.whole(total_out),
        figures=safe.without_empty(figures),
    )


def _arrival(value: Mapping[str, Any], told: ToldCell) -> Arrival:
    if told.rate_rps is not None:
        return "poisson"
    prompts = safe.whole(value.get("num_prompts")) or told.sent
    return "burst" if prompts <= told.concurrency else "closed"


def _requests(value: Mapping[str, Any]) -> list[RawRequest]:
    """Return the requests of the detailed output; none where it was not asked for."""
    lengths, ttfts = safe.sequence(value.get("output_lens")), safe.sequence(value.get("ttfts"))
    if not lengths or len(lengths) != len(ttfts):
        return []
    columns = {
        name: safe.sequence(value.get(name))
        for name in ("input_lens", "itls", "start_times", "errors", "latencies")
    }

    def at(name: str, position: int) -> object:
        column = columns[name]
        return column[position] if len(column) == len(lengths) else None

    asked = _as_asked(value)
    found: list[RawRequest] = []
    for position, length in enumerate(lengths):
        gaps = safe.numbers(at("itls", position))
        ttft = safe.number(ttfts[position])
        error = safe.text(at("errors", position))
        last = None if ttft is None else ttft + sum(gaps)
        nothing = not length and not gaps and not ttft
        found.append(
            RawRequest(
                start_s=safe.number(at("start_times", position)),
                ttft_s=None if nothing else ttft,
                gaps_s=gaps,
                last_s=None if nothing else last,
                end_s=safe.number(at("latencies", position)) or last,
                prompt_tok=safe.whole(at("input_lens", position)),
                output_tok=len(gaps) + 1 if asked and gaps else safe.whole(length),
                error=error or ("no token came" if nothing else None),
            )
        )
    return found


def _as_asked(value: Mapping[str, Any]) -> bool:
    """Return whether the output lengths are those asked for, and not what came.

    They are all alike, and the answers have another total when they are tokenized again.
    """
    lengths = safe.sequence(value.get("output_lens"))
    return bool(lengths) and len(set(map(str, lengths))) == 1 and bool(_retokenized(value, ""))


def _retokenized(value: Mapping[str, Any], cell: str) -> list[str]:
    """Return a remark where the counts of tokens asked for and tokens received differ."""
    told = safe.number(value.get("total_output_tokens"))
    again = safe.number(value.get("total_output_tokens_retokenized"))
    if not told or again is None or abs(told - again) <= 0.02 * told:
        return []
    return [
        f"{cell}: {told:,.0f} output tokens are told, {again:,.0f} after tokenizing the answers "
        "again: the former may be requested lengths"
    ]

"""guidellm's report: one cell a benchmark, requests with first and last token but no gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from concbench.domain import Arrival, Cell, TargetFacts
from concbench.store.importers import safe
from concbench.store.importers.model import Imported, ToldCell
from concbench.store.importers.requests import RawRequest, round_of

TOOL = "guidellm"

# Our figure, theirs, and what theirs must be multiplied with for our unit.
_FIGURES = (
    ("ttft_ms", "time_to_first_token_ms", 1.0),
    ("tpot_ms", "inter_token_latency_ms", 1.0),
    ("theirs:tpot_ms", "time_per_output_token_ms", 1.0),
    ("e2e_ms", "request_latency", 1e3),
    ("output_tok_per_s", "output_tokens_per_second", 1.0),
)
_OPEN: dict[str, Arrival] = {"constant": "constant", "poisson": "poisson"}

WHY = {
    "tpot_ms": "their inter-token latency is a mean per request, of all requests alike; ours "
    "leaves out answers under 16 tokens and the start wave",
    "theirs:tpot_ms": "their TPOT includes TTFT: it divides the whole time by all tokens",
    "ttft_ms": "theirs is stamped with the wall clock and counts from the worker's own start; ours "
    "leaves out each worker's first request, which met the start wave",
    "e2e_ms": "theirs runs to the end of the response, ours to the last token",
    "output_tok_per_s": "theirs spreads each answer's tokens evenly between its first and last "
    "token and weights by time; ours divides all tokens by first send to last end",
}


def is_guidellm(value: object) -> bool:
    """Return whether a JSON value is a report of guidellm."""
    found = safe.mapping(value)
    return "benchmarks" in found and "guidellm_version" in safe.mapping(found.get("metadata"))


def read(value: Mapping[str, Any], lane: str, began_utc: str) -> Imported:
    """Return guidellm's report."""
    cells: list[ToldCell] = []
    rounds, remarks = [], []
    model = None
    for index, one in enumerate(safe.sequence(value.get("benchmarks"))):
        benchmark = safe.mapping(one)
        model = model or _model(benchmark)
        told = _cell(benchmark, lane, index)
        if any(each.cell == told.cell for each in cells):
            told.cell = f"{told.cell}.{index}"
        cells.append(told)
        raws = _requests(safe.mapping(benchmark.get("requests")))
        if not raws:
            continue
        cell = Cell(
            cell=told.cell,
            lane=lane,
            concurrency=told.concurrency,
            context_tok=told.context_tok,
            context_label=told.context_label,
            rate_rps=told.rate_rps,
        )
        made, dropped = round_of(
            raws,
            cell,
            arrival=_OPEN.get(_strategy(benchmark), "closed"),
            source="usage",
            began_utc=began_utc,
            tool=TOOL,
            index=index,
        )
        rounds.append(made)
        if dropped:
            remarks.append(f"{dropped} requests of {told.cell} have impossible times: left out")
    version = safe.text(safe.mapping(value.get("metadata")).get("guidellm_version"))
    return Imported(
        tool=TOOL,
        version=version,
        facts=[TargetFacts(lane=lane, engine="openai", base_url="imported", model=model)],
        cells=cells,
        rounds=rounds,
        why=dict(WHY),
        remarks=remarks,
    )


def _strategy(benchmark: Mapping[str, Any]) -> str:
    strategy = safe.mapping(safe.mapping(benchmark.get("config")).get("strategy"))
    return safe.text(strategy.get("type_")) or ""


def _model(benchmark: Mapping[str, Any]) -> str | None:
    backend = safe.mapping(safe.mapping(benchmark.get("config")).get("backend"))
    return safe.text(backend.get("model"))


def _cell(benchmark: Mapping[str, Any], lane: str, index: int) -> ToldCell:
    metrics = safe.mapping(benchmark.get("metrics"))
    strategy = safe.mapping(safe.mapping(benchmark.get("config")).get("strategy"))
    totals = safe.mapping(metrics.get("request_totals"))
    level = safe.whole(strategy.get("streams")) or safe.whole(strategy.get("max_concurrency"))
    if not level:
        level = round(_of(metrics, "request_concurrency").get("mean", 1.0)) or 1
    rate = safe.positive(strategy.get("rate")) if _strategy(benchmark) in _OPEN else None
    prompt, output = _of(metrics, "prompt_token_count"), _of(metrics, "output_token_count")
    ok = safe.whole(totals.get("successful")) or int(_of(metrics, "request_latency").get("n", 0))
    failed = safe.whole(totals.get("errored")) or 0
    cut = safe.whole(totals.get("incomplete")) or 0
    context = round(prompt.get("mean", 0.0))
    figures = {ours: safe.scaled(_of(metrics, theirs), factor) for ours, theirs, factor in _FIGURES}
    name = f"{lane}.{context}.c{level}" + (f".r{rate:g}" if rate is not None else "")
    return ToldCell(
        cell=name or f"{lane}.{index}",
        lane=lane,
        concurrency=level,
        context_tok=context,
        context_label=str(context),
        rate_rps=rate,
        sent=ok + failed + cut,
        ok=ok,
        failed=failed,
        prompt_tok=round(prompt["mean"] * ok) if "mean" in prompt else None,
        output_tok=round(output["mean"] * ok) if "mean" in output else None,
        figures=safe.without_empty(figures),
    )


def _of(metrics: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return what is told of a metric over the successful requests."""
    one = safe.mapping(safe.mapping(metrics.get(name)).get("successful"))
    percentiles = safe.mapping(one.get("percentiles"))
    return safe.figure(
        mean=one.get("mean"),
        std=one.get("std_dev"),
        n=one.get("count"),
        min=one.get("min"),
        max=one.get("max"),
        p50=one.get("median", percentiles.get("p50")),
        p90=percentiles.get("p90"),
        p95=percentiles.get("p95"),
        p99=percentiles.get("p99"),
    )


def _requests(requests: Mapping[str, Any]) -> list[RawRequest]:
    found: list[RawRequest] = []
    for status in ("successful", "incomplete", "errored"):
        for one in safe.sequence(requests.get(status)):
            found.append(_request(safe.mapping(one), status))
    return found if any(raw.ttft_s is not None for raw in found) else []


def _request(one: Mapping[str, Any], status: str) -> RawRequest:
    info = safe.mapping(one.get("info"))
    timings = safe.mapping(info.get("timings"))
    start = safe.number(timings.get("request_start"))
    if start is None:
        start = safe.number(one.get("request_start_time"))

    def since(key: str) -> float | None:
        stamp = safe.number(timings.get(key))
        return None if stamp is None or start is None else stamp - start

    output = safe.whole(one.get("output_tokens"))
    if output is None:
        output = safe.whole(safe.mapping(one.get("output_metrics")).get("text_tokens"))
    prompt = safe.whole(one.get("prompt_tokens"))
    if prompt is None:
        prompt = safe.whole(safe.mapping(one.get("input_metrics")).get("text_tokens"))
    return RawRequest(
        start_s=start,
        due_s=safe.number(timings.get("targeted_start")),
        ttft_s=since("first_token_iteration"),
        visible_s=since("first_output_token_iteration"),
        last_s=since("last_token_iteration"),
        end_s=since("request_end"),
        chunks=safe.whole(timings.get("token_iterations")),
        prompt_tok=prompt,
        output_tok=output,
        error=(safe.text(info.get("error")) or "errored") if status == "errored" else None,
        cut=status == "incomplete",
    )

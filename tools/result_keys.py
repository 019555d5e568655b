"""What each key of the result JSON means, its unit and when it is null.

A test compares these tables with the structures: a key without an entry, a nullable one without
its null rule, or a number without a unit fails it. The matrix's tables are in `matrix_keys`.
"""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """A key's meaning, when it is null (empty: never), and its unit where the name has none."""

    meaning: str
    null: str = ""
    unit: str = ""


UNITS = {
    "_ms_per_1000_tok": "ms per 1,000 tokens",
    "_gb_per_s": "Gbit/s",
    "_tok_per_s": "tok/s",
    "_rps": "requests/s",
    "_per_s": "per s",
    "_ms": "ms",
    "_s": "s",
    "_tok": "tokens",
    "_pct": "%",
    "_bytes": "bytes",
}
"""Ending of a key -> its unit; the longest that fits counts."""


def unit_of(name: str, key: Key) -> str:
    """Return a key's unit: its own, else what the end of its name says, else nothing."""
    if key.unit:
        return key.unit
    found = [ending for ending in UNITS if f"_{name}".endswith(ending)]
    return UNITS[max(found, key=len)] if found else ""


NO_COUNTER = "the server has no counter that serves, or it was not read"
NOT_TOLD = "no source told it"
NO_ROUND = "no measured round gave one"

RESULT: dict[str, dict[str, Key]] = {
    "Result": {
        "schema": Key("name and version of this format; a breaking change raises the version"),
        "tool_version": Key("version of concbench that measured"),
        "command": Key("the command that measured, such as `burst`"),
        "study": Key(
            "the study's folder as it was given", "nothing was stored, as for `--dry-run`"
        ),
        "began_utc": Key("when the study was begun, ISO 8601, for labels only", unit="UTC"),
        "interrupted": Key("whether a signal cut the study short"),
        "target": Key("the target where there is exactly one", "there are several, or none"),
        "targets": Key("lane -> what is known of its server"),
        "lanes": Key("lane -> recipe and findings, where the study recorded them"),
        "machine": Key("hardware, kernel, clock source, Python, GPUs, and a fingerprint over them"),
        "workload": Key("what was asked, as far as all cells share it", "no cell was measured"),
        "doubts": Key("reasons to distrust a number, those of cells and those of the whole"),
        "corrections": Key(
            "retractions: `round`, `why`, `by` (the successor), `at_utc`; amendments: ids as "
            "`supersedes` or `superseded_by`, and the other study's `folder` where it was given"
        ),
        "cells": Key("one entry a cell, in the order of the plan"),
        "verdicts": Key("one entry a judgement of two cells; empty where nothing was compared"),
        "crossovers": Key(
            "`metric`, `axis`, `ranges` with the winner of each, `bracket` (null where there is "
            "no single crossover), `lanes`, `point`, `note`, `basis`"
        ),
        "payload": Key(
            "what the command tells beyond cells, such as `matrix`, `asked`, `gate`, `capacity`; "
            "`ran`: `argv` and `seed` of a sweep, ab, find or spec, and where its `plan` is kept; "
            "`unfinished`: true where no end is on record (it was killed, or is running)",
            "the command tells nothing more",
        ),
    },
    "CellResult": {
        "cell": Key("id, unique within the study"),
        "lane": Key("the lane that was asked"),
        "link": Key("the link it was asked over", "the plan names no links"),
        "context_label": Key("how the plan calls that prompt length"),
        "context_tok": Key("prompt length asked for"),
        "concurrency": Key(
            "requests at once, or in flight; the cap in open loops", unit="requests"
        ),
        "rate_rps": Key("rate asked for", "not an open loop, or one that replays a trace"),
        "rounds": Key("measured rounds that stand", unit="count"),
        "outcome": Key("how it ended; anything but `measured` tells why figures are missing"),
        "outcome_detail": Key("what is known of that outcome", "nothing more is known"),
        "ended_by": Key(
            "what ended it: `interval`, `max_s`, `rounds_max`, `timeout`, `interrupt`",
            "not on record, as of imported results",
        ),
        "requests": Key("counts of requests"),
        "tokens": Key("totals of tokens over the `ok` requests"),
        "ledger": Key("output tokens asked, received, generated, foreign"),
        "client": Key("what the client measured"),
        "steady": Key("the window behind the headline"),
        "server": Key("the server's own accounting"),
        "agreement_pct": Key(
            "100 · (client − server) ÷ server over the same window",
            "there is no window, no live counter, or the ledger does not balance",
        ),
        "overlap": Key(
            "(N·T₁ ÷ T_N − 1) ÷ (N − 1): 1 is parallel, 0 no gain from concurrency",
            "N = 1, not a burst, no cell of N = 1, or answers of different length",
            "share",
        ),
        "instrument": Key("the client's own error"),
        "sanity": Key("kept for checks of content", "always: such checks are told as doubts"),
        "decode_at_n": Key("decode@N", "not a closed loop, or N never generated at once"),
        "start_wave": Key(
            "TTFT of each worker's first request", "not a closed loop, or no round", "ms"
        ),
        "saturation": Key(
            "`state` (`stable`, `undetermined`, `saturated`), `queue_slope_per_s`, "
            "`completions_per_arrival`, `asked_rps`, `scheduled_rps`, `sent_rps`, `arrivals`",
            "not an open loop",
        ),
        "goodput": Key(
            "`requests_per_s` (estimate) that met every objective, `attainment_pct`, `requests`, "
            "`missed` by objective",
            "no objectives were given, or no request counts",
        ),
        "host": Key(
            "CPU (cores), memory and swap (bytes) and `gpus` of the client's machine meanwhile",
            "nothing was read",
        ),
    },
    "Requests": {
        "sent": Key("all requests of the measured rounds", unit="count"),
        "ok": Key("answered in full", unit="count"),
        "failed": Key("refused, broken or timed out", unit="count"),
        "incomplete": Key("cut by the end of the round", unit="count"),
        "errors": Key("kind of failure -> how many; sums to `failed`", unit="count"),
        "finish": Key("finish reason -> how many of the `ok`", unit="count"),
    },
    "Tokens": {
        "prompt": Key("prompt tokens, as the server counted", "no answer told it", "tokens"),
        "cached": Key("of them, from the prompt cache", "no answer told it", "tokens"),
        "output": Key("output tokens, reasoning included", unit="tokens"),
        "reasoning": Key("of them, reasoning", "no answer told it", "tokens"),
        "source": Key("where counts are from; of several the least trusted", "nothing was `ok`"),
        "asked_output": Key("output tokens that were asked for", unit="tokens"),
        "per_chunk": Key("output tokens a token event", "no event came", "tokens"),
    },
    "Ledger": {
        "asked": Key("output tokens asked for, in all requests that were sent", unit="tokens"),
        "received": Key("output tokens received, in cut and failed streams too", unit="tokens"),
        "generated": Key("output tokens by the server's counter", NO_COUNTER, "tokens"),
        "foreign": Key("generated for others: what is left over", NO_COUNTER, "tokens"),
    },
    "Client": {
        "output_tok_per_s": Key("whole batch: all output tokens ÷ wall (classic)", NO_ROUND),
        "steady_output_tok_per_s": Key("rate in the window: the headline", "`steady.reason` says"),
        "per_request_tok_per_s": Key("1 ÷ TPOT of each request, answers of 16 tokens and more"),
        "ttft_ms": Key("first token event − sent"),
        "ttft_from_due_ms": Key("first token event − due"),
        "ttfo_ms": Key("first event that is not reasoning − sent"),
        "icl_ms": Key("gaps between token events; n = 0 where the stream was buffered"),
        "itl_ms": Key("those gaps shared out over tokens; n = 0 likewise"),
        "tpot_ms": Key("time per output token after the first event, answers of 16 tokens on"),
        "e2e_ms": Key("last token event − sent"),
        "e2e_from_due_ms": Key("last token event − due"),
        "send_delay_ms": Key("sent − due: the client's own fault"),
        "prefill_tok_per_s": Key(
            "uncached prompt tokens a second, by the slope over two prompt lengths",
            "N is not 1, or a second length was not measured",
        ),
        "decode_tok_per_s": Key("1 ÷ TPOT of one stream alone", "N is not 1, or no TPOT"),
    },
    "Steady": {
        "found": Key("whether there is a window"),
        "estimand": Key("`decode` (burst) or `sustained` (loops)", "no window was found"),
        "reason": Key("why there is no window", "one was found"),
        "start_s": Key("its begin in the first round, from that round's start", "no window"),
        "end_s": Key("its end, likewise", "no window"),
        "steps": Key("decode steps in it, a mean over rounds", "no window", "steps"),
        "method": Key("how its edges were found", "no window"),
        "running": Key("requests in flight in it", "no window"),
        "decoding_mean": Key("streams that generated at once", "nothing generated", "streams"),
        "headline": Key("`client`, or `server` where they disagree", "no window"),
    },
    "Running": {
        "min": Key("the fewest at any instant", unit="requests"),
        "mean": Key("by time", unit="requests"),
        "max": Key("the most at any instant; never above the cap", unit="requests"),
    },
    "Server": {
        "source": Key("`metrics`, `log`, `slots`, or `none`"),
        "output_tok_per_s": Key("rate by its counter over the window, else by its log", NO_COUNTER),
        "running_mean": Key("requests it ran, in the loaded stretch", NOT_TOLD, "requests"),
        "waiting_max": Key("the most that waited", NOT_TOLD, "requests"),
        "queue_ms": Key(
            "`mean`, `p50`, `p95` of waiting; a quantile in an edge bucket is `{le}` or `{gt}`",
            "the server keeps no such histogram, or nothing waited in it",
        ),
        "preemptions": Key("requests put back for lack of KV", NO_COUNTER, "count"),
        "cached_tok": Key("prompt tokens taken from its cache", NO_COUNTER),
        "kv_usage_max": Key("largest use of the KV pool, the fullest replica's", NOT_TOLD, "0..1"),
        "acceptance": Key(
            "`mean_len`, `rate`, `per_position` of drafts, with `content` and `note`",
            "nothing was drafted, or it is not told",
        ),
        "running_max": Key("the most it ran at once", NOT_TOLD, "requests"),
        "scrape_ms": Key("`n`, `failed`, `mean`, `p50`, `max` of reading it", "nothing was read"),
        "log_windows": Key(
            "`n`, `tok_per_s`, `min`, `max` of its log's own reports wholly at N",
            "it writes none, or none was wholly at N",
        ),
    },
    "Instrument": {
        "stamp": Key("`kernel`, or `user` where some round had no kernel stamps"),
        "stamped_pct": Key("reads with a kernel stamp", "nothing was read"),
        "read_lateness_ms": Key("user stamp − kernel stamp of each read"),
        "late_after_stamp_ms": Key("error of an event's time that stamping did not rescue"),
        "loop_lag_ms": Key("lateness of the event loop's ticks"),
        "min_rtt_ms": Key("smallest round trip that TCP saw", "the system does not tell"),
        "client_cpu": Key("CPU that the client used, the busiest round", NOT_TOLD, "CPU s per s"),
        "ceiling_tok_per_s": Key("what this client can take in", "it was not calibrated"),
        "start_spread_ms": Key("last − first sent of a burst, the widest", "no round is a burst"),
        "clock_bound_ms": Key("how well several hosts' clocks agree", "one machine sent all"),
    },
    "DecodeAtN": {
        "tok_per_s": Key("rate while exactly N streams generated", unit="tok/s"),
        "observed_s": Key("how long that was, all segments together"),
        "segments": Key("in how many pieces", unit="count"),
    },
    "VerdictResult": {
        "metric": Key("what is compared, a key of `client` with its quantile where it has one"),
        "better": Key("`higher` or `lower`"),
        "a": Key("lane on side A"),
        "b": Key("lane on side B"),
        "cell_a": Key("its cell"),
        "cell_b": Key("its cell"),
        "concurrency": Key("N of both", unit="requests"),
        "context_tok": Key("prompt length of both"),
        "ratio": Key("figure of b ÷ that of a", "a side has no figure", "ratio"),
        "verdict": Key(
            "`a_faster`, `b_faster`, `equivalent`, `inconclusive`, `drifted`, `not_comparable`, "
            "`invalid`"
        ),
        "why": Key("the reason of a verdict that names no winner", "the interval says it"),
        "n_pairs": Key("pairs behind the ratio", unit="count"),
        "delta": Key("difference that is taken to matter", unit="share"),
        "beyond_delta": Key("whether the 95 % interval lies beyond it"),
        "provisional": Key("whether a side was started once only, or the order was not controlled"),
        "drift_pct": Key("last against first runs of the control", "no control was run"),
        "instrument_error_pct": Key("the client's error in this figure", "it is not known"),
        "unlike": Key("names of what differs between the sides beside what is compared"),
        "accepted": Key("of them, those that `--accept` named"),
        "pairs_needed": Key(
            "pairs that would decide it", "it is decided, or cannot be told", "count"
        ),
        "adjusted": Key("`holm` where several verdicts were judged together", "not adjusted"),
        "corrected": Key("what it was before a retraction", "no retraction touches it"),
        "value_a": Key(
            "A's geometric mean over the pairs", "the ratio rests on no pairs", "metric"
        ),
        "value_b": Key("that of B: `value_b` ÷ `value_a` is `ratio`", "as `value_a`", "metric"),
    },
    "WorkloadResult": {
        "prompt_tokens": Key("prompt length asked for", unit="tokens"),
        "output_tokens": Key("answer length asked for", unit="tokens"),
        "seed": Key("seed of prompts and schedule", unit="none"),
        "arrival": Key("`burst`, `closed`, `constant`, `poisson`, `trace`"),
        "distinct_prompts": Key("whether no two prompts of a round are the same"),
        "content": Key("what the prompts are about; `file` where they were given"),
        "endpoint": Key("`chat` or `completions`"),
        "stream": Key("whether answers were streamed"),
        "temperature": Key("sampling temperature", unit="none"),
        "ignore_eos": Key("whether the engine was asked to go on to the full length"),
        "extra_body": Key("fields added to every request"),
    },
    "LaneResult": {
        "extra": Key("facts that only some engines have"),
        "flags": Key("flags of `argv` by canonical name"),
        "argv": Key("command line, secrets hidden", "it was not started here and is not told"),
        "env": Key("variables set for it, secrets hidden"),
        "reference": Key("recipe file that it is held against", "it names none"),
        "notes": Key("text of the plan", "there is none"),
        "cold_start": Key(
            "`listening_s`, `ready_s`, `first_token_s` from the spawn, `first_request_s`", unit="s"
        ),
        "findings": Key("what lint has against it: `kind`, `code`, `doubt`, `message`, `evidence`"),
    },
    "TargetFacts": {
        "lane": Key("name of the lane"),
        "engine": Key("engine, by its name here; `openai` where it was not recognised"),
        "engine_version": Key("version", NOT_TOLD),
        "base_url": Key("where it was asked"),
        "model": Key("name of the model", NOT_TOLD),
        "launch": Key("command line that started it", "it was not started here and does not tell"),
        "container": Key("runtime, image and the like", "it runs in none that is known"),
        "quantization": Key("of the weights", NOT_TOLD),
        "kv_cache_dtype": Key("data type of the KV cache", NOT_TOLD),
        "max_context_tok": Key("context of one request", NOT_TOLD),
        "slots": Key("requests it runs at once at most", NOT_TOLD, "requests"),
        "kv_capacity_tok": Key("size of the KV pool", NOT_TOLD),
        "memory_bytes": Key("memory that it holds", NOT_TOLD),
        "speculation": Key("kind of speculative decoding", "there is none, or it is not told"),
        "prefix_caching": Key("whether prompts are cached", NOT_TOLD),
        "eager": Key("whether it runs without captured graphs", NOT_TOLD),
        "cold_start_s": Key("spawn to first token", "it was not started here"),
        "first_request_s": Key("how long its first request took", "it was not started here"),
        "teardown": Key("how a container ended", "no container was ended"),
        "facts_from": Key("key -> `endpoint`, `log` or `argv`"),
    },
    "Doubt": {
        "code": Key("stable code, see [Doubts](doubts.md)"),
        "severity": Key("`fatal`, `warning` or `note`"),
        "message": Key("what was seen, what it does to the number, what to do"),
        "cell": Key("the cell it is about", "it is about the whole"),
        "evidence": Key("the figures that raised it"),
    },
    "Estimate": {
        "point": Key("the estimate", unit="as keyed"),
        "low": Key("lower end of the interval", "fewer than 3 rounds", "as keyed"),
        "high": Key("upper end", "fewer than 3 rounds", "as keyed"),
        "confidence": Key("of the interval", unit="share"),
        "n": Key("rounds, or batches inside a loop, as `method` says", unit="count"),
        "method": Key("how the interval was made"),
        "range": Key("`[min, max]` of the rounds", "3 rounds or more", "as keyed"),
    },
    "Summary": {
        "n": Key("values", unit="count"),
        "mean": Key("arithmetic mean", "n = 0", "as keyed"),
        "min": Key("smallest", "n = 0", "as keyed"),
        "max": Key("largest", "n = 0", "as keyed"),
        "p50": Key("nearest rank", "n < 2", "as keyed"),
        "p90": Key("nearest rank", "n < 10", "as keyed"),
        "p95": Key("nearest rank", "n < 20", "as keyed"),
        "p99": Key("nearest rank", "n < 100", "as keyed"),
        "ci": Key(
            "quantile -> `[low, high]`, 95 %, by order statistics; an entry is null where n is "
            "below 6, 36, 72, 368. `mean`, in `per_request_tok_per_s` alone: t interval over "
            "rounds, null with fewer than 3",
            unit="as keyed",
        ),
    },
}
"""Structure -> key -> what it means."""

"""What is known to mislead on vLLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines.reading import GIB, dig, plain, positive, truth
from concbench.engines.spec import Trap
from concbench.engines.spelling import Dialect, read_words

_WORDS = Dialect(
    aliases={"sc": "speculative-config", "cc": "compilation-config", "asc": "api-server-count"}
)
# The largest captured batch, in tokens: 512, and 1024 on SM 10.x, which is not told here.
DEFAULT_GRAPH_CEILING_TOK = 512


def traps(
    facts: Mapping[str, Any],
    argv: Sequence[str] | None,
    env: Mapping[str, str],
    concurrency: int | None,
) -> list[Trap]:
    """Return what to warn of for this lane, at this concurrency where it is known."""
    known = plain(facts)
    flags = None if argv is None else read_words(argv, _WORDS)
    return [
        *_acceptance(known),
        *_slots(known, flags, concurrency),
        *_graphs(known, concurrency),
        *_cache_and_sampling(known, flags),
        *_accounting(flags, env),
        *_memory(known),
    ]


def _acceptance(known: Mapping[str, Any]) -> list[Trap]:
    if known.get("simulated_acceptance") is not True:
        return []
    return [
        Trap(
            "simulated_acceptance",
            "fatal",
            "speculative tokens are accepted by a synthetic rule (rejection_sample_method): the "
            "output is not the model's; remove it from --speculative-config",
        )
    ]


def _slots(
    known: Mapping[str, Any], flags: Mapping[str, Any] | None, concurrency: int | None
) -> list[Trap]:
    found: list[Trap] = []
    slots = positive(known.get("slots"))
    if flags is not None and "max-num-seqs" not in flags:
        found.append(
            Trap(
                "default_max_num_seqs",
                "cap",
                "--max-num-seqs is not set: the default is 1024 from 70 GiB of GPU memory on "
                "(A100 excepted), else 256; set it so that lanes can be compared",
            )
        )
    if slots is not None and concurrency is not None and concurrency > slots:
        found.append(
            Trap(
                "slots_below_concurrency",
                "cap",
                f"at most {slots} requests run at once (--max-num-seqs): of {concurrency} "
                f"the rest waits; raise it or lower the concurrency",
            )
        )
    queued = positive((flags or {}).get("max-num-queued-reqs"))
    if queued is not None and concurrency is not None and concurrency > queued + (slots or 0):
        found.append(
            Trap(
                "queue_limit",
                "cap",
                f"--max-num-queued-reqs {queued} answers 503 to what does not fit the queue; "
                f"raise it for {concurrency} at once",
            )
        )
    return found


def _graphs(known: Mapping[str, Any], concurrency: int | None) -> list[Trap]:
    if known.get("eager") is True:
        return [
            Trap(
                "eager",
                "unfair",
                "CUDA graphs are off (--enforce-eager or cudagraph_mode NONE): decode is slower "
                "than this engine can; leave it out unless the model needs it",
            )
        ]
    found: list[Trap] = []
    per_step = 1 + (positive(known.get("speculation_tok")) or 0)
    slots = positive(known.get("slots"))
    ceiling = positive(known.get("cuda_graph_max_tok"))
    if ceiling is None:
        ceiling = DEFAULT_GRAPH_CEILING_TOK
        ceiling = ceiling if slots is None else min(slots * per_step * 2, ceiling)
    running = min(filter(None, (concurrency, slots)), default=None)
    if running is not None and running * per_step > ceiling:
        found.append(
            Trap(
                "graph_ceiling",
                "cap",
                f"CUDA graphs reach to {ceiling} tokens a step, but {running} sequences of "
                f"{per_step} token(s) need {running * per_step}: above it decode runs eagerly; "
                f"raise --max-cudagraph-capture-size",
            )
        )
    if slots is not None and slots > 8 and slots % 8:
        found.append(
            Trap(
                "slots_not_multiple_of_8",
                "unfair",
                f"--max-num-seqs {slots} is not a multiple of 8, which has cost full CUDA graphs; "
                f"use {slots - slots % 8} or {slots + 8 - slots % 8}",
            )
        )
    return found


def _cache_and_sampling(known: Mapping[str, Any], flags: Mapping[str, Any] | None) -> list[Trap]:
    found: list[Trap] = []
    if known.get("prefix_caching") is True:
        found.append(
            Trap(
                "prefix_caching_on",
                "unfair",
                "the prefix cache is on: repeated prompts have inflated throughput by up to 86 %; "
                "keep prompts distinct, reset it, or use --no-enable-prefix-caching",
            )
        )
    if known.get("generation_config") == "auto":
        found.append(
            Trap(
                "generation_config_auto",
                "unfair",
                "--generation-config auto applies the model's own sampling defaults, and its "
                "max_new_tokens limits every answer; use --generation-config vllm",
            )
        )
    interval = positive((flags or {}).get("stream-interval"))
    if interval is not None and interval > 1:
        found.append(
            Trap(
                "stream_interval",
                "unfair",
                f"--stream-interval {interval} holds tokens back: gaps between chunks are not "
                f"gaps between tokens; use 1",
            )
        )
    return found


def _accounting(flags: Mapping[str, Any] | None, env: Mapping[str, str]) -> list[Trap]:
    found: list[Trap] = []
    given = flags or {}
    if truth(given.get("disable-log-stats")):
        found.append(
            Trap(
                "no_metrics",
                "lane_incomplete",
                "--disable-log-stats switches the metrics off: the server's own count is "
                "missing; remove it",
            )
        )
    if (positive(given.get("api-server-count")) or 1) > 1:
        found.append(
            Trap(
                "no_stats_log",
                "lane_incomplete",
                "with --api-server-count above 1 no statistics are logged; the counters of "
                "/metrics are used alone",
            )
        )
    if truth(env.get("VLLM_USE_RUST_FRONTEND")):
        found.append(
            Trap(
                "rust_frontend",
                "lane_incomplete",
                "VLLM_USE_RUST_FRONTEND is experimental and does not tell the KV cache's size; "
                "unset it",
            )
        )
    if dig(given.get("speculative-config"), "disable_by_batch_size") is not None:
        found.append(
            Trap(
                "speculation_stops",
                "cap",
                "speculation is switched off above disable_by_batch_size: the curve over "
                "concurrency mixes two engines",
            )
        )
    return found


def _memory(known: Mapping[str, Any]) -> list[Trap]:
    unused = positive(known.get("kv_unused_bytes"))
    if unused is None or unused < GIB:
        return []
    return [
        Trap(
            "uneven_ranks",
            "cap",
            f"the smallest GPU sets the KV cache of every rank: {unused / GIB:.1f} GiB on the "
            f"others stay unused",
        )
    ]

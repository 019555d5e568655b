"""What is known to mislead on SGLang."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines.reading import plain, positive
from concbench.engines.sglang_words import DIALECT
from concbench.engines.spec import Trap
from concbench.engines.spelling import read_words

SPECULATION_CLAMP = 48


def traps(
    facts: Mapping[str, Any],
    argv: Sequence[str] | None,
    env: Mapping[str, str],
    concurrency: int | None,
) -> list[Trap]:
    """Return what to warn of for this lane, at this concurrency where it is known."""
    known = plain(facts)
    flags = None if argv is None else read_words(argv, DIALECT)
    return [
        *_acceptance(known, env),
        *_graphs(known, flags, concurrency),
        *_slots(known, flags, concurrency),
        *_settings(known),
    ]


def _acceptance(known: Mapping[str, Any], env: Mapping[str, str]) -> list[Trap]:
    simulated = env.get("SGLANG_SIMULATE_ACC_LEN") or env.get("SIMULATE_ACC_LEN")
    on = simulated not in (None, "", "0", "-1") or known.get("simulated_acceptance") is True
    if not on:
        return []
    return [
        Trap(
            "simulated_acceptance",
            "fatal",
            "SGLANG_SIMULATE_ACC_LEN makes up how many drafts are accepted: the output is not the "
            "model's; unset it",
        )
    ]


def _graphs(
    known: Mapping[str, Any], flags: Mapping[str, Any] | None, concurrency: int | None
) -> list[Trap]:
    if known.get("eager") is True:
        return [
            Trap(
                "eager",
                "unfair",
                "--disable-cuda-graph makes decode slower than this engine can; leave it out "
                "unless the model needs it",
            )
        ]
    ceiling = positive(known.get("cuda_graph_max_seqs"))
    if ceiling is not None and concurrency is not None and concurrency > ceiling:
        return [
            Trap(
                "graph_ceiling",
                "cap",
                f"CUDA graphs reach to {ceiling} sequences: above it decode runs eagerly, at "
                f"about four times the cost a token; set --cuda-graph-max-bs {concurrency}",
            )
        ]
    if ceiling is None and flags is not None and (concurrency is None or concurrency > 8):
        return [
            Trap(
                "graph_ceiling_unknown",
                "cap",
                "--cuda-graph-max-bs is not set: the default follows the GPU's memory (under "
                "20 GiB 8, under 35 GiB 48, under 60 GiB 32, under 160 GiB 256, else 512); watch "
                "the log for `cuda graph: False`, and set it to the concurrency",
            )
        ]
    return []


def _slots(
    known: Mapping[str, Any], flags: Mapping[str, Any] | None, concurrency: int | None
) -> list[Trap]:
    found: list[Trap] = []
    slots = positive(known.get("slots"))
    asked = positive((flags or {}).get("max-running-requests"))
    speculates = known.get("speculation") not in (None, "none")
    if speculates and flags is not None and asked is None:
        found.append(
            Trap(
                "speculation_clamp",
                "cap",
                f"speculation without --max-running-requests runs at most {SPECULATION_CLAMP} "
                f"requests (over all replicas together); set it",
            )
        )
    if asked is not None and slots is not None and slots < asked:
        found.append(
            Trap(
                "slots_reduced",
                "cap",
                f"{asked} running requests were asked for and {slots} fit (KV or Mamba capacity "
                f"reduces them with no more than a log line)",
            )
        )
    if slots is not None and concurrency is not None and concurrency > slots:
        found.append(
            Trap(
                "slots_below_concurrency",
                "cap",
                f"at most {slots} requests run at once: of {concurrency} the rest waits; raise "
                f"--max-running-requests or lower the concurrency",
            )
        )
    queued = positive((flags or {}).get("max-queued-requests"))
    if queued is not None and concurrency is not None and concurrency > queued + (slots or 0):
        found.append(
            Trap(
                "queue_limit",
                "cap",
                f"--max-queued-requests {queued} refuses what does not fit the queue, in a stream "
                f"as an error inside a 200; raise it for {concurrency} at once",
            )
        )
    return found


def _settings(known: Mapping[str, Any]) -> list[Trap]:
    found: list[Trap] = []
    if known.get("prefix_caching") is True:
        found.append(
            Trap(
                "prefix_caching_on",
                "unfair",
                "the radix cache is on: repeated prompts are not computed again; keep prompts "
                "distinct, flush it, or use --disable-radix-cache",
            )
        )
    if known.get("auto_truncate") is True:
        found.append(
            Trap(
                "truncates_silently",
                "unfair",
                "--allow-auto-truncate shortens prompts that do not fit instead of refusing them; "
                "leave it out",
            )
        )
    if known.get("metrics_on") is False:
        found.append(
            Trap(
                "no_metrics",
                "lane_incomplete",
                "the server's counters are off; start it with --enable-metrics",
            )
        )
    return found

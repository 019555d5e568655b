"""What is known to mislead on llama.cpp's server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines.llamacpp_words import DIALECT
from concbench.engines.reading import plain, positive, truth
from concbench.engines.spec import Trap
from concbench.engines.spelling import read_words


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
        *_context(known, flags),
        *_slots(known, concurrency),
        *_settings(known, flags or {}),
        *_accounting(known),
        *_router(known),
    ]


def _acceptance(known: Mapping[str, Any], env: Mapping[str, str]) -> list[Trap]:
    by_env = any(env.get(f"LLAMA_ARG_SPEC_SYNTH_{name}") for name in ("LEN", "RATES"))
    if known.get("simulated_acceptance") is not True and not by_env:
        return []
    return [
        Trap(
            "simulated_acceptance",
            "fatal",
            "drafts are accepted at a synthetic rate (--spec-synth-len or --spec-synth-rates): "
            "the output is not the model's; remove it",
        )
    ]


def _context(known: Mapping[str, Any], flags: Mapping[str, Any] | None) -> list[Trap]:
    found: list[Trap] = []
    slots, context = positive(known.get("slots")), positive(known.get("max_context_tok"))
    if slots is not None and slots > 1:
        if known.get("kv_unified") is False:
            each = "" if context is None else f", which leaves {context} tokens to each"
            found.append(
                Trap(
                    "context_split",
                    "cap",
                    f"the context is split over {slots} slots{each}: prompt and answer must fit "
                    f"there; raise -c, or use --kv-unified",
                )
            )
        elif known.get("kv_unified") is True:
            found.append(
                Trap(
                    "context_shared",
                    "cap",
                    f"{slots} slots share one KV cache although each reports all of it: when it "
                    f"runs out, all active requests fail together; keep the sum of contexts below "
                    f"it",
                )
            )
    asked = positive((flags or {}).get("ctx-size"))
    total = positive(known.get("kv_capacity_tok"))
    if asked is not None and total is not None and total < asked:
        found.append(
            Trap(
                "context_reduced",
                "cap",
                f"{asked} tokens of context were asked for and {total} are there (--fit shrinks "
                f"what does not fit); free memory or ask for less",
            )
        )
    return found


def _slots(known: Mapping[str, Any], concurrency: int | None) -> list[Trap]:
    slots = positive(known.get("slots"))
    if slots is None or concurrency is None or concurrency <= slots:
        return []
    return [
        Trap(
            "slots_below_concurrency",
            "cap",
            f"{slots} slots serve {concurrency} requests: the rest waits silently; start with "
            f"-np {concurrency}, or lower the concurrency",
        )
    ]


def _settings(known: Mapping[str, Any], flags: Mapping[str, Any]) -> list[Trap]:
    found: list[Trap] = []
    if known.get("context_shift") is True:
        found.append(
            Trap(
                "context_shift",
                "unfair",
                "with --context-shift a long answer silently loses the start of its context; use "
                "--no-context-shift",
            )
        )
    if truth(flags.get("cont-batching")) is False:
        found.append(
            Trap(
                "no_continuous_batching",
                "unfair",
                "--no-cont-batching makes a request wait until the running batch is done",
            )
        )
    idle_s = positive(flags.get("sleep-idle-seconds"))
    if idle_s is not None or known.get("sleeping") is True:
        found.append(
            Trap(
                "sleeps_when_idle",
                "unfair",
                "the model is unloaded when idle, and the next request pays for loading it; drop "
                "--sleep-idle-seconds",
            )
        )
    if truth(flags.get("slots")) is False or known.get("slots_on") is False:
        found.append(
            Trap(
                "no_slots_endpoint",
                "lane_incomplete",
                "/slots is off, the only count that moves while requests run; drop --no-slots "
                "(older builds: add --slots)",
            )
        )
    return found


def _accounting(known: Mapping[str, Any]) -> list[Trap]:
    if known.get("metrics_on") is not False:
        return []
    return [
        Trap(
            "no_metrics",
            "lane_incomplete",
            "the server's counters are off; start it with --metrics",
        )
    ]


def _router(known: Mapping[str, Any]) -> list[Trap]:
    if known.get("router") is not True or known.get("autoload") is False:
        return []
    return [
        Trap(
            "loads_on_demand",
            "unfair",
            "the router loads a model at its first request and may unload it for another; load it "
            "beforehand (POST /models/load) and use one model only",
        )
    ]

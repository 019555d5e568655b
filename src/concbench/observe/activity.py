"""Finished requests as proxies and desktop servers tell of them.

llama-swap lists them at `/api/metrics/activity`; Ollama and LM Studio put statistics into the last
object of their native answers. Counts below 0 mean unknown, and unknown is absent, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from concbench.domain import ServerSample
from concbench.engines.reading import dig, number

_ACTIVITY = {
    "input_tok": ("tokens", "input_tokens"),
    "output_tok": ("tokens", "output_tokens"),
    "cached_tok": ("tokens", "cache_tokens"),
    "spec_draft_tok": ("tokens", "draft_tokens"),
    "spec_accepted_tok": ("tokens", "draft_acc_tokens"),
    "prompt_tok_per_s": ("tokens", "prompt_per_second"),
    "output_tok_per_s": ("tokens", "tokens_per_second"),
    "ms": ("duration_ms",),
    "http_status": ("resp_status_code",),
}
# Releases v150 to v200 had the tokens beside the rest.
_FLAT = {name: path[-1:] for name, path in _ACTIVITY.items()}

_OLLAMA = {
    "total_ms": ("total_duration", 1e-6),
    "load_ms": ("load_duration", 1e-6),
    "prompt_tok": ("prompt_eval_count", 1.0),
    "prompt_ms": ("prompt_eval_duration", 1e-6),
    "output_tok": ("eval_count", 1.0),
    "output_ms": ("eval_duration", 1e-6),
}
_LM_STUDIO = {
    "prompt_tok": ("input_tokens", 1.0),
    "output_tok": ("total_output_tokens", 1.0),
    "reasoning_tok": ("reasoning_output_tokens", 1.0),
    "output_tok_per_s": ("tokens_per_second", 1.0),
    "ttft_ms": ("time_to_first_token", 1e3),
    "output_ms": ("generation_time", 1e3),
}


def read_activity(body: bytes) -> dict[str, dict[str, float]] | None:
    """Return known quantities by the request's id; None for what is no list of requests."""
    value = _json(body)
    entries = value if isinstance(value, list) else dig(value, "data")
    if not isinstance(entries, list):
        return None
    found: dict[str, dict[str, float]] = {}
    for entry in entries:
        identity = dig(entry, "id")
        if isinstance(identity, (int, str)) and not isinstance(identity, bool):
            found[str(identity)[:64]] = {
                name: known
                for name, path in _ACTIVITY.items()
                if (known := _known(_either(entry, path, _FLAT[name]))) is not None
            }
    return found


class ActivityRows:
    """Tells each request once; those on the first list were there before."""

    def __init__(self) -> None:
        self._told: set[str] | None = None

    def rows(
        self, listed: Mapping[str, Mapping[str, float]], sent_ns: int, received_ns: int
    ) -> Iterator[ServerSample]:
        """Yield `activity_NAME` rows of the requests that are new on this list."""
        if self._told is None:
            self._told = set(listed)
            return
        for identity, values in listed.items():
            if identity in self._told:
                continue
            for name, value in values.items():
                yield ServerSample(
                    sent_ns=sent_ns,
                    received_ns=received_ns,
                    source="activity",
                    name=f"activity_{name}",
                    labels=f"id={identity.replace(',', '_').replace('=', '_')}",
                    value=value,
                )
        self._told |= set(listed)


def final_stats(body: bytes | Mapping[str, Any]) -> dict[str, float]:
    """Return what Ollama's or LM Studio's last object says of its request, by canonical name.

    Durations are in ms. `prompt_tok` is absent where Ollama took the prompt from its cache and
    left the count out: there is no prefill rate then.
    """
    value = _json(body) if isinstance(body, bytes) else body
    if not isinstance(value, Mapping):
        return {}
    stats = value.get("stats")
    if isinstance(stats, Mapping):
        found = _scaled(stats, _LM_STUDIO)
        seconds = _known(stats.get("time_to_first_token_seconds"))
        return found if seconds is None else {**found, "ttft_ms": seconds * 1e3}
    return _scaled(value, _OLLAMA)


def _scaled(value: Mapping[str, Any], names: Mapping[str, tuple[str, float]]) -> dict[str, float]:
    return {
        name: known * scale
        for name, (key, scale) in names.items()
        if (known := _known(value.get(key))) is not None
    }


def _either(entry: object, nested: tuple[str, ...], flat: tuple[str, ...]) -> object:
    found = dig(entry, *nested)
    return dig(entry, *flat) if found is None else found


def _known(value: object) -> float | None:
    known = number(value) if isinstance(value, (int, float)) else None
    return None if known is None or known < 0 else known


def _json(body: bytes) -> Any:  # noqa: ANN401 - JSON has no narrower type
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None

"""What differs between two lanes, and which of it makes a comparison unfair. Pure.

An unknown side is never a difference: it is listed apart (`known` is False), since a guess would
either void a good verdict or let a bad one pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from concbench.domain import TargetFacts

ACCEPTABLE = (
    "quantization",
    "kv_cache_dtype",
    "context",
    "slots",
    "prompt_cache",
    "output_length",
    "sampling",
    "eager",
    "speculation",
    "acceptance",
    "order",
    "model",
)
"""The names that `--accept` takes; each makes a comparison unfair until it is accepted."""

OUTPUT_LENGTH_WITHIN = 0.02
HIT_RATE_WITHIN = 0.01
ACCEPTANCE_WITHIN = 0.05

_SIXTEEN_BIT = frozenset({"auto", "f16", "fp16", "bf16", "float16", "bfloat16", "half"})
_UNQUANTIZED = frozenset({"f16", "fp16", "bf16", "float16", "bfloat16", "half", "none"})
_SWITCHED_ON = frozenset({"true", "on", "1", "yes"})

# Flags by the name under which their difference is unfair; what is not here is a setting to tune.
_FLAGS: tuple[tuple[str, str], ...] = (
    (r"kv-cache-dtype|cache-type-[kv]", "kv_cache_dtype"),
    (r"max-model-len|ctx-size|context-length|max-seq-len|max-total-tokens", "context"),
    (r"max-num-seqs|parallel|max-running-requests|max-batch-size|max-concurrent-requests", "slots"),
    (r"enable-prefix-caching|disable-radix-cache|cache-prompt|cache-reuse", "prompt_cache"),
    (r"spec-.*|speculative-.*|draft.*|num-speculative-tokens", "speculation"),
    (r"enforce-eager|disable-cuda-graph|compilation-config", "eager"),
    (r"generation-config|override-generation-config|sampling-defaults", "sampling"),
    (r"temp(erature)?|top-[kp]|min-p|repeat-penalty|repetition-penalty", "sampling"),
    (r"quantization|load-format", "quantization"),
)
_NOT_COMPARED = frozenset(
    {"model", "model-path", "model-tag", "port", "host", "alias", "served-model-name", "listen"}
)
_IDLE_NAMES = re.compile(
    r"(?i)[-_. ]*(?<![a-z0-9])((?:ud-)?i?q\d(?:_[a-z0-9]+)*|mxfp\d|nvfp4|fp8|bf16|f16|fp16|f32|"
    r"(?:int|w)\d+(?:a\d+)?|autoround|awq|gptq|exl\d|gguf|safetensors|imatrix|bnb|\d+-?bit)"
    r"(?![a-z0-9])"
)


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that differs. `unfair`: no verdict unless it is accepted by its name.

    `known` False: one side does not tell, which is no difference.
    """

    name: str
    a: Any
    b: Any
    unfair: bool
    known: bool = True


class Measured(Struct, frozen=True, kw_only=True):
    """What was measured of a lane's cell, as far as fairness depends on it; None is unknown."""

    output_tok_median: float | None = None
    finish: Mapping[str, int] = {}
    hit_rate: float | None = None
    acceptance_len: float | None = None


def unlike(
    a: TargetFacts,
    b: TargetFacts,
    extra_a: Mapping[str, Any] | None = None,
    extra_b: Mapping[str, Any] | None = None,
    flags_a: Mapping[str, Any] | None = None,
    flags_b: Mapping[str, Any] | None = None,
) -> list[Difference]:
    """Return what differs between two lanes, the unfair first.

    `extra` are the facts beyond `TargetFacts`, `flags` the canonical flags. Flags are compared only
    between lanes of one engine: another engine's have other names.
    """
    more_a, more_b = extra_a or {}, extra_b or {}
    found = [
        *_by_facts(a, b),
        *_model(a, b, more_a, more_b),
        *_sampling(more_a, more_b),
        *_acceptance(more_a, more_b),
    ]
    found += _settings(a, b, more_a, more_b)
    if a.engine == b.engine:
        seen = {one.name for one in found if one.known and one.unfair}
        found += _flags(flags_a or {}, flags_b or {}, seen, _decided(a, b))
    return sorted(found, key=lambda one: (not one.unfair, not one.known))


def unfair_names(differences: list[Difference]) -> list[str]:
    """Return the names of what makes a comparison unfair, each once, in the contract's order."""
    names = {one.name for one in differences if one.unfair}
    return [name for name in ACCEPTABLE if name in names]


def unlike_measured(a: Measured, b: Measured, *, interleaved: bool = True) -> list[Difference]:
    """Return what differs in what was measured: answers' lengths, cache hits, acceptance, order."""
    found: list[Difference] = []
    if _apart(a.output_tok_median, b.output_tok_median, OUTPUT_LENGTH_WITHIN):
        found.append(_unfair("output_length", a.output_tok_median, b.output_tok_median))
    elif a.finish and b.finish and _apart_shares(a.finish, b.finish):
        found.append(_unfair("output_length", dict(a.finish), dict(b.finish)))
    rates = (a.hit_rate, b.hit_rate)
    if None not in rates and abs((rates[0] or 0.0) - (rates[1] or 0.0)) >= HIT_RATE_WITHIN:
        found.append(_unfair("prompt_cache", a.hit_rate, b.hit_rate))
    if _apart(a.acceptance_len, b.acceptance_len, ACCEPTANCE_WITHIN):
        found.append(_unfair("acceptance", a.acceptance_len, b.acceptance_len))
    if not interleaved:
        found.append(_unfair("order", "one after the other", "one after the other"))
    return found


def _by_facts(a: TargetFacts, b: TargetFacts) -> list[Difference]:
    """Compare the facts that have a name of their own."""
    compared: tuple[tuple[str, object, object, Callable[[object], object]], ...] = (
        ("quantization", a.quantization, b.quantization, _quantization),
        ("kv_cache_dtype", a.kv_cache_dtype, b.kv_cache_dtype, _kv_dtype),
        ("context", a.max_context_tok, b.max_context_tok, _same),
        ("slots", a.slots, b.slots, _same),
        ("prompt_cache", a.prefix_caching, b.prefix_caching, _same),
        ("speculation", a.speculation, b.speculation, _word),
    )
    found = [
        made
        for name, left, right, read in compared
        if (made := _compare(name, left, right, read)) is not None
    ]
    # Not every engine has graphs to switch off: only one that says `eager` is slower than it can.
    if a.eager is not b.eager and True in (a.eager, b.eager):
        found.append(_unfair("eager", a.eager, b.eager))
    return found


def _model(
    a: TargetFacts, b: TargetFacts, extra_a: Mapping[str, Any], extra_b: Mapping[str, Any]
) -> list[Difference]:
    """Compare models: by their files' hash, else by name without what tells the quantization."""
    hashes = extra_a.get("model_hash"), extra_b.get("model_hash")
    if hashes[0] is not None and hashes[0] == hashes[1]:
        return []
    names = tuple(
        _word(extra.get("model_path") or facts.model)
        for facts, extra in ((a, extra_a), (b, extra_b))
    )
    sizes = _whole(extra_a.get("parameters")), _whole(extra_b.get("parameters"))
    if names[0] is None or names[1] is None:
        return [Difference(name="model", a=a.model, b=b.model, unfair=False, known=False)]
    same_size = None in sizes or _apart(sizes[0], sizes[1], 0.01) is False
    if bare_model(names[0]) == bare_model(names[1]) and same_size:
        return []
    return [_unfair("model", a.model or names[0], b.model or names[1])]


def bare_model(name: str) -> str:
    """Return a model's name without folder, owner, quantization and file type, in lower case."""
    last = re.sub(r"\.(gguf|safetensors)$", "", name.lower()).rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"[-_. ]+", "-", _IDLE_NAMES.sub("", last)).strip("-")


def _sampling(extra_a: Mapping[str, Any], extra_b: Mapping[str, Any]) -> list[Difference]:
    """Compare the defaults that the server applies to what a request leaves open."""
    left, right = extra_a.get("sampling_defaults"), extra_b.get("sampling_defaults")
    if not isinstance(left, Mapping) or not isinstance(right, Mapping):
        told = left or extra_a.get("generation_config"), right or extra_b.get("generation_config")
        if told == (None, None):
            return []
        return [Difference(name="sampling", a=told[0], b=told[1], unfair=False, known=False)]
    shared = left.keys() & right.keys()
    differs = {key for key in shared if _number(left[key]) != _number(right[key])}
    if not differs:
        return []
    return [
        _unfair(
            "sampling",
            {key: left[key] for key in sorted(differs)},
            {key: right[key] for key in sorted(differs)},
        )
    ]


def _acceptance(extra_a: Mapping[str, Any], extra_b: Mapping[str, Any]) -> list[Difference]:
    sides = extra_a.get("simulated_acceptance"), extra_b.get("simulated_acceptance")
    if True not in sides:
        return []
    return [_unfair("acceptance", *("simulated" if one is True else "real" for one in sides))]


def _settings(
    a: TargetFacts, b: TargetFacts, extra_a: Mapping[str, Any], extra_b: Mapping[str, Any]
) -> list[Difference]:
    """Compare what is there to be compared, or told so that it is seen: none of it is unfair."""
    pairs: list[tuple[str, Any, Any]] = [
        ("engine", a.engine, b.engine),
        ("engine_version", a.engine_version, b.engine_version),
        ("kv_capacity_tok", a.kv_capacity_tok, b.kv_capacity_tok),
        ("memory_bytes", a.memory_bytes, b.memory_bytes),
        ("container", _boxed(a), _boxed(b)),
    ]
    pairs += [
        (name, extra_a.get(name), extra_b.get(name))
        for name in (
            "weights_bytes",
            "parameters",
            "tensor_parallel",
            "pipeline_parallel",
            "data_parallel",
            "kv_unified",
            "flash_attention",
            "gpu_memory_utilization",
            "inflight_limit",
        )
    ]
    return [
        Difference(name=name, a=left, b=right, unfair=False)
        for name, left, right in pairs
        if left != right and left is not None and right is not None
    ]


def _decided(a: TargetFacts, b: TargetFacts) -> set[str]:
    """Return the names that facts of both sides settle, whatever flags brought them about.

    `-c 4096 -np 4` and `-c 2048 -np 2` give every request the same context.
    """
    return {
        name
        for name, field in (
            ("context", "max_context_tok"),
            ("slots", "slots"),
            ("kv_cache_dtype", "kv_cache_dtype"),
            ("quantization", "quantization"),
        )
        if getattr(a, field) is not None and getattr(b, field) is not None
    }


def _flags(
    flags_a: Mapping[str, Any], flags_b: Mapping[str, Any], seen: set[str], decided: set[str]
) -> list[Difference]:
    """Compare flags of one engine; what the facts told already under its name is not repeated."""
    found: list[Difference] = []
    for flag in sorted({*flags_a, *flags_b} - _NOT_COMPARED):
        left, right = flags_a.get(flag), flags_b.get(flag)
        if _flag_value(left) == _flag_value(right):
            continue
        name = next((name for names, name in _FLAGS if re.fullmatch(names, flag)), None)
        if name in seen:
            continue
        unfair = name is not None and name not in decided
        shown = name if name is not None and unfair else f"--{flag}"
        found.append(Difference(name=shown, a=left, b=right, unfair=unfair))
    return found


def _compare(
    name: str, left: object, right: object, read: Callable[[object], object]
) -> Difference | None:
    if left is None and right is None:
        return None
    if left is None or right is None:
        return Difference(name=name, a=left, b=right, unfair=False, known=False)
    return None if read(left) == read(right) else _unfair(name, left, right)


def _unfair(name: str, a: object, b: object) -> Difference:
    return Difference(name=name, a=a, b=b, unfair=True)


def _quantization(value: object) -> str:
    text = str(value).lower().replace("-", "").replace("_", "")
    return "16 bit" if text in _UNQUANTIZED else text


def _kv_dtype(value: object) -> str:
    text = str(value).lower()
    return "16 bit" if text in _SIXTEEN_BIT else text.removesuffix("_e4m3")


def _word(value: object) -> str | None:
    return None if value is None else str(value).strip().lower()


def _same(value: object) -> object:
    return value


def _number(value: object) -> object:
    # Engines print 0.1 as 0.10000000149, having kept it as 32-bit float.
    return float(f"{value:.6g}") if isinstance(value, (int, float)) else value


def _whole(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


def _flag_value(value: object) -> object:
    if isinstance(value, bool) or str(value).lower() in _SWITCHED_ON:
        return str(value).lower() in _SWITCHED_ON
    try:
        return float(str(value))
    except ValueError:
        return value


def _boxed(facts: TargetFacts) -> str:
    return "container" if facts.container else "process"


def _apart(a: float | None, b: float | None, within: float) -> bool:
    """Return whether two known numbers differ by more than a share of the larger."""
    if a is None or b is None or not (math.isfinite(a) and math.isfinite(b)):
        return False
    return abs(a - b) > within * max(abs(a), abs(b))


def _apart_shares(a: Mapping[str, int], b: Mapping[str, int]) -> bool:
    """Return whether the shares of finish reasons differ by more than 2 % of the answers."""
    totals = sum(a.values()), sum(b.values())
    if not all(totals):
        return False
    return any(
        abs(a.get(key, 0) / totals[0] - b.get(key, 0) / totals[1]) > OUTPUT_LENGTH_WITHIN
        for key in {*a, *b}
    )

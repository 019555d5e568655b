"""llama.cpp's `llama-server`, with or without its router.

`describe` knows beyond `TargetFacts`: `model_path`, `parameters`, `weights_bytes`,
`total_context_tok`, `trained_context_tok`, `kv_unified`, `kv_bytes`, `speculation_tok`,
`speculation_draft`, `simulated_acceptance`, `sampling_defaults`, `flash_attention`,
`context_shift`, `metrics_on`, `slots_on`, `sleeping`, `router`, `autoload`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.engines.failures import COMMON, GPU
from concbench.engines.llamacpp_log import kv_dtype, parse_log
from concbench.engines.llamacpp_metrics import METRICS
from concbench.engines.llamacpp_traps import traps
from concbench.engines.llamacpp_words import DIALECT
from concbench.engines.reading import (
    as_json,
    as_object,
    body_has,
    dig,
    facts,
    first_model,
    merge,
    objects,
    owner,
    positive,
    truth,
    word,
)
from concbench.engines.spec import Answer, EngineSpec, Fact, LogRecord, StartFailure
from concbench.engines.spelling import read_words, spell

CONTEXT_PAD_TOK = 256
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "n_predict", "seed")


def recognise(answers: Mapping[str, Answer]) -> int:
    """Surely by the `Server` header, `/props`, or `owned_by`; perhaps by its loading message."""
    if any(answer.headers.get("server", "").startswith("llama.cpp") for answer in answers.values()):
        return 2
    props = as_object(answers.get("/props"))
    if {"build_info", "total_slots", "default_generation_settings"} & set(props):
        return 2
    if props.get("role") == "router" or owner(answers) == "llamacpp":
        return 2
    if body_has(answers.get("/metrics"), b"llamacpp:"):
        return 2
    return 1 if any(_says_loading(answer) for answer in answers.values()) else 0


def _says_loading(answer: Answer) -> bool:
    return answer.status == 503 and b"Loading model" in answer.body


def loading(answer: Answer) -> bool:
    """Say whether an answer means 'not yet': a 503 counts only while it names the loading."""
    return answer.status in (0, 502, 504) or _says_loading(answer)


def describe(
    answers: Mapping[str, Answer], argv: Sequence[str] | None, log_lines: Sequence[str]
) -> dict[str, Fact]:
    """Return what the server, its start-up log and its command line tell, in that order."""
    flags = read_words(argv, DIALECT)
    log = _from_log([record for line in log_lines if (record := parse_log(line))])
    known = merge(
        _from_endpoints(answers), log, facts("argv", **_from_flags(flags)), _speculates(answers)
    )
    if argv is not None:
        known = merge(known, _defaults(flags, known))
    return merge(known, _capacity(known, flags))


def to_argv(flags: Mapping[str, Any]) -> list[str]:
    """Return the words for `llama-server`; lists joined with commas, except repeated flags."""
    return spell(flags, DIALECT)


def request_fields(ignore_eos: bool, stream: bool) -> dict[str, Any]:  # noqa: FBT001 - EngineSpec's
    """Forbid reuse of an earlier prompt's cache, and ask for the full length and for usage."""
    fields: dict[str, Any] = {"cache_prompt": False}
    if ignore_eos:
        fields["ignore_eos"] = True
    if stream:
        fields["stream_options"] = {"include_usage": True}
    return fields


def _from_endpoints(answers: Mapping[str, Answer]) -> dict[str, Fact]:
    props = as_object(answers.get("/props"))
    if props.get("role") == "router":
        return _from_router(props, answers)
    settings = props.get("default_generation_settings")
    params = dig(settings, "params")
    params = params if isinstance(params, dict) else {}
    slots = as_json(answers.get("/slots"))
    card = first_model(answers)
    size = positive(dig(card, "meta", "n_ctx"))
    return merge(
        facts(
            "endpoint:/props",
            engine_version=word(props.get("build_info")),
            model=word(props.get("model_alias")) or word(props.get("model_path")),
            model_path=word(props.get("model_path")),
            quantization=word(props.get("model_ftype")),
            max_context_tok=positive(dig(settings, "n_ctx")),
            slots=positive(props.get("total_slots")),
            sampling_defaults={key: params[key] for key in _SAMPLING if key in params} or None,
            metrics_on=truth(props.get("endpoint_metrics")),
            slots_on=truth(props.get("endpoint_slots")),
            sleeping=truth(props.get("is_sleeping")),
        ),
        facts(
            "endpoint:/slots",
            slots=len(slots) if isinstance(slots, list) and slots else None,
            max_context_tok=positive(dig(slots, 0, "n_ctx")),
            speculation="none" if dig(slots, 0, "speculative") is False else None,
        ),
        facts(
            "endpoint:/v1/models",
            model=word(card.get("id")),
            parameters=positive(dig(card, "meta", "n_params")),
            weights_bytes=positive(dig(card, "meta", "size")),
            quantization=word(dig(card, "meta", "ftype")),
            trained_context_tok=positive(dig(card, "meta", "n_ctx_train")),
            max_context_tok=size,
        ),
    )


def _speculates(answers: Mapping[str, Answer]) -> dict[str, Fact]:
    """Return that some speculation is on; of which kind, only log and command line tell.

    (`speculative.types` among the defaults of `/props` says `none` even while it runs.)
    """
    speculative = dig(as_json(answers.get("/slots")), 0, "speculative")
    return facts("endpoint:/slots", speculation="on" if speculative is True else None)


def _from_router(props: Mapping[str, Any], answers: Mapping[str, Answer]) -> dict[str, Fact]:
    """Return what a router tells: it holds no model itself, so slots and context stay unknown."""
    cards = objects(dig(as_json(answers.get("/models")), "data"))
    loaded = [c for c in cards if dig(c, "status", "value") in ("loaded", "sleeping")]
    card = loaded[0] if loaded else (cards[0] if len(cards) == 1 else first_model(answers))
    launched = dig(card, "status", "args")
    started = launched if isinstance(launched, list) else []
    flags = read_words([str(item) for item in started], DIALECT)
    return merge(
        facts(
            "endpoint:/props",
            engine_version=word(props.get("build_info")),
            router=True,
            autoload=truth(props.get("models_autoload")),
        ),
        facts(
            "endpoint:/models",
            model=word(card.get("id")),
            loaded=bool(loaded),
            sleeping=dig(card, "status", "value") == "sleeping" or None,
        ),
        facts("endpoint:/models", **_from_flags(flags)),
    )


def _from_log(records: Sequence[LogRecord]) -> dict[str, Fact]:
    """Fold the start-up records: weights and KV caches add up over devices and layers."""
    known: dict[str, Any] = {}
    for record in records:
        if record.kind != "startup":
            continue
        for key, value in record.values.items():
            if key in ("weights_bytes", "kv_bytes"):
                known[key] = known.get(key, 0) + value
            elif key == "kv_capacity_tok":
                known[key] = max(known.get(key, 0), value)
            else:
                known[key] = value
    known.pop("ready", None)
    return facts("log", **known)


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts, unknown ones None, from flags by their canonical names."""
    slots, total = positive(flags.get("parallel")), positive(flags.get("ctx-size"))
    unified = truth(flags.get("kv-unified"))
    if unified is None and slots is not None:
        unified = False
    cap = positive(flags.get("kv-unified-per-slot"))
    if cap is not None:
        unified, total = True, total or (slots * cap if slots else None)
    per_slot = total
    if total is not None and slots is not None and unified is False:
        per_slot = -(-(total // slots) // CONTEXT_PAD_TOK) * CONTEXT_PAD_TOK
    keys, values = word(flags.get("cache-type-k")), word(flags.get("cache-type-v"))
    alias = word(flags.get("alias"))
    return {
        "model": alias.split(",")[0] if alias else None,
        "model_path": word(flags.get("model")) or word(flags.get("hf-repo")),
        "slots": slots,
        "max_context_tok": cap or per_slot,
        "total_context_tok": total,
        "kv_unified": unified,
        "kv_cache_dtype": kv_dtype(keys or "f16", values or "f16") if keys or values else None,
        "prefix_caching": truth(flags.get("cache-prompt")),
        "flash_attention": word(flags.get("flash-attn")),
        "context_shift": truth(flags.get("context-shift")),
        "metrics_on": truth(flags.get("metrics")),
        **_speculation(flags),
    }


def _speculation(flags: Mapping[str, Any]) -> dict[str, Any]:
    kind = word(flags.get("spec-type"))
    draft = word(flags.get("spec-draft-model")) or word(flags.get("spec-draft-hf"))
    depth = positive(flags.get("spec-draft-n-max"))
    synthetic = any(
        flags.get(name) not in (None, "-1", -1) for name in ("spec-synth-len", "spec-synth-rates")
    )
    named = kind or ("draft" if draft else None)
    if named is None or named == "none":
        return {"speculation": named, "simulated_acceptance": synthetic or None}
    return {
        "speculation": named if depth is None else f"{named} k={depth}",
        "speculation_tok": depth,
        "speculation_draft": draft,
        "simulated_acceptance": synthetic,
    }


def _defaults(flags: Mapping[str, Any], known: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return what a current build does unless told otherwise.

    Without `-np` that is four slots that share one cache; a server with another number of slots
    is an older build, which had no shared cache.
    """
    slots = known["slots"].value if "slots" in known else 4
    drafts = any(name.startswith(("spec-", "draft")) for name in flags)
    return facts(
        "default",
        slots=4,
        kv_unified="parallel" not in flags and slots == 4,
        kv_cache_dtype="f16",
        prefix_caching=True,
        metrics_on=False,
        speculation=None if drafts else "none",
        simulated_acceptance=False,
    )


def _capacity(known: Mapping[str, Fact], flags: Mapping[str, Any]) -> dict[str, Fact]:
    """Return the pool: one slot's context where it is shared, else that times the slots."""
    context, slots, unified = (
        known.get(name) for name in ("max_context_tok", "slots", "kv_unified")
    )
    if context is None or slots is None or (unified is None and slots.value > 1):
        return {}
    if unified is not None and unified.value and "kv-unified-per-slot" in flags:
        total = known.get("total_context_tok")
        return {} if total is None else facts(total.source, kv_capacity_tok=total.value)
    pool = context.value if unified is not None and unified.value else context.value * slots.value
    return facts(context.source, kv_capacity_tok=pool, total_context_tok=pool)


START_FAILURES: tuple[StartFailure, ...] = (
    StartFailure(
        r"failed to (?:allocate (?:buffer for kv cache|compute (?:pp )?buffers|graph)|"
        r"create context)|unable to allocate \S+ buffer|failed to allocate buffer of size|"
        r"ggml_gallocr_reserve_n.*failed|alloc_tensor_range: failed to allocate|"
        r"(?:cuda|hip)Malloc failed|failed to fit params to free device memory",
        "weights, context or compute buffers do not fit into memory",
        "lower -c or -np, quantize the KV cache (-ctk q8_0 -ctv q8_0), or offload fewer layers",
        "oom",
    ),
    StartFailure(
        r"unknown model architecture|GGUFv1 is no longer supported|"
        r"this GGUF file is version \d+ but this software|missing tensor|"
        r"key not found in model|wrong number of tensors",
        "this build does not know the model's architecture or file version",
        "use a newer build of llama.cpp",
        "unsupported",
    ),
    StartFailure(
        r"invalid magic characters|not within the file bounds|failed to read magic|"
        r"failed to read (?:tensor|key-value)|corrupted or incomplete",
        "the model's file is no GGUF, or only a part of one",
        "fetch the file again, and check its size",
        "model_missing",
    ),
    StartFailure(
        r"failed to open (?:GGUF )?(?:file )?'?.*\.gguf|no GGUF files found in repository|"
        r"error from HF API|Does this file exist",
        "the model's file is not there, and could not be fetched",
        "check the path; without a network it must be on this machine",
        "model_missing",
    ),
    StartFailure(
        r"synthetic acceptance (?:length|rates|requires)|invalid value for n_parallel",
        "an option's value is refused",
        "correct the value",
        "unknown_flag",
    ),
    *GPU,
    *COMMON,
    StartFailure(
        r"failed to load (?:draft )?model|error loading model",
        "the model could not be loaded",
        "read the lines above this one",
        "other",
    ),
)

ENGINE = EngineSpec(
    name="llamacpp",
    label="llama.cpp",
    default_port=8080,
    probes=("/props", "/slots", "/v1/models", "/models"),
    recognise=recognise,
    describe=describe,
    to_argv=to_argv,
    parse_log=parse_log,
    request_fields=request_fields,
    traps=traps,
    metrics_path="/metrics",
    metrics=METRICS,
    tokenize="llamacpp",
    ignores_eos=True,
    start_failures=START_FAILURES,
    loading=loading,
)

"""Runs llama.cpp's own server from the xllamacpp wheel, as a program.

    python -m concbench.serve.llamacpp_child --json '{"model": "F.gguf", "port": 8080}'

The keys are llama-server's long options. SIGTERM keeps its default action, so that the process ends
at once, even while a model loads. Exit code 1: the server could not be started (its log says why).
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any, Literal

Kind = Literal[
    "int", "float", "bool", "not", "str", "list", "set", "cache", "flash", "onoff", "spec"
]

FLAGS: dict[str, tuple[str, Kind]] = {
    "model": ("model.path", "str"),
    "alias": ("model_alias", "set"),
    "host": ("hostnames", "list"),
    "port": ("port", "int"),
    "api-prefix": ("api_prefix", "str"),
    "parallel": ("n_parallel", "int"),
    "ctx-size": ("n_ctx", "int"),
    "fit": ("fit_params", "onoff"),
    "kv-unified": ("kv_unified", "bool"),
    "kv-unified-per-slot": ("kv_unified_per_slot", "int"),
    "kv-offload": ("no_kv_offload", "not"),
    "op-offload": ("no_op_offload", "not"),
    "swa-full": ("swa_full", "bool"),
    "cache-type-k": ("cache_type_k", "cache"),
    "cache-type-v": ("cache_type_v", "cache"),
    "flash-attn": ("flash_attn_type", "flash"),
    "batch-size": ("n_batch", "int"),
    "ubatch-size": ("n_ubatch", "int"),
    "threads": ("cpuparams.n_threads", "int"),
    "threads-batch": ("cpuparams_batch.n_threads", "int"),
    "threads-http": ("n_threads_http", "int"),
    "gpu-layers": ("n_gpu_layers", "int"),
    "main-gpu": ("main_gpu", "int"),
    "cont-batching": ("cont_batching", "bool"),
    "cache-prompt": ("cache_prompt", "bool"),
    "cache-ram": ("cache_ram_mib", "int"),
    "cache-reuse": ("n_cache_reuse", "int"),
    "cache-idle-slots": ("cache_idle_slots", "bool"),
    "ctx-checkpoints": ("n_ctx_checkpoints", "int"),
    "slot-prompt-similarity": ("slot_prompt_similarity", "float"),
    "context-shift": ("ctx_shift", "bool"),
    "n-predict": ("n_predict", "int"),
    "seed": ("sampling.seed", "int"),
    "rope-freq-base": ("rope_freq_base", "float"),
    "rope-freq-scale": ("rope_freq_scale", "float"),
    "jinja": ("use_jinja", "bool"),
    "chat-template": ("chat_template", "str"),
    "sleep-idle-seconds": ("sleep_idle_seconds", "int"),
    "sse-ping-interval": ("sse_ping_interval", "int"),
    "warmup": ("warmup", "bool"),
    "metrics": ("endpoint_metrics", "bool"),
    "slots": ("endpoint_slots", "bool"),
    "log-verbosity": ("verbosity", "int"),
    "spec-type": ("speculative.types", "spec"),
    "spec-draft-model": ("speculative.draft.mparams.path", "str"),
    "spec-draft-n-max": ("speculative.draft.n_max", "int"),
    "spec-draft-n-min": ("speculative.draft.n_min", "int"),
    "spec-draft-p-min": ("speculative.draft.p_min", "float"),
    "spec-draft-ngl": ("speculative.draft.n_gpu_layers", "int"),
    "spec-ngram-mod-n-match": ("speculative.ngram_mod.n_match", "int"),
    "spec-ngram-mod-n-min": ("speculative.ngram_mod.n_min", "int"),
    "spec-ngram-mod-n-max": ("speculative.ngram_mod.n_max", "int"),
    "spec-ngram-simple-size-n": ("speculative.ngram_simple.size_n", "int"),
    "spec-ngram-simple-size-m": ("speculative.ngram_simple.size_m", "int"),
    "spec-ngram-simple-min-hits": ("speculative.ngram_simple.min_hits", "int"),
    "spec-synth-len": ("speculative.synth_len", "float"),
}
"""llama-server's long options that can be set, with the attribute and the kind of value."""

ROUTER_FLAGS = frozenset({"models-dir", "models-preset", "models-max", "models-autoload"})
"""What only the program `llama-server` has: the wheel is built without the router."""

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
FLASH = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
SPEC_TYPES = (
    "none",
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
)
ON_OFF = {"on": True, "off": False}

_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "not": "true or false",
    "str": "text",
    "list": "text",
    "set": "text",
    "cache": " or ".join(CACHE_TYPES),
    "flash": " or ".join(FLASH),
    "onoff": "on or off",
    "spec": " or ".join(SPEC_TYPES),
}


def fault(flag: str, value: object) -> str | None:
    """Return what is wrong with a flag's value, or None. The flag must be known."""
    kind = FLAGS[flag][1]
    fits = {
        "int": type(value) is int,
        "float": type(value) in (int, float),
        "bool": type(value) is bool,
        "not": type(value) is bool,
        "onoff": isinstance(value, str) and value in ON_OFF,
        "spec": value in SPEC_TYPES,
        "cache": value in CACHE_TYPES,
        "flash": isinstance(value, str) and value in FLASH,
    }.get(kind, isinstance(value, str))
    return None if fits else f"{flag} must be {_WANTED[kind]}, not {value!r}"


def main() -> int:
    """Start the server and wait for a signal."""
    parser = argparse.ArgumentParser(prog="python -m concbench.serve.llamacpp_child")
    parser.add_argument("--json", required=True, help="llama-server's long options as an object")
    flags: Mapping[str, Any] = json.loads(parser.parse_args().json)
    for flag, value in flags.items():
        wrong = fault(flag, value) if flag in FLAGS else f"invalid argument: --{flag}"
        if wrong:
            parser.error(wrong)
    # Here, not above: the flags are checked in the parent, which never loads the engine.
    import xllamacpp

    params = xllamacpp.CommonParams()
    for flag, value in flags.items():
        _set(xllamacpp, params, flag, value)
    try:
        # Returns once the model is loaded; the server runs in threads of its own.
        server = xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    while server:
        signal.pause()
    return 0


def _set(xllamacpp: Any, params: Any, flag: str, value: Any) -> None:  # noqa: ANN401 - untyped wheel
    path, kind = FLAGS[flag]
    *parents, name = path.split(".")
    for parent in parents:
        params = getattr(params, parent)
    if kind == "cache":
        value = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{value.upper()}")
    elif kind == "flash":
        value = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{FLASH[value]}")
    elif kind == "spec":
        kinds = xllamacpp.common_speculative_type
        member = value.replace("-", "_").upper()
        value = [getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{member}")]
    elif kind == "not":
        value = not value
    elif kind == "onoff":
        value = ON_OFF[value]
    elif kind in ("list", "set"):
        value = [value] if kind == "list" else {value}
    setattr(params, name, value)


if __name__ == "__main__":
    sys.exit(main())

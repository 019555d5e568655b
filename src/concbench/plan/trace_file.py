"""Arrival traces from a file: seconds a line, or JSON Lines with lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from concbench.errors import UsageError
from concbench.plan import schedule

if TYPE_CHECKING:
    from pathlib import Path

_EXPECTED = 'a time in seconds, or {"at_s": 1.5} or {"timestamp": 1500} (milliseconds)'


class TraceRow(Struct, frozen=True, kw_only=True):
    """One request of a trace; lengths are None where the trace does not say."""

    due_ns: int
    prompt_tok: int | None = None
    output_tok: int | None = None


class _Line(Struct):
    """A JSON line: our own names, or those of the Mooncake traces (`timestamp` in ms)."""

    at_s: float | None = None
    timestamp: float | None = None
    prompt_tok: int | None = None
    output_tok: int | None = None
    input_length: int | None = None
    output_length: int | None = None


def load_trace(path: Path) -> list[TraceRow]:
    """Return the requests of a trace file, the first due at 0; blank and `#` lines are skipped.

    Raises UsageError, one line with the line's number.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot read the trace: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8; save the trace as UTF-8") from error
    offsets_s: list[float] = []
    parsed: list[_Line] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        row, offset_s = _row(text, f"{path}:{number}")
        parsed.append(row)
        offsets_s.append(offset_s)
    try:
        dues = schedule.trace(offsets_s)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return [
        TraceRow(
            due_ns=due_ns,
            prompt_tok=row.input_length if row.prompt_tok is None else row.prompt_tok,
            output_tok=row.output_length if row.output_tok is None else row.output_tok,
        )
        for due_ns, row in zip(dues, parsed, strict=True)
    ]


def _row(text: str, where: str) -> tuple[_Line, float]:
    """Return one line and its time in seconds. Raises UsageError."""
    try:
        if not text.startswith("{"):
            return _Line(), float(text)
        row = msgspec.json.decode(text, type=_Line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: {error}; expected {_EXPECTED}") from error
    lengths = (row.prompt_tok, row.output_tok, row.input_length, row.output_length)
    if any(length is not None and length < 1 for length in lengths):
        raise UsageError(f"{where}: lengths must be at least 1 token")
    if row.at_s is not None:
        return row, row.at_s
    if row.timestamp is not None:
        return row, row.timestamp / 1000
    raise UsageError(f"{where}: no time; expected {_EXPECTED}")

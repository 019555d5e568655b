"""Prompts of a file, instead of made ones: one a line, or JSON Lines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from concbench.errors import UsageError
from concbench.plan.calibration import TOK_PER_WORD, word_count
from concbench.plan.prompts import Prompt, prompt_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def load_prompts_file(path: Path) -> list[Prompt]:
    """Return the prompts of a file: one a line, or JSON Lines for `.jsonl`, `.ndjson`, `.json`.

    A JSON line is `{"prompt": text}` or `{"messages": [{"role": …, "content": …}, …]}`; blank
    lines are skipped. Raises UsageError naming the line for anything else.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot read prompts: {error.strerror or error}") from error
    as_json = path.suffix.lower() in {".jsonl", ".ndjson", ".json"}
    prompts: list[Prompt] = []
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        where = f"{path}:{number}"
        try:
            text = line.decode().strip()
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{where}: not UTF-8 (byte {error.start + 1}); save as UTF-8"
            ) from error
        if not text:
            continue
        index = len(prompts)
        prompts.append(
            _json_prompt(text, index, where)
            if as_json
            else prompt_of(text, None, index, exact=False)
        )
    if not prompts:
        raise UsageError(f"{path}: holds no prompts; expected one a line")
    return prompts


def longest_tok(prompts: Sequence[Prompt]) -> int:
    """Return about how many tokens the longest of some prompts has; at least 1.

    Counted where a tokenizer did, otherwise estimated from its words: enough to tell what the KV
    pool must hold, not a measurement.
    """
    tokens = (p.tok or math.ceil(TOK_PER_WORD["prose"] * word_count(p.text)) for p in prompts)
    return max(1, max(tokens, default=1))


class _Line(Struct):
    """What a JSON line may hold."""

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None


def _json_prompt(line: str, index: int, where: str) -> Prompt:
    """Return the prompt of one JSON line. Raises UsageError."""
    try:
        row = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{where}: {error}; expected {_JSON_LINE}") from error
    if (not row.prompt) == (not row.messages):
        raise UsageError(f"{where}: expected {_JSON_LINE}, not empty")
    if row.prompt:
        return prompt_of(row.prompt, None, index, exact=False)
    for message in row.messages or []:
        if not isinstance(message.get("role"), str) or "content" not in message:
            raise UsageError(f'{where}: a message lacks "role" or "content"; expected {_JSON_LINE}')
    text = msgspec.json.encode(row.messages, order="sorted").decode()
    return prompt_of(text, None, index, exact=False, messages=row.messages)


_JSON_LINE = '{"prompt": "…"} or {"messages": [{"role": "user", "content": "…"}]}'

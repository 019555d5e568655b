r"""Text that any file can hold and that comes back exactly as it was.

A server may send half a surrogate pair or a NUL. Neither fits into UTF-8 files and tables
everywhere, and neither may cost a round. They are written as `\ud835` and `\u0000`; backslashes in
front of something that already looks so are doubled, so that reading is exact.
"""

from __future__ import annotations

import re
from typing import Any

_UNSAFE = re.compile("[\ud800-\udfff\x00]")
_AMBIGUOUS = re.compile("\\\\(?=\\\\*(?:u(?:d[89a-f][0-9a-f]{2}|0000)|[\ud800-\udfff\x00]))")
_ESCAPED = re.compile(r"(\\+)(u(?:d[89a-f][0-9a-f]{2}|0000))")


def escape_text(text: str) -> str:
    """Return `text` without lone surrogates and NULs; `unescape_text` is the exact inverse."""
    if "\\u" not in text and not _UNSAFE.search(text):
        return text
    doubled = _AMBIGUOUS.sub(r"\\\\", text)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", doubled)


def unescape_text(text: str) -> str:
    """Return the text that `escape_text` was given."""
    return _ESCAPED.sub(_unescape, text) if "\\u" in text else text


def _unescape(found: re.Match[str]) -> str:
    slashes, code = found[1], found[2]
    kept = "\\" * (len(slashes) // 2)
    return kept + (chr(int(code[1:], 16)) if len(slashes) % 2 else code)


def escape_tree(value: Any) -> Any:  # noqa: ANN401 - JSON has no narrower type
    """Return a JSON value with every string and key escaped."""
    return _map_strings(value, escape_text)


def unescape_tree(value: Any) -> Any:  # noqa: ANN401 - JSON has no narrower type
    """Return the JSON value that `escape_tree` was given."""
    return _map_strings(value, unescape_text)


def _map_strings(value: Any, change: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(str(key)): _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_strings(item, change) for item in value]
    return value

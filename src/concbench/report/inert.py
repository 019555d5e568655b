"""Text from servers, files and command lines, made harmless before any format sees it.

A lane's name or a server's error may hold escape sequences, line breaks, direction marks or ten
thousand characters. Here they become one short visible line; escaping for HTML, Markdown and CSV
is the formats' own work and comes on top.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit, urlunsplit

DEFAULT_LIMIT = 120
HIDDEN = "***"
_INVISIBLE = frozenset(
    [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200B, 0x200E, 0x200F, 0x061C, 0xFEFF]
)
_SECRET_FLAGS = ("--api-key", "--hf-token", "--token", "--password")


def inert(text: object, limit: int = DEFAULT_LIMIT) -> str:
    """Return `text` as one visible line of at most `limit` characters.

    Control and direction characters are written out (`\\x1b`, `\\u202e`), white space of any kind
    becomes one space, and what is cut off is announced by its length.
    """
    return _inert(str(text), limit)


@lru_cache(maxsize=4096)
def _inert(whole: str, limit: int) -> str:
    if len(whole) <= limit and whole.isascii() and whole.isprintable():
        return " ".join(whole.split())
    line = " ".join("".join(_visible(char) for char in whole[: limit * 4]).split())
    if len(line) <= limit and len(whole) <= limit * 4:
        return line
    tail = f"… ({len(whole):,} characters)"
    return line[: max(1, limit - len(tail))].rstrip() + tail


def _visible(char: str) -> str:
    """Return one character, or how it is written out."""
    if char.isspace():
        return " "
    return "\ufffd" if unicodedata.category(char) == "Cs" else _written(char)


def shown(text: str) -> str:
    """Return `text` with control and direction characters written out, its lines and tabs kept."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in "\t\r\n" else _written(char) for char in text)


def _written(char: str) -> str:
    code = ord(char)
    if unicodedata.category(char) == "Cc":
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code in _INVISIBLE else char


def without_credentials(url: str) -> str:
    """Return the URL with a user name and password in it replaced by `***`."""
    try:
        parts = urlsplit(url)
        if "@" not in parts.netloc:
            return url
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{HIDDEN}@{host}"))
    except ValueError:
        return url.rpartition("@")[2]


def without_option(argv: Sequence[str], option: str) -> list[str]:
    """Return a command line without an option and its value."""
    shown: list[str] = []
    words = iter(argv)
    for word in words:
        if word == option:
            next(words, None)
        elif not word.startswith(f"{option}="):
            shown.append(word)
    return shown


def without_secrets(argv: Sequence[str]) -> list[str]:
    """Return a command line with the values of flags that carry keys replaced by `***`."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        flag, equals, _ = word.partition("=")
        if hide_next:
            shown.append(HIDDEN)
            hide_next = False
        elif flag.lower() in _SECRET_FLAGS:
            shown.append(f"{flag}={HIDDEN}" if equals else word)
            hide_next = not equals
        else:
            shown.append(word)
    return shown

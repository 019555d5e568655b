"""On which line each key of a TOML document stands; `tomllib` does not say.

Reads only documents that `tomllib` has accepted, so it can be much laxer than a parser: it
follows tables, dotted keys, inline tables and arrays, and skips the values.
"""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)


def key_lines(source: str) -> dict[Path, int]:
    """Return the line (from 1) of every key, table header and array element, by its path.

    Table headers count for their last part, and for the parts before where nothing else
    names them. A document that cannot be followed yields what was found before that place.
    """
    reader = _Reader(source)
    # The lines only improve a message: a partial answer is better than another error.
    with suppress(IndexError, ValueError, RecursionError):
        reader.document()
    return reader.lines


class _Reader:
    """A position in the source, and the lines found so far."""

    def __init__(self, source: str) -> None:
        self.source = source.replace("\r\n", "\n")
        self.at = 0
        self.lines: dict[Path, int] = {}
        self._counted_to, self._line = 0, 1
        self._elements: dict[Path, int] = {}

    def document(self) -> None:
        """Read to the end."""
        table: Path = ()
        self._blank()
        while self.at < len(self.source):
            if self.source[self.at] == "[":
                table = self._header()
            else:
                self._assignment(table)
            self._blank()

    def _header(self) -> Path:
        """Read `[a.b]` or `[[a.b]]` and return the table's path, array elements included."""
        is_array = self.source.startswith("[[", self.at)
        self.at += 2 if is_array else 1
        line = self._line_here()
        path: Path = ()
        parts = self._key()
        for number, part in enumerate(parts, start=1):
            path = (*path, part)
            self.lines.setdefault(path, line)
            if is_array and number == len(parts):
                self._elements[path] = self._elements.get(path, -1) + 1
            if path in self._elements:
                path = (*path, self._elements[path])
                self.lines.setdefault(path, line)
        self.at += 2 if is_array else 1
        return path

    def _assignment(self, table: Path) -> None:
        """Read `key = value`."""
        self._blank()
        line = self._line_here()
        path = table
        for part in self._key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self.at += 1  # the equals sign
        self._value(path)

    def _key(self) -> list[str]:
        """Read a key and return its parts; stops at the character after it."""
        parts: list[str] = []
        while True:
            self._blank()
            quoted = self.source[self.at] in "\"'"
            match = (_STRING if quoted else _BARE).match(self.source, self.at)
            if match is None:
                raise ValueError
            parts.append(_unquoted(match[0]) if quoted else match[0])
            self.at = match.end()
            self._blank()
            if self.source[self.at] != ".":
                return parts
            self.at += 1

    def _value(self, path: Path) -> None:
        """Read a value, recording the keys and elements inside it."""
        self._blank()
        first = self.source[self.at]
        if first == "{":
            self._items("}", path)
        elif first == "[":
            self._items("]", path)
        else:
            match = (_STRING if first in "\"'" else _SCALAR).match(self.source, self.at)
            if match is None:
                raise ValueError
            self.at = match.end()

    def _items(self, closing: str, path: Path) -> None:
        """Read an array or an inline table."""
        self.at += 1
        element = 0
        self._blank()
        while self.source[self.at] != closing:
            if closing == "]":
                self.lines.setdefault((*path, element), self._line_here())
                self._value((*path, element))
                element += 1
            else:
                self._assignment(path)
            self._blank()
            if self.source[self.at] == ",":
                self.at += 1
                self._blank()
        self.at += 1

    def _blank(self) -> None:
        """Skip white space, line ends and comments."""
        match = _BLANK.match(self.source, self.at)
        self.at = match.end() if match else self.at

    def _line_here(self) -> int:
        """Return the line of the position; only what was not yet counted is counted."""
        self._line += self.source.count("\n", self._counted_to, self.at)
        self._counted_to = self.at
        return self._line


def _unquoted(text: str) -> str:
    """Return what a quoted key says."""
    return str(tomllib.loads(f"key = {text}")["key"])

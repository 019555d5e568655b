"""The last lines of a terminal's display, written over while a round runs.

Rich takes a millisecond or more to draw, in which a reply would lie unread. This is one `write` of
some 200 bytes, on a descriptor of its own that never blocks: a terminal that is stopped (Ctrl-S) or
slow loses a line instead of holding up the load.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TextIO

WIDTH = 80
"""Taken where the terminal does not tell its own."""

_UP, _DOWN, _CLEAR = "\x1b[1A", "\x1b[1B", "\r\x1b[2K"


class NowLines:
    """Writes over the last lines of what is shown; the cursor is in the last one and stays there.

    Where the terminal cannot be opened again, nothing is written.
    """

    def __init__(self, stream: TextIO) -> None:
        """`stream` is the terminal that the display is on."""
        self._descriptor: int | None = None
        with suppress(OSError, ValueError):
            path = os.ttyname(stream.fileno())
            self._descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)

    def show(self, *lines: str) -> None:
        """Write these lines, from the last but so many on; each is cut to the width."""
        if self._descriptor is None:
            return
        with suppress(OSError):
            width = os.get_terminal_size(self._descriptor).columns or WIDTH
            cut = [line[: width - 1] for line in lines]
            text = _UP * (len(cut) - 1) + _DOWN.join(f"{_CLEAR}{line}" for line in cut)
            os.write(self._descriptor, text.encode())

    def close(self) -> None:
        """Close the descriptor. Safe to call again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

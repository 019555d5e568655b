"""The lines that are written over while a round runs, on a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from concbench.cli.nowlines import NowLines


@pytest.fixture
def terminal() -> Iterator[tuple[int, TextIO]]:
    """A terminal of 20 columns: its far end, and the stream that a program has."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 20, 0, 0))
    with os.fdopen(theirs, "w") as stream:
        yield ours, stream
    os.close(ours)


def test_each_line_replaces_its_own_and_is_cut_to_the_width(terminal: tuple[int, TextIO]) -> None:
    ours, stream = terminal
    lines = NowLines(stream)
    lines.show("x" * 50, "two")
    assert os.read(ours, 4096) == b"\x1b[1A\r\x1b[2K" + b"x" * 19 + b"\x1b[1B\r\x1b[2Ktwo"
    lines.show("one")
    assert os.read(ours, 4096) == b"\r\x1b[2Kone"
    lines.close()
    lines.close()
    lines.show("late")
    assert stream.fileno() >= 0  # the program's own stream is left open


def test_a_terminal_that_nobody_reads_holds_nothing_up(terminal: tuple[int, TextIO]) -> None:
    _, stream = terminal
    lines = NowLines(stream)
    for _ in range(20_000):  # far more than any terminal's buffer: a write that waits would hang
        lines.show("x" * 19)
    lines.close()
    assert os.get_blocking(stream.fileno())


def test_what_is_no_terminal_gets_nothing() -> None:
    text = io.StringIO()
    lines = NowLines(text)
    lines.show("one")
    lines.close()
    assert text.getvalue() == ""

"""Results that are told in lines: words for people, JSON where it was asked for.

Nothing heavy is imported here, so that commands that read no study start quickly.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from concbench.errors import OutputUnusable
from concbench.result import Result, to_json


def deliver_lines(args: Namespace, result: Result, lines: Sequence[str]) -> None:
    """Write the JSON where it was asked for, the lines to the terminal. Raises OutputUnusable."""
    if args.json and args.json != "-":
        try:
            Path(args.json).write_bytes(to_json(result))
        except OSError as error:
            raise OutputUnusable(f"cannot write {args.json}: {error.strerror}") from None
    if not args.quiet:
        for line in lines:
            print(line, file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json == "-":
        sys.stdout.buffer.write(to_json(result))
        sys.stdout.buffer.flush()


def terminate(number: int, frame: FrameType | None) -> None:
    """Be a signal's handler: raise KeyboardInterrupt, so that everything is stopped in order."""
    del number, frame
    raise KeyboardInterrupt

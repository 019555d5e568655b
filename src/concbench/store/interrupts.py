"""A signal that comes while the database works: it must end the command as any other signal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

QUERY_INTERRUPTED: Final = "Query interrupted"
"""What DuckDB says instead of the exception of the signal's handler, which it swallows."""


@contextmanager
def interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt where a query in the block was ended by a signal."""
    try:
        yield
    except RuntimeError as error:
        if str(error) == QUERY_INTERRUPTED:
            raise KeyboardInterrupt from error
        raise

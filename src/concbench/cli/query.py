"""SQL on a study, and its tables in other programs' formats.

A query is one SELECT (or DESCRIBE, SUMMARIZE, SHOW TABLES) of DuckDB's dialect over the tables
`cells`, `rounds`, `requests`, `events`, `samples` and `lags`. It reads the study and nothing else:
no other file, no network, no extension; and it writes nothing.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from concbench.cli import options
from concbench.errors import UsageError

if TYPE_CHECKING:
    from concbench.report.view import PlainTable

Rows = Sequence[Sequence[Any]]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `query`."""
    options.let_options_stand_between(parser)
    parser.add_argument("study", nargs="?", type=Path, metavar="STUDY", help="study folder")
    parser.add_argument("sql", nargs="?", metavar="SQL", help="one SELECT")
    group = parser.add_argument_group("output (a table on the terminal by default)")
    shape = group.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="a JSON array of objects")
    shape.add_argument("--csv", action="store_true", help="CSV with a header")
    shape.add_argument("--markdown", action="store_true", help="a Markdown table")
    group = parser.add_argument_group("beside queries")
    group.add_argument(
        "--tables",
        action="store_true",
        help="print the data dictionary: every table and column, with unit and meaning",
    )
    group.add_argument(
        "--export",
        type=Path,
        metavar="DIR",
        help="write all tables and the data dictionary into a new or empty folder",
    )
    group.add_argument(
        "--format",
        choices=["parquet", "csv"],
        default="parquet",
        help="of the export (default parquet)",
    )


def run(args: Namespace) -> int:
    """Answer a query, print the dictionary, or export."""
    if args.tables:
        from concbench.store.schema import data_dictionary

        rows = data_dictionary()
        write = _writer(args)
        write(list(rows[0]), [list(row.values()) for row in rows])
        return 0
    if args.study is None:
        raise UsageError("concbench query: name a study folder (or ask for --tables)")
    if args.export is not None:
        if args.sql is not None:
            raise UsageError("concbench query: either a query or --export")
        return _export(args)
    if args.sql is None:
        raise UsageError('concbench query: give a query, such as "SELECT * FROM cells"')
    from concbench.store.query import query

    names, found = query(args.study, args.sql)
    _writer(args)(names, found)
    return 0


def _export(args: Namespace) -> int:
    from concbench.store.query import export

    for path in export(args.study, args.export, args.format):
        print(path)
    return 0


def _writer(args: Namespace) -> Callable[[Sequence[str], Rows], None]:
    """Return what writes rows in the shape asked for. A closed pipe ends it quietly, as in main."""
    if args.json:
        return _json
    if args.csv:
        return _csv
    return _markdown if args.markdown else _table


def _json(names: Sequence[str], rows: Rows) -> None:
    import msgspec

    # Two columns may carry one name; an object cannot.
    keys = unique(names)
    encoder = msgspec.json.Encoder(enc_hook=str)
    encoded = [encoder.encode(dict(zip(keys, row, strict=True))) for row in rows]
    out = sys.stdout.buffer
    out.write(b"[" + b",".join(b"\n " + each for each in encoded) + b"\n]\n")
    out.flush()


def unique(names: Sequence[str]) -> list[str]:
    """Return the names, later equal ones with `_2`, `_3`, … behind."""
    found: list[str] = []
    for name in names:
        candidate, number = name, 2
        while candidate in found:
            candidate, number = f"{name}_{number}", number + 1
        found.append(candidate)
    return found


def _csv(names: Sequence[str], rows: Rows) -> None:
    from concbench.report.csv import rows_to_csv

    plain = ([_scalar(value) for value in row] for row in rows)
    sys.stdout.buffer.write(rows_to_csv(names, plain).encode())
    sys.stdout.buffer.flush()


def _scalar(value: Any) -> str | int | float | bool | None:  # noqa: ANN401 - any SQL type
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _markdown(names: Sequence[str], rows: Rows) -> None:
    from concbench.report.markdown import plain_markdown

    print("\n".join(part for part in plain_markdown(_plain(names, rows)) if part))


def _table(names: Sequence[str], rows: Rows) -> None:
    from rich.console import Console

    from concbench.report.terminal import plain_table

    plain_table(_plain(names, rows), Console(highlight=False))


def _plain(names: Sequence[str], rows: Rows) -> PlainTable:
    """Return texts; columns of words in front of the first numbers stand to the left."""
    from concbench.report.inert import inert
    from concbench.report.view import PlainTable

    words = [
        any(not isinstance(row[index], int | float) and row[index] is not None for row in rows)
        for index in range(len(names))
    ]
    leading = words.index(False) if False in words else len(words)
    return PlainTable(
        title="",
        headings=tuple(inert(name, 80) for name in names),
        rows=tuple(tuple(_shown(value) for value in row) for row in rows),
        words=leading,
    )


def _shown(value: Any) -> str:  # noqa: ANN401 - any SQL type
    from concbench.report.inert import inert

    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else inert(value, 200)

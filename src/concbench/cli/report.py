"""Show a stored study again: on the terminal, as a page, Markdown, CSV or JSON."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from concbench.errors import OutputUnusable, UsageError

if TYPE_CHECKING:
    from concbench.result import Result


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `report`."""
    parser.add_argument("study", nargs="?", type=Path, metavar="STUDY", help="study folder")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page")
    parser.add_argument(
        "--png", type=Path, metavar="DIR", help="write each plot as an image (needs a browser)"
    )
    parser.add_argument("--md", metavar="FILE", help="write Markdown, - for stdout")
    parser.add_argument("--csv", metavar="FILE", help="write CSV, - for stdout")
    parser.add_argument(
        "--csv-tables",
        type=Path,
        metavar="DIR",
        help="write the tables over lanes, links and contexts as CSV, a file each",
    )
    parser.add_argument("--json", metavar="FILE", help="write the result JSON, - for stdout")
    parser.add_argument(
        "--all", action="store_true", help="on the terminal every series, however many there are"
    )
    parser.add_argument(
        "--definitions", action="store_true", help="print how each number is defined"
    )


def run(args: Namespace) -> int:
    """Judge the stored rounds again and write what was asked for; the table where nothing was."""
    from rich.console import Console

    if args.definitions:
        from concbench.report.definitions import render_definitions

        render_definitions(Console(highlight=False))
        return 0
    if args.study is None:
        raise UsageError("concbench report: name a study folder (or ask for --definitions)")
    from concbench.report import csv, markdown, terminal
    from concbench.result import to_json

    result = _drawn(args) if args.html or args.png else _stored(args.study)
    if args.csv_tables:
        _tables(args.csv_tables, csv.matrix_csv(result))
    texts: dict[str | None, Callable[[], bytes]] = {
        args.md: lambda: markdown.to_markdown(result).encode(),
        args.csv: lambda: csv.to_csv(result).encode(),
        args.json: lambda: to_json(result),
    }
    for where, make in texts.items():
        if where == "-":
            sys.stdout.buffer.write(make())
            sys.stdout.buffer.flush()
        elif where:
            content = make()
            if where == args.csv:
                content = content.decode().encode(csv.FILE_ENCODING)
            _guarded(Path(where), lambda path, made=content: path.write_bytes(made))  # type: ignore[misc]
    if not any((args.html, args.png, args.md, args.csv, args.json, args.csv_tables)):
        terminal.render(result, Console(highlight=False), every_series=args.all)
    return 0


def _tables(folder: Path, texts: Mapping[str, str]) -> None:
    if not texts:
        raise UsageError(
            "this study has one lane, link and context: there are no tables over them "
            "(use --csv for its cells)"
        )
    from concbench.report.csv import FILE_ENCODING

    _guarded(folder, lambda path: path.mkdir(parents=True, exist_ok=True))
    for name, text in texts.items():
        content = text.encode(FILE_ENCODING)
        _guarded(folder / f"{name}.csv", lambda path, made=content: path.write_bytes(made))  # type: ignore[misc]


def _stored(study: Path) -> Result:
    from concbench.cli.stored import stored_result

    return stored_result(study)


def _drawn(args: Namespace) -> Result:
    """Write page and images; what they draw of each cell is in its rounds alone."""
    from concbench.cli.stored import drawn_result

    result, exhibits = drawn_result(args.study)
    if args.html:
        from concbench.report import html

        _guarded(args.html, lambda path: html.write_html(result, path, exhibits))
    if args.png:
        from concbench.report.png import write_pngs

        for path in write_pngs(result, args.png, exhibits):
            print(path)
    return result


def _guarded(path: Path, write: Callable[[Path], object]) -> None:
    try:
        write(path)
    except OSError as error:
        raise OutputUnusable(f"cannot write {path}: {error.strerror}") from None

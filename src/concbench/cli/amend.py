"""Record that a newer study supersedes an older one that was not wrong; both say so after."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `amend`."""
    parser.add_argument("study", type=Path, metavar="STUDY", help="the newer study")
    parser.add_argument(
        "--supersedes",
        required=True,
        metavar="STUDY",
        help="the older one: its folder, or its id where it is elsewhere",
    )
    parser.add_argument("--why", required=True, metavar="TEXT", help="what is new")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the newer study's page")


def run(args: Namespace) -> int:
    """Append the amendment to both studies, write their pages anew and say so."""
    from concbench.cli.stored import drawn_result, refreshed
    from concbench.store.correct import amend

    amend(args.study, args.supersedes, args.why)
    for folder in (args.study, Path(args.supersedes)):
        if any((folder / name).exists() for name in ("report.html", "result.json")):
            refreshed(folder)
    if args.html:
        from concbench.report.html import write_html

        result, exhibits = drawn_result(args.study)
        write_html(result, args.html, exhibits)
    print(f"{args.study} supersedes {args.supersedes}: {args.why}")
    return 0

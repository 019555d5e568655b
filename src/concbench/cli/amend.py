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


def run(args: Namespace) -> int:
    """Append the amendment to both studies and say so."""
    from concbench.store.correct import amend

    amend(args.study, args.supersedes, args.why)
    print(f"{args.study} supersedes {args.supersedes}: {args.why}")
    return 0

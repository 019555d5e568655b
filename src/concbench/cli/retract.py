"""Withdraw a round that was wrong: it stays on the record, and every later report says so."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `retract`."""
    parser.add_argument("study", type=Path, metavar="STUDY", help="study folder")
    parser.add_argument("round", metavar="ROUND", help="id of the round")
    parser.add_argument("--why", required=True, metavar="TEXT", help="what was wrong with it")
    parser.add_argument("--by", metavar="ROUND", help="the round that replaces it")


def run(args: Namespace) -> int:
    """Append the retraction, judge the study anew and say what became of its answer."""
    from concbench.cli.stored import refreshed
    from concbench.store.correct import retract

    retract(args.study, args.round, args.why, args.by)
    result = refreshed(args.study)
    entry = next(one for one in result.corrections if one.get("round") == args.round)
    print(f"{args.study}: round {args.round} is retracted: {args.why}")
    for old in entry.get("was") or ():
        print(f"was  {old}")
    from concbench.cli.judging import said

    for sentence in said(result):
        print(f"now  {sentence}")
    return 0

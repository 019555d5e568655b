"""Speculation on against off, in turns: by concurrency and content, with what was accepted."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import get_args

from concbench.analyse.driver import looks_up_to
from concbench.analyse.exhibits import Exhibit
from concbench.cli import gating, options
from concbench.cli.ab import MOST_PAIRS, hooks_of, options_of, recorded, side_of
from concbench.cli.loads import plain
from concbench.cli.progress import Display
from concbench.cli.sides import SideSpec, is_same_server
from concbench.cli.spec_sides import parse_flag, spec_sides
from concbench.cli.study import OpenStudy, deliver, new_study, result_of
from concbench.measure.ab import compare_lanes
from concbench.plan.content import ContentKind
from concbench.plan.levels import parse_levels
from concbench.result import Result, VerdictResult

CONTENTS = ("prose", "code", "json", "repetition")
BY_NATURE = ("speculation", "acceptance")
"""What differs because it is what is compared: accepted without being asked for."""


def contents(text: str) -> list[str]:
    """Parse kinds of content, each once. Raises ValueError for one that is none."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in get_args(ContentKind):
            raise ValueError(f"{name!r} is none of {', '.join(get_args(ContentKind))}")
    return names


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `spec`."""
    options.let_options_stand_between(parser)
    parser.add_argument(
        "sides",
        nargs="+",
        metavar="LANE",
        help="a plan's lane or `embedded`; or two targets, the one without speculation first",
    )
    parser.add_argument(
        "--with",
        dest="with_flags",
        type=options.checked(parse_flag),
        action="append",
        default=[],
        metavar="FLAG=VALUE",
        help="switches speculation on (may be repeated; default: the lane's own flags of it, "
        "which the other side goes without; `embedded`: spec-type=ngram-simple)",
    )
    parser.add_argument(
        "--levels",
        type=options.checked(parse_levels),
        default=[1, 2, 4, 8],
        metavar="N,N,…",
        help="how many at once (default 1,2,4,8)",
    )
    parser.add_argument(
        "--contents",
        type=options.checked(contents),
        metavar="KIND,…",
        help=f"kinds of content (default {','.join(CONTENTS)}, or --content alone)",
    )
    parser.add_argument(
        "--both-up", action="store_true", help="start both sides once and keep them up"
    )
    gating.add_accept(parser)
    gating.add_ending(parser, MOST_PAIRS)
    options.add_target(parser)
    options.add_workload(parser)
    options.add_rounds(parser, growing=False)
    options.add_generator(parser)
    options.add_output(parser)
    parser.add_argument("--md", metavar="FILE", help="Markdown summary, - for stdout")
    parser.set_defaults(contexts=None)


def run(args: Namespace) -> int:
    """Measure both sides in turns over levels and contents, judge, store, show."""
    options.api_key(args)
    off, on = spec_sides(args)
    kinds = kinds_of(args)
    plan = {
        "levels": list(args.levels),
        "contents": kinds,
        "until": args.until,
        "delta": args.delta,
        "accept": list(dict.fromkeys([*BY_NATURE, *args.accept])),
        "side_a": recorded(off),
        "side_b": recorded(on),
        "options": plain(args),
    }
    with new_study(args, "spec", plan) as study:
        interrupted = _measure(args, study, (off, on), kinds)
        study.writer.finish(interrupted=interrupted)
        study.closed = True
        return _concluded(args, study)


def kinds_of(args: Namespace) -> list[str]:
    """Return the contents to measure; prompts from a file are one of their own."""
    if args.prompts:
        return ["file"]
    if args.contents:
        return list(args.contents)
    given = {word.partition("=")[0] for word in args.argv}
    return [args.content] if "--content" in given else list(CONTENTS)


def _measure(
    args: Namespace, study: OpenStudy, sides: tuple[SideSpec, SideSpec], kinds: list[str]
) -> bool:
    """Run the comparison; return whether a signal ended it."""
    off, on = sides
    asked = options_of(args, study.seed, same_server=is_same_server(off, on))
    asked = replace(asked, contents=kinds)
    runs = 2 * asked.looks[-1] + len(asked.looks)
    total = runs * len(kinds) * len(asked.levels) * (args.rounds + args.warmup)

    def place(row: VerdictResult) -> str:
        return row.a.rpartition(" · ")[2]

    with Display(total, quiet=args.quiet) as display:
        hooks = hooks_of(study, display, looks_up_to(args.pairs), place)
        outcome = compare_lanes(
            side_of("A", off, args, study), side_of("B", on, args, study), asked, hooks
        )
    for cell, why in outcome.cells.items():
        study.writer.note("ended_by", {"cell": cell, "ended_by": why})
    return outcome.interrupted


def _concluded(args: Namespace, study: OpenStudy) -> int:
    """Judge from the disk, write and show; return the contract's exit code."""
    from concbench.analyse.study import exit_code

    exhibits: list[Exhibit] = []
    result = result_of(study.folder, exhibits=exhibits)
    deliver(Namespace(**{**vars(args), "quiet": True}), result, study.folder, exhibits)
    _shown(args, result, study)
    return exit_code(result)


def _shown(args: Namespace, result: Result, study: OpenStudy) -> None:
    """Print what it comes to, and write it as Markdown where that was asked for."""
    from rich.console import Console

    from concbench.report.build import build_view
    from concbench.report.speculation import speculation_lines, speculation_markdown
    from concbench.report.terminal import doubt_lines

    told = (result.payload or {}).get("spec")
    if args.md == "-":
        sys.stdout.buffer.write(speculation_markdown(told).encode())
        sys.stdout.buffer.flush()
    elif args.md:
        gating.write(Path(args.md), speculation_markdown(told).encode())
    if args.quiet:
        return
    console = Console(stderr="-" in (args.json, args.md), highlight=False)
    for line in speculation_lines(told):
        console.print(line, soft_wrap=True, markup=False)
    view = build_view(result)
    for doubt in view.doubts:
        doubt_lines(doubt, console)
    for line in view.beside:
        console.print(line, soft_wrap=True, markup=False)
    page = args.html or study.folder / "report.html"
    console.print(f"study  {study.folder}      page  {page}", soft_wrap=True, markup=False)

"""What `compare` and `ab` do alike with verdicts: what may differ, the gate, JUnit, files."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from concbench.analyse.gate import Gated, parse_gate
from concbench.analyse.unlike import ACCEPTABLE
from concbench.cli import options
from concbench.errors import OutputUnusable, UsageError
from concbench.plan.levels import parse_duration, parse_percent
from concbench.result import Result, VerdictResult

FAILED = 5


def accepted(text: str) -> list[str]:
    """Parse names of what may differ. Raises ValueError for a name that is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in ACCEPTABLE:
            raise ValueError(f"{name!r} is none of {', '.join(ACCEPTABLE)}")
    return names


def add_accept(parser: ArgumentParser) -> None:
    """Add what may differ between the sides."""
    parser.add_argument(
        "--accept",
        type=options.checked(accepted),
        default=[],
        metavar="NAME,…",
        help=f"what may differ between the sides: {', '.join(ACCEPTABLE)}",
    )


def add_ending(parser: ArgumentParser, most_pairs: int) -> None:
    """Add when a comparison ends, and the margin within which sides count as equal."""
    from concbench.analyse.verdict import DELTA  # only for those who measure: it loads numpy

    group = parser.add_argument_group("when it ends")
    group.add_argument(
        "--pairs",
        type=options.checked(options.positive),
        default=most_pairs,
        metavar="N",
        help=f"at most so many pairs of runs; looks after 5, 7 and 10 (default {most_pairs})",
    )
    group.add_argument(
        "--delta",
        type=options.checked(parse_percent),
        default=DELTA,
        metavar="P%",
        help="what lies within ±P%% counts as equal, and a control that moves by half of it is a "
        f"drift (default {100 * DELTA:g}%%; a machine that is less steady than that needs more)",
    )
    group.add_argument(
        "--until",
        type=options.checked(parse_percent),
        metavar="P%",
        help="leave a level alone once its ratio's interval is within ±P%%, verdict or not",
    )
    group.add_argument(
        "--max-s",
        type=options.checked(parse_duration),
        metavar="S",
        help="begin no pair after so long (default: no limit)",
    )


def add_gate(parser: ArgumentParser) -> None:
    """Add the gate's options."""
    group = parser.add_argument_group("gate")
    group.add_argument(
        "--gate",
        type=options.checked(parse_gate),
        metavar="5%",
        help="exit 5 where B is shown to be worse than A by more, or there is no verdict",
    )
    group.add_argument(
        "--inconclusive",
        choices=["fail", "pass"],
        default="fail",
        help="what the gate makes of an interval that leaves it open (default fail)",
    )
    group.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="what the gate looks at (default the rate: steady, else batch)",
    )
    group.add_argument("--junit", type=Path, metavar="FILE", help="write verdicts as JUnit XML")


def gated_rows(result: Result, metrics: Sequence[str]) -> list[VerdictResult]:
    """Return the verdicts that the gate looks at. Raises UsageError for a metric that is not there.

    The rate by default: a latency's tail is too noisy to fail a build by unless it is asked for.
    """
    from concbench.analyse.runvalues import RATES

    known = list(dict.fromkeys(row.metric for row in result.verdicts))
    wanted = list(metrics) or [name for name in known if name in RATES][:1] or known[:1]
    for name in wanted:
        if name not in known:
            raise UsageError(f"--metric {name}: compared here are {', '.join(known)}")
    return [row for row in result.verdicts if row.metric in wanted]


def say_gate(args: Namespace, gated: Sequence[Gated], *, passed: bool) -> None:
    """Say what the gate found, on stderr where stdout is taken."""
    if args.quiet:
        return
    out = sys.stderr if "-" in (args.md, args.json) else sys.stdout
    for one in gated:
        print(f"gate  N = {one.row.concurrency}: {one.decision}, {one.reason}", file=out)
    verdict = "passed" if passed else "FAILED"
    print(f"gate {100 * args.gate:g} % {verdict}", file=out)


def write_junit(args: Namespace, result: Result, gated: Sequence[Gated]) -> None:
    """Write JUnit XML where it was asked for. Raises OutputUnusable."""
    if args.junit:
        from concbench.report.junit import to_junit

        write(args.junit, to_junit(result, gated).encode())


def write(path: Path, content: bytes) -> None:
    """Write a file that was asked for. Raises OutputUnusable."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OutputUnusable(f"cannot write {path}: {error.strerror}") from None

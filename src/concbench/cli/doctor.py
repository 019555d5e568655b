"""What on this machine, or about a target, would spoil a result; and the client's own ceiling.

The load generator is calibrated against a server whose truth is known; what it finds is kept for
this machine and copied into every study, so that a result can say when the client was the limit.
Exit code 4 when something was found that makes results wrong.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from concbench import __version__
from concbench.cli import options
from concbench.cli.loads import target_options
from concbench.clock import utc_stamp
from concbench.domain import TargetFacts, to_builtins
from concbench.errors import OutputUnusable
from concbench.load.procs import auto_procs
from concbench.measure.calibrate import (
    QUICK_STREAMS,
    TOK_PER_S,
    Calibration,
    Step,
    calibrate_client,
    keep,
)
from concbench.measure.doctor import Check, machine_checks
from concbench.measure.doctor_target import target_checks
from concbench.measure.target import is_embedded, ready
from concbench.observe.host import machine
from concbench.plan.levels import parse_levels
from concbench.result import Result, to_json

MARKS = {"ok": "ok", "warn": "!", "bad": "✗", "unknown": "?"}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `doctor`."""
    parser.add_argument(
        "target", nargs="?", metavar="TARGET", help="base URL, a lane's name, or `embedded`"
    )
    group = parser.add_argument_group("calibration")
    group.add_argument(
        "--streams",
        type=options.checked(parse_levels),
        default=list(QUICK_STREAMS),
        metavar="N,N,…",
        help=f"loads to try, in streams (default {','.join(map(str, QUICK_STREAMS))})",
    )
    group.add_argument(
        "--tok-per-s",
        type=options.checked(options.seconds),
        default=TOK_PER_S,
        metavar="R",
        help=f"tokens per second of each stream (default {TOK_PER_S:g})",
    )
    group.add_argument(
        "--procs",
        type=options.checked(options.procs),
        default=1,
        metavar="N|auto",
        help="processes of the load generator to calibrate (default 1)",
    )
    group.add_argument("--no-calibration", action="store_true", help="leave it out")
    options.add_target(parser)
    parser.add_argument("--json", metavar="FILE", help="result JSON, - for stdout")
    parser.add_argument("--quiet", action="store_true", help="no progress, no table")
    parser.set_defaults(
        endpoint="chat", stream=True, temperature=0.0, extra_body={}, content="prose"
    )


def run(args: Namespace) -> int:
    """Check the machine, the target, and the client; show and write what was found."""
    console = Console(stderr=args.json == "-", highlight=False, quiet=args.quiet)
    began, facts = utc_stamp(), machine(__version__)
    console.print("looking at this machine")
    checks = machine_checks()
    found, target = _target(args, console) if args.target else ([], None)
    checks += found
    calibration, path = (None, None) if args.no_calibration else _calibrated(args, console, facts)
    payload = {
        "checks": [to_builtins(check) for check in checks],
        "calibration": None if calibration is None else to_builtins(calibration),
        "calibration_file": None if path is None else str(path),
    }
    _show(console, checks, calibration, path)
    _write(args, Result(
        tool_version=__version__,
        command="doctor",
        study=None,
        began_utc=began,
        target=target,
        targets={} if target is None else {target.lane: target},
        machine=facts,
        payload={"doctor": payload},
    ))  # fmt: skip
    hopeless = calibration is not None and calibration.method == "none"
    return 4 if hopeless or any(check.state == "bad" for check in checks) else 0


def _target(args: Namespace, console: Console) -> tuple[list[Check], TargetFacts]:
    console.print(f"reaching {args.target}")
    seed = secrets.randbelow(1 << 31)
    scratch = tempfile.TemporaryDirectory() if is_embedded(args.target) else nullcontext(".")
    with (
        scratch as folder,
        ready(
            target_options(args, seed), slots=1, context_tok=2048, log_folder=Path(folder)
        ) as session,
    ):
        return target_checks(session, seed), session.facts


def _calibrated(
    args: Namespace, console: Console, facts: dict[str, Any]
) -> tuple[Calibration, Path | None]:
    procs = args.procs or auto_procs(max(args.streams), facts["cpu_count"] or 1)
    console.print(f"calibrating the client ({procs} process{'es' if procs > 1 else ''})")

    def on_step(step: Step) -> None:
        console.print(f"  {step.streams} streams: {step.got_tok_per_s:,.0f} tok/s", soft_wrap=True)

    found = calibrate_client(procs, sorted(args.streams), args.tok_per_s, on_step)
    try:
        return found, keep(found, facts["fingerprint"])
    except OSError as error:
        console.print(f"the calibration could not be kept: {error}", soft_wrap=True)
        return found, None


def _show(
    console: Console, checks: list[Check], calibration: Calibration | None, path: Path | None
) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        table.add_row(MARKS[check.state], check.name, check.message)
    console.print(table)
    if calibration is None:
        return
    console.print(ladder(calibration))
    console.print(ceiling_line(calibration), soft_wrap=True)
    if path is not None:
        console.print(f"kept in {path}", soft_wrap=True)


def ladder(calibration: Calibration) -> Table:
    """Return the calibration's steps as a table: our numbers − the null server's own."""
    table = Table(box=None, pad_edge=False, title="client against the null server", min_width=60)
    heads = ("streams", "tok/s", "TTFT mean", "TTFT p99", "rate", "reads late p99", "CPU", "")
    for head in heads:
        table.add_column(head, justify="right" if head else "left", no_wrap=True)
    for step in calibration.steps:
        late = step.read_lateness_p99_ms
        table.add_row(
            f"{step.streams:,}",
            f"{step.got_tok_per_s:,.0f}",
            f"{step.ttft_mean_error_ms:+.2f} ms",
            f"{step.ttft_p99_error_ms:+.2f} ms",
            f"{step.rate_error_pct:+.2f} %",
            "unknown" if late is None else f"{late:.2f} ms",
            f"{step.client_cpu:.2f}",
            "client-bound" if step.bound else "",
        )
    return table


def ceiling_line(calibration: Calibration) -> str:
    """Return what the calibration amounts to, in a sentence."""
    ceiling = calibration.ceiling_tok_per_s
    if ceiling is None:
        return "ceiling: even the lightest load was too much for this client; see the checks above"
    how = {
        "measured": "the client gave way beyond it",
        "extrapolated": "by its CPU; the ladder did not reach it",
    }[calibration.method]
    return f"ceiling: {ceiling:,.0f} tok/s ({how}); {calibration.ceiling_streams:,} streams held"


def _write(args: Namespace, result: Result) -> None:
    encoded = to_json(result)
    if args.json == "-":
        sys.stdout.buffer.write(encoded)
        sys.stdout.buffer.flush()
    elif args.json:
        try:
            Path(args.json).write_bytes(encoded)
        except OSError as error:
            raise OutputUnusable(f"cannot write {args.json}: {error.strerror}") from None

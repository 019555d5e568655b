"""Read results of guidellm, aiperf, vLLM's and SGLang's bench, llama-benchy into a study."""

from __future__ import annotations

import hashlib
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from concbench.cli import options
from concbench.result import Result
from concbench.store.importers.model import Imported


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `import`."""
    options.let_options_stand_between(parser)
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="result file; several where one tool wrote them (aiperf's summary and its records)",
    )
    parser.add_argument("--lane", metavar="NAME", help="what to call the server (default the tool)")
    options.add_output(parser)


def run(args: Namespace) -> int:
    """Read, store as a study of its own, compute again what can be, and show both."""
    from concbench.analyse.exhibits import Exhibit
    from concbench.analyse.study import exit_code
    from concbench.cli.study import deliver, new_study, result_of
    from concbench.clock import utc_stamp
    from concbench.store.importers.read import read_files

    read = read_files(args.files, args.lane, utc_stamp())
    args.seed = 0
    plan = {"files": [str(path) for path in args.files], "tool": read.tool}
    with new_study(args, "import", plan) as study:
        for round_ in read.rounds:
            study.keep(round_)
        study.writer.targets({facts.lane: facts for facts in read.facts})
        study.writer.note("imported", _note(read, args.files))
        study.written += 1
        study.writer.finish()
        study.closed = True
    exhibits: list[Exhibit] = []
    result = result_of(study.folder, exhibits=exhibits)
    deliver(args, result, study.folder, exhibits)
    if not args.quiet and args.json != "-":
        for line in lines(result):
            print(line)
    return exit_code(result)


def _note(read: Imported, files: list[Path]) -> dict[str, Any]:
    """Return what the study keeps beside the rounds: figures as told, and what they mean."""
    import msgspec

    return {
        "tool": read.tool,
        "version": read.version,
        "files": [
            {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for path in files
        ],
        "timed": read.timed,
        "why": read.why,
        "remarks": read.remarks,
        "cells": msgspec.to_builtins(read.cells),
    }


def lines(result: Result) -> list[str]:
    """Return a line for each figure that the tool told otherwise, and each remark."""
    payload = result.payload or {}
    told = [
        f"{entry['cell']}  {one['figure']}: {entry['tool']} {one['theirs']:,.4g}, here "
        f"{one['ours']:,.4g} ({one['difference_pct']:+.1f} %): {one['why']}"
        for entry in payload.get("imported", ())
        for one in entry["differences"]
    ]
    return [*told, *(f"remark  {remark}" for remark in payload.get("remarks", ()))]

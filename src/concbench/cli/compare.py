"""Verdicts and crossovers from what is stored: two lanes of a study, two studies, or a table."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from concbench.analyse.gate import gate, passes
from concbench.cli import gating, options
from concbench.domain import Doubt
from concbench.errors import UsageError
from concbench.result import Result

if TYPE_CHECKING:
    from concbench.analyse.exhibits import Exhibit
    from concbench.store.read import StudyReader


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `compare`."""
    options.let_options_stand_between(parser)
    parser.add_argument(
        "studies",
        nargs="*",
        type=Path,
        metavar="STUDY",
        help="a study with several lanes, two studies (the first is A), or a table of figures",
    )
    gating.add_accept(parser)
    gating.add_gate(parser)
    group = parser.add_argument_group("baseline")
    group.add_argument("--baseline", metavar="NAME", help="compare with the study saved as NAME")
    group.add_argument(
        "--save-baseline",
        metavar="NAME",
        help="remember the last STUDY as NAME, unless the gate fails",
    )
    group = parser.add_argument_group("output")
    group.add_argument("--md", metavar="FILE", help="write Markdown, - for stdout")
    group.add_argument("--json", metavar="FILE", help="write the result JSON, - for stdout")
    group.add_argument("--html", type=Path, metavar="FILE", help="write the page")
    group.add_argument("--quiet", action="store_true", help="no table")


def run(args: Namespace) -> int:
    """Judge, show, write what was asked for; the gate decides the exit code where there is one."""
    from concbench.analyse.study import exit_code
    from concbench.cli import baselines

    studies = list(args.studies)
    if args.baseline:
        studies.insert(0, baselines.load(args.baseline))
    if not studies:
        raise UsageError("concbench compare: name a study, or two (or a --baseline)")
    if len(studies) == 1 and args.save_baseline and not args.gate:
        baselines.save(args.save_baseline, studies[0])
        print(f"{studies[0]} is the baseline {args.save_baseline}")
        return 0
    exhibits: list[Exhibit] | None = [] if args.html else None
    result = compared(studies, args.accept, exhibits)
    gated = gate(gating.gated_rows(result, args.metric), args.gate) if args.gate else []
    deliver(args, result, exhibits or ())
    gating.write_junit(args, result, gated)
    if args.gate is None:
        if args.save_baseline:
            baselines.save(args.save_baseline, studies[-1])
        return exit_code(result)
    passed = passes(gated, inconclusive_passes=args.inconclusive == "pass")
    gating.say_gate(args, gated, passed=passed)
    if passed and args.save_baseline:
        baselines.save(args.save_baseline, studies[-1])
    return 0 if passed else gating.FAILED


def compared(
    studies: Sequence[Path], accept: Sequence[str], exhibits: list[Exhibit] | None = None
) -> Result:
    """Return the result of comparing one or two studies, or the readings of a table.

    `exhibits` is a list that is filled with what a page draws of each cell; a table has none.
    Raises UsageError where there is nothing to compare, StudyUnreadable for a damaged study.
    """
    if len(studies) > 2:
        raise UsageError("concbench compare: one study or two")
    if any(path.is_file() for path in studies):
        if len(studies) > 1:
            raise UsageError("concbench compare: a table of figures is compared in itself")
        from concbench.cli.tables import compared_table

        return compared_table(studies[0], accept)
    from concbench.cli.judging import add_past

    result = _judged(studies, accept, None, exhibits)

    def rejudge(names: Collection[str]) -> Result:
        return _judged(studies, accept, names)

    add_past(result, rejudge)
    return result


def _check_sides(
    studies: Sequence[Path], readers: Sequence[StudyReader], names: Sequence[str]
) -> bool:
    """Raise UsageError where there are no two alike sides; return whether they are imported."""
    if len(names) < 2:
        lanes = names[0] if names else "no lane"
        raise UsageError(
            f"nothing to compare: {' and '.join(map(str, studies))} holds {lanes} alone; "
            "name a second study, or measure two lanes with `concbench ab`"
        )
    imported = {bool(reader.notes("imported")) for reader in readers}
    if len(imported) > 1:
        raise UsageError(
            "figures of another tool are not compared with measured ones: their definitions "
            "differ; measure both with one tool"
        )
    return True in imported


def _by_content(readers: Sequence[StudyReader]) -> bool:
    """Return whether this is a study of `spec`, which is judged already. Raises UsageError."""
    noted = [notes[0] for reader in readers if (notes := reader.notes("ab"))]
    if not any(note.get("contents") for note in noted):
        return False
    if len(readers) > 1:
        raise UsageError(
            "a study of `concbench spec` holds a comparison of each content: give it alone"
        )
    return True


def _judged(
    studies: Sequence[Path],
    accept: Sequence[str],
    gone: Collection[str] | None,
    exhibits: list[Exhibit] | None = None,
) -> Result:
    """Return verdicts over the lanes of the studies; `gone` instead of the retracted rounds."""
    from concbench.analyse.compare import compare
    from concbench.analyse.toldcompare import compare_told
    from concbench.analyse.verdict import DELTA
    from concbench.cli.judging import (
        COMPARING,
        accepted_of,
        add_outcome,
        delta_of,
        gone_of,
        parties_of,
        renamed,
    )
    from concbench.cli.study import result_of
    from concbench.store.read import open_study

    readers, delta = [open_study(path) for path in studies], DELTA
    if len(readers) == 1 and readers[0].record.command in COMPARING:
        accept = accept or accepted_of(readers[0])
        delta = delta_of(readers[0])
    if len(readers) == 2 and readers[0].record.study == readers[1].record.study:
        raise UsageError(f"{studies[0]} and {studies[1]} are the same study")
    drawn: list[list[Exhibit]] = [[] for _ in studies]
    results = [
        result_of(path, gone, None if exhibits is None else seen)
        for path, seen in zip(studies, drawn, strict=True)
    ]
    if _by_content(readers):
        if exhibits is not None:
            exhibits += drawn[0]
        return results[0]
    prefixes = _prefixes(studies, results)
    if exhibits is not None:
        for seen, prefix in zip(drawn, prefixes, strict=True):
            exhibits += [replace(each, cell=f"{prefix}{each.cell}") for each in seen]
    parties = []
    for reader, result, prefix in zip(readers, results, prefixes, strict=True):
        withdrawn = gone_of(reader)
        if gone is not None:
            withdrawn = {name: why for name, why in withdrawn.items() if name in gone}
        parties += parties_of(reader, renamed(result, prefix), withdrawn, prefix)
    imported = _check_sides(studies, readers, [party.name for party in parties])
    told = imported and not all(party.rounds for party in parties)
    outcome = compare_told(parties, accept) if told else compare(parties, accept, delta)
    merged = _merged(results)
    if not outcome.verdicts:
        raise UsageError("nothing to compare: the sides have no level and context in common")
    add_outcome(merged, outcome)
    return merged


def _prefixes(studies: Sequence[Path], results: Sequence[Result]) -> list[str]:
    """Return what tells lanes of one name in two studies apart: their folders' names."""
    if len(results) < 2:
        return [""] * len(results)
    lanes = [{cell.lane for cell in result.cells} for result in results]
    if not lanes[0] & lanes[1]:
        return ["", ""]
    names = [path.resolve().name for path in studies]
    if names[0] == names[1]:
        names = ["A", "B"]
    return [f"{name}:" for name in names]


def _merged(results: Sequence[Result]) -> Result:
    """Return one document of both studies' cells; that of the first where there is one."""
    first = results[0]
    first.command = "compare"
    # What measured them is said where it is known of all.
    ran = [(each.payload or {}).get("ran") or [] for each in results]
    first.payload = {"ran": [line for lines in ran for line in lines]} if all(ran) else None
    first.target = None
    first.verdicts, first.crossovers = [], []
    for other in results[1:]:
        first.study = f"{first.study} and {other.study}"
        first.cells = [*first.cells, *other.cells]
        first.targets = {**first.targets, **other.targets}
        first.lanes = {**first.lanes, **other.lanes}
        first.corrections = [*first.corrections, *other.corrections]
        first.interrupted = first.interrupted or other.interrupted
        first.doubts = [*first.doubts, *other.doubts, *_other_machine(first, other)]
        if first.workload != other.workload:
            first.workload = None
    return first


def _other_machine(a: Result, b: Result) -> list[Doubt]:
    """Return a doubt where the two studies were measured from different machines."""
    from concbench.analyse.severity import doubt

    prints = a.machine.get("fingerprint"), b.machine.get("fingerprint")
    if None in prints or prints[0] == prints[1]:
        return []
    message = (
        "the two studies were measured from different client machines: what differs may be the "
        "client. Measure both from one."
    )
    return [doubt("not_comparable", None, message, {"fingerprints": list(prints)})]


def deliver(args: Namespace, result: Result, exhibits: Sequence[Exhibit] = ()) -> None:
    """Show the comparison and write what was asked for; a page draws the `exhibits`."""
    from rich.console import Console

    from concbench.report.comparison import comparison_markdown, render_comparison
    from concbench.result import to_json

    texts: dict[str | None, Callable[[], bytes]] = {
        args.md: lambda: comparison_markdown(result).encode(),
        args.json: lambda: to_json(result),
    }
    for where, make in texts.items():
        if where == "-":
            sys.stdout.buffer.write(make())
            sys.stdout.buffer.flush()
        elif where:
            gating.write(Path(where), make())
    if args.html:
        from concbench.report.html import write_html

        write_html(result, args.html, exhibits)
    if not args.quiet:
        render_comparison(result, Console(stderr="-" in texts, highlight=False))

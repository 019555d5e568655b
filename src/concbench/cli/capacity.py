"""How many users this box carries, from what is stored: levels against objectives, KV, the knee."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from concbench.cli import options

if TYPE_CHECKING:
    from concbench.analyse.capacity import Capacity
    from concbench.analyse.ratecapacity import RateCapacity
    from concbench.analyse.steptime import StepPrediction
    from concbench.result import Result

DEFAULT_SLO = "ttft_p95=2s,user_tok_per_s=20"


def slo_text(text: str) -> str:
    """Return the text of objectives that can be read."""
    from concbench.plan.levels import parse_slo

    parse_slo(text)
    return text


def think(text: str) -> float:
    """Parse a think time: 0 or a duration, in seconds."""
    from concbench.plan.levels import parse_duration

    return 0.0 if text.strip() in ("0", "0s") else parse_duration(text)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `capacity`."""
    parser.add_argument("study", type=Path, metavar="STUDY", help="study folder")
    parser.add_argument(
        "--slo",
        type=options.checked(slo_text),
        default=DEFAULT_SLO,
        metavar="NAME=LIMIT,…",
        help=f"objectives (default {DEFAULT_SLO})",
    )
    parser.add_argument(
        "--think-s",
        type=options.checked(think),
        default=0.0,
        metavar="S",
        help="pause of a user between an answer and the next question (default 0)",
    )
    parser.add_argument("--json", metavar="FILE", help="write the result JSON, - for stdout")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page")
    parser.add_argument("--md", metavar="FILE", help="write it as Markdown, - for stdout")
    parser.add_argument("--quiet", action="store_true", help="no table")


def run(args: Namespace) -> int:
    """Judge the stored cells against the objectives; show, and write what was asked for."""
    from concbench.analyse.steptime import predictions
    from concbench.analyse.study import exit_code
    from concbench.cli.stored import drawn_result, stored_result
    from concbench.domain import to_builtins
    from concbench.result import to_json

    result, exhibits = drawn_result(args.study) if args.html else (stored_result(args.study), [])
    found, rates = add_capacity(result, args.slo, args.think_s)
    forecast = predictions(result.cells, result.doubts, result.targets)
    told = {**(result.payload or {})["capacity"], "predictions": to_builtins(forecast)}
    result.payload = {**(result.payload or {}), "capacity": told}
    series = _series(found, rates, args.think_s)
    if args.json:
        _write(args.json, to_json(result))
    if args.md:
        _write(args.md, capacity_markdown(series, forecast, args.slo).encode())
    if args.html:
        from concbench.report.html import write_html

        write_html(result, args.html, exhibits)
    if not args.quiet:
        _show(series, forecast, args)
    return exit_code(result)


def add_capacity(
    result: Result, slo: str, think_s: float
) -> tuple[list[Capacity], list[RateCapacity]]:
    """Put what each series of levels and of rates carries into the payload, and return both.

    Raises UsageError.
    """
    from concbench.analyse.capacity import capacity
    from concbench.analyse.ratecapacity import rate_capacity
    from concbench.domain import to_builtins
    from concbench.plan.levels import parse_slo

    slos = parse_slo(slo)
    found = capacity(result.cells, result.doubts, result.targets, slos, think_s)
    rates = rate_capacity(result.cells, result.doubts, slos, think_s)
    told = {"slo": slo, "think_s": think_s, "series": to_builtins(found)}
    told["rates"] = to_builtins(rates)
    result.payload = {**(result.payload or {}), "capacity": told}
    return found, rates


def _write(where: str, content: bytes) -> None:
    from concbench.errors import OutputUnusable

    if where == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        Path(where).write_bytes(content)
    except OSError as error:
        raise OutputUnusable(f"cannot write {where}: {error.strerror}") from None


def _series(found: list[Capacity], rates: list[RateCapacity], think_s: float) -> list[list[str]]:
    """Return the lines of each series of levels and of rates, its answer first."""
    from concbench.report.capacity import series_lines
    from concbench.report.ratecapacity import rate_lines

    return [list(series_lines(each, think_s)) for each in found] + [
        list(rate_lines(each, think_s)) for each in rates
    ]


def capacity_markdown(series: list[list[str]], forecast: list[StepPrediction], slo: str) -> str:
    """Return answers, levels and predictions as Markdown, fit for a wiki."""
    from concbench.report.markdown import escaped
    from concbench.report.prediction import prediction_markdown

    blocks = [f"objectives: {escaped(slo)}"]
    for first, *rest in series:
        blocks += [f"**{escaped(first)}**", "\n".join(f"- {escaped(one.strip())}" for one in rest)]
    blocks += [prediction_markdown(one) for one in forecast]
    return "\n\n".join(blocks) + "\n"


def _show(series: list[list[str]], forecast: list[StepPrediction], args: Namespace) -> None:
    from rich.console import Console

    from concbench.report.prediction import prediction_lines

    console = Console(stderr="-" in (args.json, args.md), highlight=False)
    for lines in (*series, *(prediction_lines(one) for one in forecast)):
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)
    if not series:
        console.print("no level or rate is on record: measure with burst, sustain or rate")

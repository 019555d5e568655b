"""How many users this box carries, from what is stored: levels against objectives, KV, the knee."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from concbench.cli import options

if TYPE_CHECKING:
    from concbench.analyse.capacity import Capacity, LevelCapacity
    from concbench.analyse.steptime import StepPrediction

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
    parser.add_argument("--md", metavar="FILE", help="write it as Markdown, - for stdout")
    parser.add_argument("--quiet", action="store_true", help="no table")


def run(args: Namespace) -> int:
    """Judge the stored cells against the objectives; show, and write what was asked for."""
    from concbench.analyse.capacity import capacity
    from concbench.analyse.ratecapacity import rate_capacity
    from concbench.analyse.steptime import predictions
    from concbench.analyse.study import exit_code
    from concbench.cli.study import result_of
    from concbench.domain import to_builtins
    from concbench.plan.levels import parse_slo
    from concbench.result import to_json

    result = result_of(args.study)
    found = capacity(result.cells, result.doubts, result.targets, parse_slo(args.slo), args.think_s)
    forecast = predictions(result.cells, result.doubts, result.targets)
    told = {"slo": args.slo, "think_s": args.think_s, "series": to_builtins(found)}
    rates = rate_capacity(result.cells, result.doubts, parse_slo(args.slo), args.think_s)
    told |= {"predictions": to_builtins(forecast), "rates": to_builtins(rates)}
    result.payload = {**(result.payload or {}), "capacity": told}
    if args.json:
        _write(args.json, to_json(result))
    if args.md:
        _write(args.md, capacity_markdown(found, forecast, args).encode())
    if not args.quiet:
        _show(found, forecast, args)
    return exit_code(result)


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


def capacity_markdown(
    found: list[Capacity], forecast: list[StepPrediction], args: Namespace
) -> str:
    """Return answers, levels and predictions as Markdown, fit for a wiki."""
    from concbench.report.markdown import escaped
    from concbench.report.prediction import prediction_markdown

    blocks = [f"objectives: {escaped(args.slo)}"]
    for series in found:
        first, *rest = series_lines(series, args.think_s)
        blocks += [f"**{escaped(first)}**", "\n".join(f"- {escaped(one.strip())}" for one in rest)]
    blocks += [prediction_markdown(one) for one in forecast]
    return "\n\n".join(blocks) + "\n"


def _show(found: list[Capacity], forecast: list[StepPrediction], args: Namespace) -> None:
    from rich.console import Console

    from concbench.report.prediction import prediction_lines

    console = Console(stderr="-" in (args.json, args.md), highlight=False)
    for series in found:
        for line in series_lines(series, args.think_s):
            console.print(line, soft_wrap=True, markup=False)
    for one in forecast:
        for line in prediction_lines(one):
            console.print(line, soft_wrap=True, markup=False)
    if not found:
        console.print("no level of a fixed concurrency is on record: measure with burst or sustain")


def series_lines(series: Capacity, think_s: float) -> Iterator[str]:
    """Yield one series as lines: the answer first, then a line a level, then KV and knee."""
    from concbench.report.inert import inert

    # A label that is no length is a kind of content.
    label = series.context_label
    kind = "" if label == "short" or label.isdigit() else inert(label, 40)
    place = [f"{series.context_tok:,} tokens", kind]
    parts = [inert(series.lane), inert(series.link or ""), *place]
    yield f"{' · '.join(filter(None, parts))}: {answer(series, think_s)}"
    for level in series.levels:
        yield f"  N = {level.concurrency:<5} {_level_text(level)}"
    if series.n_kv is not None:
        yield (
            f"  KV pool {series.pool_tok:,} tokens: {series.n_kv:,} requests of "
            f"{series.context_tok:,} + {series.output_tok:,.0f} tokens at once"
        )
    if series.knee is not None:
        seen = series.ceiling in ("reached", "passed")
        beyond = "" if seen else " or beyond: throughput still grows at the highest level"
        yield f"  knee near N = {series.knee:.1f}{beyond}"


def answer(series: Capacity, think_s: float) -> str:
    """Return the capacity in one sentence, with what bounds it."""
    if series.holds is None:
        text = "no measured level is shown to hold the objectives"
    else:
        text = f"{series.holds} at once hold the objectives"
        if think_s and series.users is not None:
            text += f", {series.users:.0f} users who pause for {think_s:g} s"
    if series.fails is not None:
        text += f"; {series.fails} at once do not"
    elif series.holds is not None:
        text += "; no higher level was shown to fail"
    doubted = [each.concurrency for each in series.levels if each.standing == "doubted"]
    still = [level for level in series.open if level not in doubted]
    if still:
        text += f"; open at {', '.join(map(str, still))} (sustain gives more requests)"
    if doubted:
        text += f"; nothing can be said at {', '.join(map(str, doubted))} (a fatal doubt)"
    return text


def _level_text(level: LevelCapacity) -> str:
    rate = "–" if level.tok_per_s is None else f"{level.tok_per_s:,.0f} tok/s"
    gain = (
        "" if level.gain_per_doubling is None else f", {level.gain_per_doubling:.2f} × a doubling"
    )
    checks = "; ".join(
        f"{each.slo} {_number(each.value)} (bound {_number(each.bound)}, limit {each.limit:g})"
        for each in level.objectives
    )
    why = f": {level.why}" if level.why else ""
    return f"{level.standing}{why} · {rate}{gain} · {checks}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"

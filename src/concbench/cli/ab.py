"""A controlled comparison of two lanes, interleaved, until every level has a verdict."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from concbench.analyse.driver import headline_rows, looks_up_to
from concbench.analyse.exhibits import Exhibit
from concbench.analyse.looks import LOOKS
from concbench.cli import gating, options
from concbench.cli.loads import MOST_EMBEDDED_SLOTS, file_prompts, plain, target_options
from concbench.cli.progress import Display
from concbench.cli.sides import SideSpec, is_same_server, parse_contexts, parse_vary, sides_of
from concbench.cli.study import OpenStudy, deliver, new_study, result_of, targets
from concbench.domain import Round
from concbench.measure.ab import compare_lanes
from concbench.measure.ab_parts import AbHooks, AbOptions, Side
from concbench.measure.session import Session
from concbench.measure.target import TargetOptions, embedded_context_tok, ready
from concbench.plan.levels import parse_levels
from concbench.plan.matrix import file_name
from concbench.plan.order import Letter
from concbench.report.comparisontables import word
from concbench.report.numbers import ratio_estimate
from concbench.result import Result, VerdictResult

MOST_PAIRS = LOOKS[-1]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `ab`."""
    options.let_options_stand_between(parser)
    parser.add_argument(
        "sides",
        nargs="*",
        metavar="A B",
        help="two base URLs, lanes or `embedded`; a plan file (its two lanes); one and --vary",
    )
    parser.add_argument(
        "--vary",
        type=options.checked(parse_vary),
        action="append",
        default=[],
        metavar="FLAG=A,B",
        help="one lane, or `embedded`, with this flag at A and at B (may be repeated)",
    )
    parser.add_argument(
        "--levels",
        type=options.checked(parse_levels),
        default=[1, 2, 4, 8],
        metavar="N,N,…",
        help="how many at once (default 1,2,4,8)",
    )
    parser.add_argument(
        "--contexts",
        type=options.checked(parse_contexts),
        metavar="N,N,…",
        help="prompt lengths in tokens, `short` is 50 (default --prompt-tokens alone)",
    )
    parser.add_argument(
        "--both-up",
        action="store_true",
        help="start each lane once and keep both up (default: one at a time, started for each run)",
    )
    gating.add_accept(parser)
    gating.add_ending(parser, MOST_PAIRS)
    gating.add_gate(parser)
    group = parser.add_argument_group("baseline")
    group.add_argument(
        "--baseline", metavar="NAME", help="side A is what the study saved as NAME had measured"
    )
    group.add_argument(
        "--save-baseline", metavar="NAME", help="remember this study as NAME, unless the gate fails"
    )
    options.add_target(parser)
    options.add_workload(parser)
    options.add_rounds(parser, growing=False)
    options.add_generator(parser)
    options.add_output(parser)
    parser.add_argument("--md", metavar="FILE", help="Markdown summary, - for stdout")


def run(args: Namespace) -> int:
    """Measure in turns, judge after each pair, store, show; the gate decides where there is one."""
    options.api_key(args)
    a, b = sides_of(args)
    plan = {
        "levels": list(args.levels),
        "until": args.until,
        "delta": args.delta,
        "accept": list(args.accept),
        "side_a": recorded(a),
        "side_b": recorded(b),
        "options": plain(args),
    }
    with new_study(args, "ab", plan) as study:
        asked = options_of(args, study.seed, same_server=is_same_server(a, b))
        runs = 2 * asked.looks[-1] + len(asked.looks)
        cells = len(asked.contexts) * len(asked.levels)
        total = runs * cells * (args.rounds + args.warmup)
        with Display(total, quiet=args.quiet) as display:
            hooks = hooks_of(study, display, asked.looks)
            sides = side_of("A", a, args, study), side_of("B", b, args, study)
            outcome = compare_lanes(*sides, asked, hooks)
        for cell, why in outcome.cells.items():
            study.writer.note("ended_by", {"cell": cell, "ended_by": why})
        study.writer.finish(interrupted=outcome.interrupted)
        study.closed = True
        return _concluded(args, study)


def options_of(args: Namespace, seed: int, *, same_server: bool) -> AbOptions:
    """Return what every run does, from the command line's options."""
    return AbOptions(
        levels=list(args.levels),
        contexts=args.contexts or [args.prompt_tokens],
        output_tok=args.output_tokens,
        content=args.content,
        seed=seed,
        rounds=args.rounds,
        warmup=args.warmup,
        looks=looks_up_to(args.pairs),
        until=args.until,
        max_s=args.max_s,
        timeout_s=args.timeout_s,
        inactivity_s=args.inactivity_s,
        same_prompt=args.same_prompt,
        file_prompts=file_prompts(args),
        reset_cache=args.reset_cache,
        same_server=same_server,
    )


def recorded(side: SideSpec) -> dict[str, Any]:
    """Return how a side was reached, for the record and for a baseline."""
    plan = None if side.plan is None else str(side.plan)
    return {
        "name": side.name,
        "target": side.target,
        "plan": plan,
        "upkeep": side.upkeep,
        "flags": dict(side.flags),
    }


def side_of(letter: Letter, asked: SideSpec, args: Namespace, study: OpenStudy) -> Side:
    """Return a side that can be reached again and again."""
    common = Namespace(**{**vars(args), "target": asked.target, "plan": asked.plan})
    target = target_options(common, study.seed)
    target = TargetOptions(
        target.target, target.access, target.model, target.ask, target.content, target.seed,
        asked.plan, target.wait_s, target.say, asked.flags,
    )  # fmt: skip
    carrier = options.carrier(args)
    longest = max(args.contexts or [args.prompt_tokens])

    borne_s: list[float] = []

    @contextmanager
    def reach() -> Iterator[Session]:
        lane = ready(
            replace(target, silent_s=max(borne_s, default=target.silent_s)),
            slots=min(max(args.levels), MOST_EMBEDDED_SLOTS),
            context_tok=embedded_context_tok(longest, args.output_tokens),
            log_folder=study.folder / "logs" / file_name(asked.name),
        )
        with lane as session:
            session.carrier = carrier
            # It has answered: from now on the same silence is a hang, and not a model that loads.
            borne_s.append(session.silent_s)
            yield session

    return Side(letter, asked.name, reach, asked.upkeep, asked.recipe)


def hooks_of(
    study: OpenStudy,
    display: Display,
    looks: Sequence[int],
    place: Callable[[VerdictResult], str] = lambda _: "",
) -> AbHooks:
    """Return what stores and shows a comparison while it runs; `place` names what else varies."""

    def on_round(finished: Round) -> None:
        study.keep(finished)
        display.tick(f"{finished.cell.lane} N = {finished.cell.concurrency} {finished.phase}")

    def on_lane(session: Session) -> None:
        targets(study, session.lane, session.facts, session.template_tok)

    def on_note(kind: str, data: Mapping[str, Any]) -> None:
        study.writer.note(kind, data)
        if kind == "start":
            display.say(f"{data['lane']} is up")
        if kind == "ab_run":
            place = "control" if data["pair"] is None else f"pair {data['pair'] + 1}"
            display.say(f"run {data['letter']} of {place} is measured")

    def look() -> list[VerdictResult]:
        return result_of(study.folder).verdicts

    def on_pair(pairs: int, verdicts: Sequence[VerdictResult]) -> None:
        for line in pair_lines(pairs, verdicts, looks, place):
            display.line(line)

    return AbHooks(
        on_round=on_round,
        on_discard=study.writer.discard,
        on_failed=study.writer.failed,
        on_note=on_note,
        on_lane=on_lane,
        look=look,
        on_pair=on_pair,
        say=display.line,
        on_look=study.looking(display.look),
    )


def pair_lines(
    pairs: int,
    verdicts: Sequence[VerdictResult],
    looks: Sequence[int],
    place: Callable[[VerdictResult], str] = lambda _: "",
) -> tuple[str, str]:
    """Return what the verdict would be after so many pairs, and how much may still come.

    `place` stands before a level, where more than it and the context varies.
    """
    said: list[str] = []
    rows = headline_rows(verdicts)
    contexts = {row.context_tok for row in rows}
    for row in rows:
        where = f"{place(row)} N = {row.concurrency}".lstrip()
        where += f" at {row.context_tok:,}" if len(contexts) > 1 else ""
        ratio = "" if row.ratio is None else f" {ratio_estimate(row.ratio)}"
        why = f" ({row.why})" if row.verdict in ("invalid", "drifted") and row.why else ""
        said.append(f"{where} {word(row)}{ratio}{why}")
    noun = "pair" if pairs == 1 else "pairs"
    first = f"after {pairs} {noun} it would be: {' · '.join(said) or 'nothing yet'}"
    ahead = [number for number in looks if number > pairs]
    if pairs in looks:
        left = len(ahead)
        what = f"up to {left} more block{'s' if left != 1 else ''}" if left else "the last look"
        return first, f"  a look; {what}" + (f", {looks[-1]} pairs at most" if left else "")
    blocks = f"{len(ahead)} block{'s' if len(ahead) != 1 else ''}"
    more = ahead[0] - pairs if ahead else 0
    return first, f"  {more} to the next look; at most {blocks}, {looks[-1]} pairs in all"


def _concluded(args: Namespace, study: OpenStudy) -> int:
    """Judge from the disk, write and show; return the contract's exit code."""
    from concbench.analyse.gate import gate, passes
    from concbench.analyse.study import exit_code
    from concbench.cli import baselines

    exhibits: list[Exhibit] = []
    result = result_of(study.folder, exhibits=exhibits)
    rows = gating.gated_rows(result, args.metric) if args.gate and not result.interrupted else []
    gated = gate(rows, args.gate) if rows else []
    # The files of every command; the table is the comparison's own.
    deliver(Namespace(**{**vars(args), "quiet": True}), result, study.folder, exhibits)
    _shown(args, result, study)
    gating.write_junit(args, result, gated)
    if args.gate is None or result.interrupted:
        if args.save_baseline and not result.interrupted:
            baselines.save(args.save_baseline, study.folder)
        return exit_code(result)
    passed = passes(gated, inconclusive_passes=args.inconclusive == "pass")
    gating.say_gate(args, gated, passed=passed)
    if passed and args.save_baseline:
        baselines.save(args.save_baseline, study.folder)
    return 0 if passed else gating.FAILED


def _shown(args: Namespace, result: Result, study: OpenStudy) -> None:
    """Print the comparison, and write it as Markdown where that was asked for."""
    from rich.console import Console

    from concbench.report.build import build_view
    from concbench.report.comparison import comparison_markdown, render_comparison

    if args.md == "-":
        sys.stdout.buffer.write(comparison_markdown(result).encode())
        sys.stdout.buffer.flush()
    elif args.md:
        gating.write(Path(args.md), comparison_markdown(result).encode())
    if args.quiet:
        return
    console = Console(stderr="-" in (args.json, args.md), highlight=False)
    render_comparison(result, console)
    for line in build_view(result).beside:
        console.print(line, soft_wrap=True, markup=False)
    page = args.html or study.folder / "report.html"
    console.print(f"study  {study.folder}      page  {page}", soft_wrap=True, markup=False)

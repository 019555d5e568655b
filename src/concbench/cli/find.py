"""The largest number of requests in flight that holds objectives, found by closed loops."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from concbench import __version__
from concbench.analyse.capacity import capacity
from concbench.analyse.study import StudyFacts, exit_code, judge
from concbench.cli import options
from concbench.cli.capacity import DEFAULT_SLO, series_lines, slo_text, think
from concbench.cli.live import LiveDisplay
from concbench.cli.loads import file_prompts, lane_session, plain, target_options
from concbench.cli.study import OpenStudy, deliver, new_study, result_of
from concbench.cli.sustain import one_level, sustain_options
from concbench.domain import Round, to_builtins
from concbench.errors import UsageError
from concbench.measure.closed import sustain
from concbench.measure.session import Session
from concbench.plan.levels import Slo, parse_slo
from concbench.plan.prompts import Prompt
from concbench.plan.search import Search


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `find`."""
    parser.add_argument("target", metavar="TARGET", help="base URL, a lane's name, or `embedded`")
    parser.add_argument(
        "--slo",
        type=options.checked(slo_text),
        default=DEFAULT_SLO,
        metavar="NAME=LIMIT,…",
        help=f"objectives (default {DEFAULT_SLO})",
    )
    level = options.checked(one_level)
    parser.add_argument(
        "--from", dest="least", type=level, default=1, metavar="N", help="default 1"
    )
    parser.add_argument(
        "--to", dest="most", type=level, default=256, metavar="N", help="at most (default 256)"
    )
    parser.add_argument(
        "--think-s",
        type=options.checked(think),
        default=0.0,
        metavar="S",
        help="pause of a user between an answer and the next question (default 0)",
    )
    options.add_target(parser)
    options.add_workload(parser)
    options.add_loop_end(parser, "level", 120.0)
    options.add_rounds(parser, default=1, growing=False)
    options.add_generator(parser)
    options.add_output(parser)
    parser.set_defaults(idle_s=None)


def run(args: Namespace) -> int:
    """Measure level after level, store, judge, show."""
    options.api_key(args)
    if args.least > args.most:
        raise UsageError(f"concbench find: --from {args.least} is above --to {args.most}")
    prompts, slos = file_prompts(args), parse_slo(args.slo)
    plan = {"slo": args.slo, "until": args.until, "options": plain(args)}
    with new_study(args, "find", plan) as study:
        target = target_options(args, study.seed)
        with (
            LiveDisplay(quiet=args.quiet) as display,
            lane_session(args, study, target, display, args.most) as session,
        ):
            interrupted = _search(args, study, session, display, prompts, slos)
        study.writer.finish(interrupted=interrupted)
        study.closed = True
        result = result_of(study.folder)
        found = capacity(result.cells, result.doubts, result.targets, slos, args.think_s)
        told = {"slo": args.slo, "think_s": args.think_s, "series": to_builtins(found)}
        result.payload = {**(result.payload or {}), "capacity": told}
        deliver(args, result, study.folder)
        if not args.quiet:
            for line in (line for series in found for line in series_lines(series, args.think_s)):
                display.say(line)
        return exit_code(result)


def _search(
    args: Namespace,
    study: OpenStudy,
    session: Session,
    display: LiveDisplay,
    prompts: list[Prompt],
    slos: list[Slo],
) -> bool:
    """Measure until the bracket is narrow; return whether a signal ended it."""
    search = Search(args.least, args.most)
    while (level := search.next()) is not None:
        rounds: list[Round] = []

        def on_round(finished: Round, rounds: list[Round] = rounds) -> None:
            study.keep(finished)
            rounds.append(finished)
            display.finished(finished, study.facts.get(finished.cell.lane))

        args.concurrency = level
        asked = sustain_options(args, study.seed, prompts)
        campaign = sustain(session, asked, on_round, study.looking(display.look), display.say)
        for cell, why in campaign.ended_by.items():
            study.writer.note("ended_by", {"cell": cell, "ended_by": why})
        if campaign.interrupted:
            return True
        held = holds(study, rounds, slos)
        search.tell(level, held=held)
        went = "go on above it" if held else "stay below it"
        display.say(f"N = {level} against {args.slo}: {went}")
    return False


def holds(study: OpenStudy, rounds: list[Round], slos: list[Slo]) -> bool:
    """Return whether the search goes on above a level that was just measured.

    It does where the level holds, and where it had too few requests for an interval: a low level
    has few, and higher ones will tell.
    """
    facts = StudyFacts(
        tool_version=__version__,
        command="find",
        study=None,
        began_utc="",
        machine={},
        targets=study.facts,
        target_half_width=None,
    )
    result = judge(rounds, facts)
    found = capacity(result.cells, result.doubts, result.targets, slos)
    if not found:
        return False
    level = found[0].levels[0]
    unsure = [each for each in level.objectives if each.standing == "open"]
    return level.standing == "holds" or (
        level.standing == "open" and all(each.bound is None for each in unsure)
    )

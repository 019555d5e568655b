"""The largest number of users (closed loops) or rate (open ones) that holds objectives."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from concbench.analyse.capacity import capacity
from concbench.analyse.exhibits import Exhibit
from concbench.analyse.study import exit_code
from concbench.cli import options
from concbench.cli.capacity import DEFAULT_SLO, add_capacity, slo_text, think
from concbench.cli.find_rate import judged, search_rate
from concbench.cli.live import LiveDisplay
from concbench.cli.loads import file_prompts, lane_session, plain, target_options
from concbench.cli.rate import EMBEDDED_SLOTS, per_second
from concbench.cli.study import OpenStudy, deliver, new_study, result_of
from concbench.cli.sustain import one_level, sustain_options
from concbench.domain import Round
from concbench.errors import UsageError
from concbench.measure.closed import sustain
from concbench.measure.session import Session
from concbench.plan.levels import Slo, parse_duration, parse_slo
from concbench.plan.prompts import Prompt
from concbench.plan.search import Search
from concbench.report.capacity import series_lines
from concbench.report.ratecapacity import rate_lines

OF_ONE = {"users": ("--until", "--min-s"), "rate": ("--poisson", "--duration", "--drain-s")}
"""Options that only one kind of search has a use for."""


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
    parser.add_argument(
        "--by",
        choices=["users", "rate"],
        default="users",
        help="users: requests in flight, closed loops (default); rate: requests a second, open",
    )
    level = options.checked(per_second)
    parser.add_argument(
        "--from", dest="least", type=level, default=1.0, metavar="N", help="begin here (default 1)"
    )
    parser.add_argument(
        "--to", dest="most", type=level, default=256.0, metavar="N", help="at most (default 256)"
    )
    parser.add_argument(
        "--confirm",
        type=options.checked(options.whole),
        default=3,
        metavar="N",
        help="rounds more at the level or rate that was found (default 3; 0: none)",
    )
    parser.add_argument(
        "--think-s",
        type=options.checked(think),
        default=0.0,
        metavar="S",
        help="pause of a user between an answer and the next question (default 0)",
    )
    group = parser.add_argument_group("by rate")
    group.add_argument(
        "--poisson", action="store_true", help="arrivals of a Poisson process, not evenly spaced"
    )
    group.add_argument(
        "--duration",
        type=options.checked(parse_duration),
        default=30.0,
        metavar="S",
        help="how long requests arrive in each round (default 30s); longer, up to --max-s, until "
        "80 have; a round that was too short to tell is repeated once, twice as long",
    )
    group.add_argument(
        "--drain-s",
        type=options.checked(parse_duration),
        default=30.0,
        metavar="S",
        help="after the last arrival, wait so long for answers (default 30)",
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
    _check(args)
    prompts, slos = file_prompts(args), parse_slo(args.slo)
    plan = {"slo": args.slo, "until": args.until, "options": plain(args)}
    with new_study(args, "find", plan) as study:
        target = target_options(args, study.seed)
        with (
            LiveDisplay(quiet=args.quiet) as display,
            lane_session(args, study, target, display, _slots(args)) as session,
        ):
            search = search_rate if args.by == "rate" else _search
            interrupted = search(args, study, session, display, prompts, slos)
        study.writer.finish(interrupted=interrupted)
        study.closed = True
        exhibits: list[Exhibit] = []
        result = result_of(study.folder, exhibits=exhibits)
        found, rates = add_capacity(result, args.slo, args.think_s)
        deliver(args, result, study.folder, exhibits)
        lines = [line for series in found for line in series_lines(series, args.think_s)]
        lines += [line for series in rates for line in rate_lines(series, args.think_s)]
        for line in () if args.quiet else lines:
            display.say(line)
        return exit_code(result)


def _check(args: Namespace) -> None:
    """Raise UsageError for a range that is none, half a user, and what would do nothing."""
    if args.least > args.most:
        raise UsageError(f"concbench find: --from {args.least:g} is above --to {args.most:g}")
    given = {word.partition("=")[0] for word in args.argv}
    other = "users" if args.by == "rate" else "rate"
    for option in OF_ONE[other]:
        if option in given:
            raise UsageError(f"concbench find: {option} is of --by {other}, here it does nothing")
    if args.by == "rate":
        return
    for name in ("least", "most"):
        value = getattr(args, name)
        if value != int(value):
            option = "--from" if name == "least" else "--to"
            raise UsageError(
                f"{option} {value:g}: users come in whole numbers; --by rate has others"
            )
        setattr(args, name, one_level(f"{value:.0f}"))


def _slots(args: Namespace) -> int:
    """Return how many the embedded engine is to run at once."""
    return EMBEDDED_SLOTS if args.by == "rate" else int(args.most)


def _search(
    args: Namespace,
    study: OpenStudy,
    session: Session,
    display: LiveDisplay,
    prompts: list[Prompt],
    slos: list[Slo],
) -> bool:
    """Measure until the bracket is narrow and its lower end confirmed; return if a signal came.

    A level that does not hold when it is confirmed counts as failing: the search goes on below.
    """
    search = Search(args.least, args.most)
    kept: dict[int, list[Round]] = {}
    confirmed: set[int] = set()
    done = 0
    while True:
        level = search.next()
        final = level is None
        if level is None:
            level = search.holds
            if level is None or not args.confirm or level in confirmed:
                return False
            confirmed.add(level)
        rounds = kept.setdefault(level, [])

        def on_round(finished: Round, rounds: list[Round] = rounds) -> None:
            nonlocal done
            done += 1
            study.keep(finished)
            rounds.append(finished)
            display.finished(finished, study.facts.get(finished.cell.lane))

        args.concurrency = level
        asked = sustain_options(args, study.seed, prompts)
        if final:
            asked = replace(asked, rounds=args.confirm)
        look = study.looking(display.look)
        campaign = sustain(session, asked, on_round, look, display.say, done=done)
        for cell, why in campaign.ended_by.items():
            study.writer.note("ended_by", {"cell": cell, "ended_by": why})
        if campaign.interrupted:
            return True
        held = holds(study, rounds, slos)
        search.tell(level, held=held)
        went = "go on above it" if held else "stay below it"
        if final:
            went = "confirmed" if held else "not confirmed"
        display.say(f"N = {level} against {args.slo}: {went}")


def holds(study: OpenStudy, rounds: list[Round], slos: list[Slo]) -> bool:
    """Return whether the search goes on above a level that was just measured.

    It does where the level holds, and where it had too few requests for an interval: a low level
    has few, and higher ones will tell.
    """
    result = judged(study, rounds)
    found = capacity(result.cells, result.doubts, result.targets, slos)
    if not found:
        return False
    level = found[0].levels[0]
    unsure = [each for each in level.objectives if each.standing == "open"]
    return level.standing == "holds" or (
        level.standing == "open" and all(each.bound is None for each in unsure)
    )

"""An open loop: requests leave by a schedule, whatever the server does; a queue shows as one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from concbench.cli import options
from concbench.cli.live import LiveDisplay
from concbench.cli.loads import file_prompts, lane_session, plain, target_options
from concbench.cli.study import conclude, new_study
from concbench.domain import Round
from concbench.errors import UsageError
from concbench.measure.open import ArrivalKind, RateOptions, due_times, rate
from concbench.plan.levels import parse_duration, parse_slo
from concbench.plan.prompts import Prompt
from concbench.plan.trace_file import load_trace

EMBEDDED_SLOTS = 8


def per_second(text: str) -> float:
    """Parse a rate in requests per second."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise ValueError(f"{text!r} is no rate; expected requests a second, such as 4 or 0.5")
    return value


def slo_text(text: str) -> str:
    """Return the text of objectives that can be read."""
    parse_slo(text)
    return text


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `rate`."""
    parser.add_argument("target", metavar="TARGET", help="base URL, a lane's name, or `embedded`")
    group = parser.add_argument_group("arrivals")
    group.add_argument(
        "--rps", type=options.checked(per_second), metavar="R", help="requests a second"
    )
    group.add_argument(
        "--poisson", action="store_true", help="arrivals of a Poisson process, not evenly spaced"
    )
    group.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="arrivals from a file: seconds a line, or JSON Lines with lengths",
    )
    group.add_argument(
        "--duration",
        type=options.checked(parse_duration),
        default=60.0,
        metavar="S",
        help="how long requests arrive in each round (default 60s); a trace has its own",
    )
    group.add_argument(
        "--drain-s",
        type=options.checked(parse_duration),
        default=30.0,
        metavar="S",
        help="after the last arrival, wait so long for answers (default 30)",
    )
    group.add_argument(
        "--slo",
        type=options.checked(slo_text),
        metavar="NAME=LIMIT,…",
        help="objectives, such as ttft_p95=2s,user_tok_per_s=20; gives the goodput",
    )
    options.add_target(parser)
    options.add_wait(parser)
    options.add_workload(parser)
    options.add_rounds(parser, growing=False)
    options.add_generator(parser)
    options.add_output(parser)


def run(args: Namespace) -> int:
    """Measure, store, judge, show."""
    options.api_key(args)
    prompts = file_prompts(args)
    asked = rate_options(args, args.seed or 0, prompts)
    due_times(asked, 0)
    plan = {"rps": asked.asked_rps, "slo": args.slo, "until": None, "options": plain(args)}
    with new_study(args, "rate", plan) as study:
        asked = rate_options(args, study.seed, prompts)
        target = target_options(args, study.seed)
        with LiveDisplay(quiet=args.quiet) as display:

            def on_round(finished: Round) -> None:
                study.keep(finished)
                display.finished(finished, study.facts.get(finished.cell.lane))

            with lane_session(args, study, target, display, EMBEDDED_SLOTS) as session:
                campaign = rate(session, asked, on_round, study.looking(display.look), display.say)
        return conclude(args, study, campaign.ended_by, interrupted=campaign.interrupted)


def rate_options(args: Namespace, seed: int, prompts: list[Prompt]) -> RateOptions:
    """Return the campaign's options from the command line's. Raises UsageError."""
    if (args.rps is None) == (args.trace is None):
        raise UsageError("concbench rate: give --rps R or --trace FILE, one of the two")
    if args.trace is not None and args.poisson:
        raise UsageError("concbench rate: a trace has its own arrivals, --poisson has none to add")
    arrival: ArrivalKind = "poisson" if args.poisson else "constant"
    return RateOptions(
        arrival="trace" if args.trace is not None else arrival,
        rps=args.rps or 0.0,
        duration_s=args.duration,
        prompt_tok=args.prompt_tokens,
        output_tok=args.output_tokens,
        content=args.content,
        seed=seed,
        trace=load_trace(args.trace) if args.trace is not None else (),
        rounds=args.rounds,
        warmup=args.warmup,
        drain_s=args.drain_s,
        timeout_s=args.timeout_s,
        inactivity_s=args.inactivity_s,
        same_prompt=args.same_prompt,
        file_prompts=prompts,
        reset_cache=args.reset_cache,
    )

"""A closed loop: N in flight, refilled at once, until the steady rate is known well enough."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from concbench.cli import options
from concbench.cli.live import LiveDisplay
from concbench.cli.loads import file_prompts, lane_session, plain, target_options
from concbench.cli.study import conclude, new_study
from concbench.domain import Round
from concbench.measure.closed import SustainOptions, sustain
from concbench.plan.levels import parse_levels
from concbench.plan.prompts import Prompt


def one_level(text: str) -> int:
    """Parse one concurrency."""
    found = parse_levels(text, "-c")
    if len(found) != 1:
        raise ValueError(f"{text!r} names {len(found)} levels: one loop holds one, such as 16")
    return found[0]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `sustain`."""
    parser.add_argument("target", metavar="TARGET", help="base URL, a lane's name, or `embedded`")
    parser.add_argument(
        "-c",
        "--concurrency",
        type=options.checked(one_level),
        required=True,
        metavar="N",
        help="how many are in flight all the time",
    )
    options.add_target(parser)
    options.add_wait(parser)
    options.add_workload(parser)
    options.add_loop_end(parser, "loop", 300.0)
    options.add_rounds(parser, default=1, growing=False)
    options.add_idle(parser)
    options.add_generator(parser)
    options.add_output(parser)


def run(args: Namespace) -> int:
    """Measure, store, judge, show."""
    options.api_key(args)
    prompts = file_prompts(args)
    plan = {"concurrency": args.concurrency, "until": args.until, "options": plain(args)}
    with new_study(args, "sustain", plan) as study:
        target = target_options(args, study.seed)
        with LiveDisplay(quiet=args.quiet) as display:

            def on_round(finished: Round) -> None:
                study.keep(finished)
                display.finished(finished, study.facts.get(finished.cell.lane))

            with lane_session(args, study, target, display, args.concurrency) as session:
                asked = sustain_options(args, study.seed, prompts)
                campaign = sustain(
                    session, asked, on_round, study.looking(display.look), display.say
                )
        return conclude(args, study, campaign.ended_by, interrupted=campaign.interrupted)


def sustain_options(args: Namespace, seed: int, prompts: list[Prompt]) -> SustainOptions:
    """Return the campaign's options from the command line's."""
    return SustainOptions(
        concurrency=args.concurrency,
        prompt_tok=args.prompt_tokens,
        output_tok=args.output_tokens,
        content=args.content,
        seed=seed,
        until=args.until,
        min_s=args.min_s,
        max_s=args.max_s,
        rounds=args.rounds,
        warmup=args.warmup,
        timeout_s=args.timeout_s,
        inactivity_s=args.inactivity_s,
        same_prompt=args.same_prompt,
        file_prompts=prompts,
        idle_s=args.idle_s,
        reset_cache=args.reset_cache,
    )

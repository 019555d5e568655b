"""N requests at once for each level: the steady rate, the classic rate, and what each user felt."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from concbench.cli import options
from concbench.cli.loads import file_prompts, lane_session, plain, target_options
from concbench.cli.progress import Display
from concbench.cli.study import conclude, new_study
from concbench.domain import Round
from concbench.measure.burst import BurstOptions, burst
from concbench.plan.levels import parse_levels
from concbench.plan.prompts import Prompt


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `burst`."""
    parser.add_argument("target", metavar="TARGET", help="base URL, a lane's name, or `embedded`")
    parser.add_argument(
        "--levels",
        type=options.checked(parse_levels),
        default=[1, 2, 4, 8],
        metavar="N,N,…",
        help="how many at once (default 1,2,4,8)",
    )
    options.add_target(parser)
    options.add_wait(parser)
    options.add_workload(parser)
    options.add_rounds(parser)
    options.add_idle(parser)
    options.add_generator(parser)
    options.add_output(parser)


def run(args: Namespace) -> int:
    """Measure, store, judge, show."""
    options.api_key(args)
    prompts = file_prompts(args)
    plan = {"levels": list(args.levels), "options": plain(args)}
    with new_study(args, "burst", plan) as study:
        levels = list(args.levels)
        total = len(levels) * (args.rounds + args.warmup)
        target = target_options(args, study.seed)
        with Display(total, quiet=args.quiet, levels=levels) as display:

            def on_round(finished: Round) -> None:
                study.keep(finished)
                display.finished(finished, study.facts.get(finished.cell.lane))

            with lane_session(args, study, target, display, max(levels)) as session:
                asked = burst_options(args, study.seed, prompts)
                look = study.looking(display.look)
                campaign = burst(session, asked, on_round, study.writer.discard, display.now, look)
        return conclude(args, study, campaign.ended_by, interrupted=campaign.interrupted)


def burst_options(args: Namespace, seed: int, file_prompts: list[Prompt]) -> BurstOptions:
    """Return the campaign's options from the command line's."""
    return BurstOptions(
        levels=list(args.levels),
        prompt_tok=args.prompt_tokens,
        output_tok=args.output_tokens,
        content=args.content,
        seed=seed,
        rounds=args.rounds,
        rounds_max=args.rounds_max,
        warmup=args.warmup,
        timeout_s=args.timeout_s,
        inactivity_s=args.inactivity_s,
        same_prompt=args.same_prompt,
        file_prompts=file_prompts,
        idle_s=args.idle_s,
        reset_cache=args.reset_cache,
    )

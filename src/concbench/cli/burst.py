"""N requests at once for each level: the steady rate, the classic rate, and what each user felt."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from concbench.cli import options
from concbench.cli.progress import Display
from concbench.cli.study import OpenStudy, conclude, new_study, targets
from concbench.domain import Round
from concbench.measure.burst import BurstOptions, burst
from concbench.measure.target import TargetOptions, embedded_context_tok, ready
from concbench.plan.levels import parse_levels
from concbench.plan.prompts import Prompt, load_prompts_file
from concbench.serve.http import Access

MOST_EMBEDDED_SLOTS = 64


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `burst`."""
    parser.add_argument("target", metavar="TARGET", help="base URL, or `embedded`")
    parser.add_argument(
        "--levels",
        type=options.checked(parse_levels),
        default=[1, 2, 4, 8],
        metavar="N,N,…",
        help="how many at once (default 1,2,4,8)",
    )
    options.add_target(parser)
    options.add_workload(parser)
    options.add_rounds(parser)
    options.add_output(parser)


def run(args: Namespace) -> int:
    """Measure, store, judge, show."""
    access = Access(api_key=options.api_key(args), ca=args.ca, insecure=args.insecure)
    file_prompts = load_prompts_file(args.prompts) if args.prompts else []
    plan = {"levels": list(args.levels), "options": _plain(args)}
    with new_study(args, "burst", plan) as study:
        target = TargetOptions(
            target=args.target,
            access=access,
            model=args.model,
            ask={
                "endpoint": args.endpoint,
                "stream": args.stream,
                "temperature": args.temperature,
                "extra_body": args.extra_body,
            },
            content=args.content,
            seed=study.seed,
        )
        return _measure(args, study, target, file_prompts)


def _measure(
    args: Namespace, study: OpenStudy, target: TargetOptions, file_prompts: list[Prompt]
) -> int:
    levels = list(args.levels)
    total = len(levels) * (args.rounds + args.warmup)
    with Display(total, quiet=args.quiet) as display:
        display.say(f"reaching {args.target}")
        lane = ready(
            target,
            slots=min(max(levels), MOST_EMBEDDED_SLOTS),
            context_tok=embedded_context_tok(args.prompt_tokens, args.output_tokens),
            log_folder=study.folder / "logs",
        )
        with lane as session:
            targets(study, session.lane, session.facts, session.template_tok)

            def on_round(finished: Round) -> None:
                study.keep(finished)
                display.finished(finished)

            campaign = burst(
                session,
                burst_options(args, study.seed, file_prompts),
                on_round,
                study.writer.discard,
            )
        if session.facts.teardown is not None:
            targets(study, session.lane, session.facts, session.template_tok)
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
        same_prompt=args.same_prompt,
        file_prompts=file_prompts,
        keep_text=False,
    )


def _plain(args: Namespace) -> dict[str, Any]:
    """Return the options as JSON-able values, for the record; no key is among them."""
    skip = ("run", "argv", "out", "json", "html", "quiet")
    return {
        key: value if isinstance(value, (int, float, bool, list, dict, type(None))) else str(value)
        for key, value in vars(args).items()
        if key not in skip
    }

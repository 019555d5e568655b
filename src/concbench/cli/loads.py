"""What the commands that put load on one target have in common."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from concbench.analyse.lanes import NOTE as LANE_NOTE
from concbench.cli import options
from concbench.cli.study import OpenStudy, targets
from concbench.measure.session import Session
from concbench.measure.target import TargetOptions, embedded_context_tok, ready
from concbench.plan.promptfile import load_prompts_file
from concbench.plan.prompts import Prompt
from concbench.serve.http import Access

MOST_EMBEDDED_SLOTS = 64


class Says(Protocol):
    """A display that can say what goes on."""

    def say(self, text: str) -> None:
        """Say it."""
        ...


def target_options(args: Namespace, seed: int) -> TargetOptions:
    """Return how the target is reached and what every request has in common."""
    return TargetOptions(
        target=args.target,
        access=Access(api_key=options.api_key(args), ca=args.ca, insecure=args.insecure),
        model=args.model,
        ask={
            "endpoint": args.endpoint,
            "stream": args.stream,
            "temperature": args.temperature,
            "extra_body": args.extra_body,
        },
        content=args.content,
        seed=seed,
        plan=args.plan,
        wait_s=getattr(args, "wait_s", None),
    )


def file_prompts(args: Namespace) -> list[Prompt]:
    """Return the prompts of --prompts, none without it. Raises UsageError."""
    return load_prompts_file(args.prompts) if args.prompts else []


@contextmanager
def lane_session(
    args: Namespace, study: OpenStudy, target: TargetOptions, display: Says, slots: int
) -> Iterator[Session]:
    """Yield a session on the target, with what is known of it put on record before and after."""
    display.say(f"reaching {args.target}")
    lane = ready(
        replace(target, say=display.say),
        slots=min(slots, MOST_EMBEDDED_SLOTS),
        context_tok=embedded_context_tok(args.prompt_tokens, args.output_tokens),
        log_folder=study.folder / "logs",
    )
    carrier = options.carrier(args)
    session: Session | None = None
    try:
        with lane as session:
            session.carrier = carrier
            targets(study, session.lane, session.facts, session.template_tok)
            study.writer.note(LANE_NOTE, session.dossier)
            yield session
    finally:
        # Whatever ended it, how the engine was stopped belongs to the record.
        if session is not None and session.facts.teardown is not None:
            study.writer.targets({session.lane: session.facts})


def plain(args: Namespace) -> dict[str, Any]:
    """Return the options as JSON-able values, for the record; no key is among them."""
    skip = ("run", "argv", "out", "json", "html", "quiet")
    return {
        key: value if isinstance(value, (int, float, bool, list, dict, type(None))) else str(value)
        for key, value in vars(args).items()
        if key not in skip
    }

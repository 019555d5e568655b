"""The matrix of a plan: lanes, links, contexts and concurrencies in one study.

The same command continues where it stopped, whatever stopped it.
"""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from concbench import __version__
from concbench.cli import options
from concbench.cli.lines import terminate
from concbench.cli.study import OpenStudy, conclude, deliver_plan, new_study
from concbench.cli.sweep_view import SweepDisplay, plan_lines, plan_rows
from concbench.domain import Round
from concbench.errors import OutputUnusable, StudyUnreadable, TargetError, UsageError
from concbench.measure.sweep import SweepEnd, sweep
from concbench.measure.sweep_identity import check_identity, identity_of
from concbench.measure.sweep_links import CommandLinks, commands_of
from concbench.measure.sweep_options import SweepOptions
from concbench.measure.sweep_rig import RigOptions
from concbench.measure.sweep_rounds import with_rates
from concbench.measure.sweep_state import IDENTITY_NOTE, RETRY_NOTE, Standing, standing_of
from concbench.observe.host import machine
from concbench.plan.file import load_plan
from concbench.plan.matrix import MatrixCell, Variant, cells_of, file_name, variants
from concbench.plan.model import LinkPlan, Plan
from concbench.plan.output import WINDOW_STEPS
from concbench.plan.promptfile import load_prompts_file, longest_tok
from concbench.plan.prompts import Prompt
from concbench.serve.http import Access
from concbench.serve.launch import varied
from concbench.serve.lint import static_lane
from concbench.serve.recipes import load_recipe
from concbench.store.read import StudyReader, open_study
from concbench.store.write import Study

AUTO_OUTPUT_TOK = WINDOW_STEPS + 8
"""What `output_tokens = "auto"` is in a sweep, where all cells ask for the same: 200 steps and a
few to spare."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `sweep`."""
    parser.add_argument("plan", metavar="PLAN.toml", type=Path, help="plan file")
    parser.add_argument(
        "--dry-run", action="store_true", help="show cells, tokens and time; start nothing"
    )
    parser.add_argument(
        "--rounds",
        type=options.checked(options.positive),
        metavar="N",
        help="instead of the plan's",
    )
    parser.add_argument(
        "--rounds-max",
        type=options.checked(options.positive),
        metavar="N",
        help="instead of the plan's: go on until the interval is within 1 %%, at most N rounds",
    )
    parser.add_argument(
        "--ceiling",
        action="store_true",
        help="find the longest prompt of each lane by bisection to within 1 %%",
    )
    parser.add_argument(
        "--together",
        choices=["auto", "yes", "no"],
        default="auto",
        help="all lanes up at once and interleaved; auto (default): where they can be",
    )
    parser.add_argument(
        "--hang-s",
        type=options.checked(options.seconds),
        metavar="S",
        help="a round without a byte or a moving counter for so long is a hang (default: 60 s, "
        "more where prompts take long)",
    )
    parser.add_argument(
        "--warmup",
        type=options.checked(options.whole),
        default=1,
        metavar="N",
        help="0: no discarded waves (default 1)",
    )
    parser.add_argument(
        "--wait-s",
        type=options.checked(options.seconds),
        metavar="S",
        help="how long a lane may take to its first token (default: by engine)",
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="try cells again that ended in a failure"
    )
    parser.add_argument("--new", action="store_true", help="begin a new study")
    parser.add_argument("--yes", action="store_true", help="run the links' commands without asking")
    group = parser.add_argument_group("target")
    group.add_argument("--api-key-env", metavar="NAME", help="environment variable with the key")
    group.add_argument("--ca", type=Path, metavar="FILE", help="PEM file of a private authority")
    group.add_argument("--insecure", action="store_true", help="do not verify the certificate")
    options.add_generator(parser)
    options.add_output(parser)


def run(args: Namespace) -> int:
    """Plan, confirm, measure what is left, judge, show."""
    options.api_key(args)
    todo = _todo(args)
    plan = todo.plan
    folder = _folder(args, plan)
    if args.dry_run:
        return _dry_run(args, todo, folder)
    _confirm(args, plan)
    with _study(args, todo, folder) as (study, state):
        with SweepDisplay(state, study.looking, quiet=args.quiet) as display:

            def on_round(finished: Round) -> None:
                study.keep(finished)
                display.finished(finished)

            def on_link(link: LinkPlan) -> None:
                _measure_link(link, study, display)

            links = CommandLinks(plan.links, display.say, on_link)
            asked = _options(args, todo, study)
            end = sweep(asked, state, study.writer, links, on_round, display)
        if end.interrupted and not state.lanes and not study.written:
            raise KeyboardInterrupt
        # A study whose link failed is not at its end: the same command takes it up again.
        cut = end.interrupted or end.link_error is not None
        code = conclude(args, study, end.ended_by, interrupted=cut)
    return _exit_code(end, state, study, code)


def _exit_code(end: SweepEnd, state: Standing, study: OpenStudy, code: int) -> int:
    """Return the exit code, with a line where a lane or a link left nothing to measure."""
    error = end.link_error or (None if study.written else end.error)
    if error is not None:
        print(f"concbench: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    if state.down and not state.done:
        print(
            "concbench: no lane started when this study was begun: --retry-failed tries again",
            file=sys.stderr,
        )
        return TargetError.exit_code
    return code


@dataclass(frozen=True, slots=True)
class _Todo:
    """The plan with what the command line made of it; `prompts` are those of the plan's file."""

    plan: Plan
    rounds: int
    rounds_max: int
    output_tok: int
    prompts: Sequence[Prompt] = ()


def _todo(args: Namespace) -> _Todo:
    """Return what is to be done. Raises PlanError, and UsageError for prompts or recipes."""
    plan = load_plan(args.plan)
    rounds = args.rounds or plan.study.rounds
    most = max(rounds, args.rounds_max or plan.study.rounds_max or rounds)
    here = Path(plan.path).parent
    for lane in plan.sweep.lanes or plan.lanes:
        reference = plan.lanes[lane].reference
        if reference is not None:
            load_recipe(here / reference)  # a mistake there is told before an engine is started
    if plan.workload.prompts is None:
        return _Todo(plan, rounds, most, _output_tok(plan))
    if args.ceiling:
        raise UsageError("--ceiling makes prompts of any length: not with the plan's own prompts")
    prompts = load_prompts_file(here / plan.workload.prompts)
    context = plan.workload.prompt_tokens or longest_tok(prompts)
    swept = msgspec.structs.replace(plan.sweep, contexts=[context])
    plan = msgspec.structs.replace(plan, sweep=swept)
    return _Todo(plan, rounds, most, _output_tok(plan), prompts)


def _output_tok(plan: Plan) -> int:
    wanted = plan.workload.output_tokens
    return AUTO_OUTPUT_TOK if isinstance(wanted, str) else wanted


def _options(args: Namespace, todo: _Todo, study: OpenStudy) -> SweepOptions:
    plan = todo.plan
    access = Access(api_key=options.api_key(args), ca=args.ca, insecure=args.insecure)
    return SweepOptions(
        plan=plan,
        rounds=todo.rounds,
        rounds_max=todo.rounds_max,
        prompts=todo.prompts,
        output_tok=todo.output_tok,
        seed=plan.study.seed,
        rig=RigOptions(
            plan=plan,
            access=access,
            log_folder=study.folder / "logs",
            seed=plan.study.seed,
            carrier=options.carrier(args),
            wait_s=args.wait_s,
        ),
        together=args.together,
        hang_s=args.hang_s,
        ceiling=args.ceiling,
        warmup=args.warmup > 0,
        has_gpu=bool(study.writer.record.machine.get("gpus")),
    )


def _folder(args: Namespace, plan: Plan) -> Path | None:
    """Return the study to go on with: --out, or the newest unfinished one of this plan's name."""
    if args.out is not None:
        found = args.out if (args.out / "study.json").exists() else None
        if found is not None and args.new:
            raise OutputUnusable(f"{args.out} holds a study already: choose another --out")
        return found
    if args.new:
        return None
    for path in sorted(Path("studies").glob(f"*-{file_name(plan.study.name)}"), reverse=True):
        try:
            reader = open_study(path)
        except StudyUnreadable:
            continue
        same = reader.record.name == file_name(plan.study.name)
        wanted = not reader.finished or (args.retry_failed and standing_of(reader).has_failures)
        if same and reader.record.command == "sweep" and wanted:
            return path
    return None


@contextmanager
def _study(
    args: Namespace, todo: _Todo, folder: Path | None
) -> Iterator[tuple[OpenStudy, Standing]]:
    """Yield the study, new or taken up again, and where it stands."""
    plan, name = todo.plan, file_name(todo.plan.study.name)
    if folder is not None and not args.quiet:
        print(f"going on with {folder}", file=sys.stderr)
    if folder is None:
        args.seed = plan.study.seed
        with new_study(args, name, {"plan": msgspec.to_builtins(plan)}) as study:
            now = _identity(todo, study.writer.record.machine)
            study.writer.note(IDENTITY_NOTE, now)
            yield study, standing_of(None)
        return
    now = _identity(todo, machine(__version__))
    merged = _checked(open_study(folder), now)
    signal.signal(signal.SIGTERM, terminate)
    with Study.resume(folder, even_finished=True) as writer:
        writer.note(IDENTITY_NOTE, merged)
        if args.retry_failed:
            writer.note(RETRY_NOTE, {})
        study = OpenStudy(folder, writer, plan.study.seed)
        reader = open_study(folder)
        try:
            state = standing_of(reader)
            # Where every cell has a fixed number of rounds, no rate decides anything.
            yield study, with_rates(state, reader) if todo.rounds_max > todo.rounds else state
        finally:
            study.now.close()


def _identity(todo: _Todo, facts: Mapping[str, Any]) -> dict[str, Any]:
    plan = todo.plan
    seed, tokens = plan.study.seed, todo.output_tok
    return identity_of(plan, facts, __version__, seed, tokens, todo.prompts)


def _checked(reader: StudyReader, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity to keep; raise OutputUnusable where finished cells would not fit it."""
    if reader.record.command != "sweep":
        raise OutputUnusable(
            f"{reader.folder} is a study of `{reader.record.command}`: choose another --out"
        )
    before = next(iter(reversed(reader.notes(IDENTITY_NOTE))), None)
    if before is None:
        return dict(now)
    measured = {lane.partition("[")[0].partition("~")[0] for lane in standing_of(reader).lanes}
    if measured:
        check_identity(before, now, measured)
    kept = {name: lane for name, lane in before["lanes"].items() if name in measured}
    return {**now, "lanes": {**now["lanes"], **kept}}


def _confirm(args: Namespace, plan: Plan) -> None:
    """Show the links' commands and ask once. Raises UsageError where nobody can be asked."""
    commands = commands_of(plan.links[name] for name in plan.sweep.links)
    if not commands:
        return
    print("these commands will be run:", *commands, sep="\n  ", file=sys.stderr)
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("the links' commands are not run unasked: look at them and give --yes")
    print("run them? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("not confirmed: nothing was run")


def _measure_link(link: LinkPlan, study: OpenStudy, display: SweepDisplay) -> None:
    """Put the link itself on record where its other end answers; nothing depends on it."""
    from concbench.cli.link import of_sweep

    assert link.host is not None
    display.say(f"link {link.name}: measuring it to {link.host}")
    try:
        study.writer.note("link", of_sweep(link.host, link.name))
    except TargetError as error:
        display.keep(
            f"link {link.name} itself is not measured ({error}): run `concbench link --serve` on "
            f"{link.host} for that"
        )


def _dry_run(args: Namespace, todo: _Todo, folder: Path | None) -> int:
    reader = None if folder is None else open_study(folder)
    if reader is not None:
        _checked(reader, _identity(todo, machine(__version__)))
    state = standing_of(reader)
    if args.retry_failed:
        state.retried()
    groups: list[tuple[str | None, list[MatrixCell], bool]] = []
    names: list[str | None] = [*todo.plan.sweep.links]
    for link in names or [None]:
        for variant in variants(todo.plan):
            known = _known(todo.plan, variant, state)
            cells = cells_of(
                todo.plan,
                variant,
                todo.output_tok,
                pool_tok=known.get("kv_capacity_tok"),
                max_context_tok=known.get("max_context_tok"),
                cap=known.get("slots"),
                link=link,
            )
            groups.append((link, cells, known.get("kv_capacity_tok") is not None))
    rows = plan_rows(groups, todo.rounds, state)
    extra = todo.rounds_max - todo.rounds
    payload = {"sweep_plan": rows, "rounds_max": todo.rounds_max}
    deliver_plan(args, payload, list(plan_lines(rows, extra)), folder)
    return 0


def _known(plan: Plan, variant: Variant, state: Standing) -> dict[str, Any]:
    """Return pool, context and cap as they were measured, else as far as the flags tell them."""
    facts = state.facts.get(variant.name)
    if facts is not None:
        return msgspec.structs.asdict(facts)
    lane = plan.lanes[variant.lane]
    told = static_lane(
        varied(lane, variant.flags) if variant.flags else lane, Path(plan.path).parent
    )
    return dict(told.known)

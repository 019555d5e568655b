"""What every measuring command does around its campaign: folder, record, result, exit code."""

from __future__ import annotations

import secrets
import shutil
import signal
import sys
from argparse import Namespace
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from concbench import __version__
from concbench.analyse.exhibits import Exhibit, exhibit_of
from concbench.analyse.lanes import NOTE as LANE_NOTE
from concbench.analyse.lanes import lane_results
from concbench.analyse.study import StudyFacts, exit_code, grouped, judge_groups
from concbench.cli.capacity import DEFAULT_SLO, add_capacity
from concbench.cli.ceilings import ceilings, note_calibration
from concbench.cli.judging import by_severity, completed, doubts_of_record, gone_of
from concbench.cli.lines import deliver_lines, terminate
from concbench.cli.matrix_result import add_matrix
from concbench.cli.sweep_result import add_sweep, is_left_out
from concbench.clock import folder_stamp, utc_stamp
from concbench.domain import Round, TargetFacts
from concbench.errors import OutputUnusable
from concbench.measure.payload import rate_payload
from concbench.measure.watch import OnLook, Snapshot
from concbench.observe.host import machine
from concbench.plan.axes import MOST_SEED
from concbench.plan.levels import parse_slo
from concbench.report.html import write_html
from concbench.report.inert import without_credentials, without_option, without_secrets
from concbench.report.terminal import render
from concbench.result import Result, to_json
from concbench.store.interrupts import interrupts
from concbench.store.now import NowFile
from concbench.store.read import RoundInfo, StudyReader, open_study
from concbench.store.record import STUDY_NAME
from concbench.store.write import Study, StudyWriter

HALF_WIDTH = 0.01
"""The relative half-width that is wanted where a command has no option for it."""

LIMITS = ("timeout_s", "inactivity_s")

ASKED = {
    "sustain": ("until", "min_s", "max_s", "idle_s", "warmup", *LIMITS, "reset_cache"),
    "rate": ("duration", "drain_s", "slo", "trace", "warmup", *LIMITS, "reset_cache"),
}
"""Options of a command that its cells do not tell, and that measuring it again needs."""

RAN = ("sweep", "ab", "find", "spec")
"""Commands that start servers or choose their levels: single commands do not repeat them."""

SAID_EVERY_S = 0.9
"""How often it is said what is running: looks come each half second, so each second one."""


@dataclass(slots=True)
class OpenStudy:
    """A study being written by a command."""

    folder: Path
    writer: StudyWriter
    seed: int
    facts: dict[str, TargetFacts] = field(default_factory=dict)
    written: int = 0
    closed: bool = False
    now: NowFile = field(init=False)
    _said_s: float = 0.0

    def __post_init__(self) -> None:
        self.now = NowFile(self.folder)

    def keep(self, finished: Round) -> None:
        """Store a round."""
        self.writer.write_round(finished)
        self.written += 1

    def looking(self, show: OnLook) -> OnLook:
        """Return what shows a snapshot and, once a second, leaves it for who watches."""

        def look(now: Snapshot) -> None:
            show(now)
            if not 0 <= now.elapsed_s - self._said_s < SAID_EVERY_S:
                self._said_s = now.elapsed_s
                self.now.write(asdict(now))

        return look


@contextmanager
def new_study(args: Namespace, name: str, plan: Mapping[str, Any]) -> Iterator[OpenStudy]:
    """Create the study folder; on an error before the first round nothing of it is left.

    SIGTERM is turned into KeyboardInterrupt, so that everything is stopped in order.
    """
    folder = args.out or Path("studies") / f"{folder_stamp()}-{name}"
    seed = secrets.randbelow(MOST_SEED + 1) if args.seed is None else args.seed
    existed = folder.exists()
    signal.signal(signal.SIGTERM, terminate)
    facts = machine(__version__)
    writer = Study.create(
        folder,
        name=name,
        command=args.argv[0],
        argv=args.argv,
        machine=facts,
        tool_version=__version__,
        seed=seed,
        plan=plan,
        targets={},
    )
    study = OpenStudy(folder, writer, seed)
    try:
        with writer:
            note_calibration(writer, args, facts)
            try:
                with interrupts():
                    yield study
            except KeyboardInterrupt:
                if study.written and not study.closed:
                    writer.finish(interrupted=True)
                raise
    except BaseException:
        if not study.written:
            _remove(folder, existed=existed)
        raise
    finally:
        study.now.close()


def _remove(folder: Path, *, existed: bool) -> None:
    """Take back what `new_study` made. The folder itself stays where it was there before."""
    if not existed:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.iterdir():
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def result_of(
    folder: Path, gone: Container[str] | None = None, exhibits: list[Exhibit] | None = None
) -> Result:
    """Judge a stored study again from its rounds. Raises StudyUnreadable.

    `gone` are the rounds to leave out instead of the retracted ones: how it was judged before.
    `exhibits` is a list that is filled with what a page draws of each cell.
    """
    reader = open_study(folder)
    notes = {note["cell"]: note["ended_by"] for note in reader.notes("ended_by")}
    lanes = {note["lane"]: note["template_tok"] for note in reader.notes("lane")}
    withdrawn = gone_of(reader)
    if gone is not None:
        withdrawn = {name: why for name, why in withdrawn.items() if name in gone}
    retracted = withdrawn.keys()
    is_sweep = reader.record.command == "sweep"
    groups = grouped(
        info
        for info in reader.rounds()
        if info.round_id not in retracted and not (is_sweep and is_left_out(info))
    )
    names = [[info.round_id for info in group.all] for group in groups]
    objectives = reader.plan.get("slo") if reader.record.command == "rate" else None
    facts = StudyFacts(
        tool_version=reader.record.tool_version,
        command=reader.record.command,
        study=str(folder),
        began_utc=reader.record.created_utc,
        machine=reader.record.machine,
        targets=reader.targets(),
        seed=reader.record.seed,
        interrupted=reader.interrupted,
        ended_by=notes,
        template_tok=lanes,
        lanes=lane_results(reader.notes(LANE_NOTE)),
        corrections=reader.corrections(),
        ceilings=ceilings(reader),
        target_half_width=reader.plan.get("until", HALF_WIDTH),
        slos=parse_slo(objectives) if objectives else (),
    )
    see = None if exhibits is None else (lambda seen: exhibits.append(exhibit_of(seen)))
    result = judge_groups(groups, reader.load_groups(names), facts, see)
    if reader.record.command == "rate":
        again = (reader.load_round(i.round_id) for i in _measured(reader, retracted))
        result.payload = rate_payload(result, again, objectives)
    if is_sweep:
        add_sweep(result, reader)
    if reader.record.command == "find":
        _add_objectives(result, reader)
    add_matrix(result, reader)
    result.doubts = by_severity([*result.doubts, *doubts_of_record(reader)])
    _note_asked(result, reader)
    rejudge = (lambda names: result_of(folder, names)) if gone is None else None
    result = completed(result, reader, withdrawn, rejudge)
    _note_ran(result, reader)
    if not (reader.finished or reader.interrupted):
        result.payload = {**(result.payload or {}), "unfinished": True}
    return result


def _add_objectives(result: Result, reader: StudyReader) -> None:
    """Put into a search's payload what it was for: its levels against the objectives asked for."""
    asked = reader.plan.get("options")
    think_s = asked.get("think_s") if isinstance(asked, Mapping) else None
    add_capacity(result, str(reader.plan.get("slo") or DEFAULT_SLO), float(think_s or 0))


def _note_asked(result: Result, reader: StudyReader) -> None:
    """Put what was asked for, beyond the workload, into the payload as `asked`."""
    given = reader.plan.get("options")
    names = ASKED.get(reader.record.command, ())
    if names and isinstance(given, Mapping):
        asked = {name: given[name] for name in names if given.get(name) not in (None, False)}
        result.payload = {**(result.payload or {}), "asked": asked}


def _note_ran(result: Result, reader: StudyReader) -> None:
    """Put the command line into the payload as `ran`, where its cells do not tell it."""
    record = reader.record
    if record.command not in RAN:
        return
    words = without_option(without_secrets(record.argv), "--out")
    plan = f"{reader.folder / STUDY_NAME}, key `plan`" if "plan" in record.plan else None
    ran = {"argv": list(map(without_credentials, words)), "seed": record.seed, "plan": plan}
    result.payload = {**(result.payload or {}), "ran": [ran]}


def _measured(reader: StudyReader, retracted: Container[str | None]) -> list[RoundInfo]:
    return [info for info in reader.rounds("measured") if info.round_id not in retracted]


def conclude(
    args: Namespace, study: OpenStudy, ended_by: Mapping[str, str], *, interrupted: bool
) -> int:
    """Close the record, write result and page, show the table; return the contract's exit code."""
    for cell, why in ended_by.items():
        study.writer.note("ended_by", {"cell": cell, "ended_by": why})
    study.writer.finish(interrupted=interrupted)
    study.closed = True
    exhibits: list[Exhibit] = []
    result = result_of(study.folder, exhibits=exhibits)
    deliver(args, result, study.folder, exhibits)
    return exit_code(result)


def deliver(
    args: Namespace, result: Result, folder: Path, exhibits: Sequence[Exhibit] = ()
) -> None:
    """Write `result.json` and the page into the study, and what was asked for elsewhere."""
    encoded = to_json(result)
    page = args.html or folder / "report.html"
    try:
        (folder / "result.json").write_bytes(encoded)
        write_html(result, page, exhibits)
        if args.json and args.json != "-":
            Path(args.json).write_bytes(encoded)
    except OSError as error:
        raise OutputUnusable(
            f"cannot write {error.filename}: {error.strerror}; the study itself is in {folder}"
        ) from None
    if args.json == "-":
        sys.stdout.buffer.write(encoded)
        sys.stdout.buffer.flush()
    if not args.quiet:
        console = Console(stderr=args.json == "-", highlight=False)
        render(result, console, page=str(page))


def targets(study: OpenStudy, lane: str, facts: TargetFacts, template_tok: int) -> None:
    """Record what is known of a lane."""
    study.writer.targets({lane: facts})
    study.facts[lane] = facts
    study.writer.note("lane", {"lane": lane, "template_tok": template_tok})


def deliver_plan(
    args: Namespace, payload: Mapping[str, Any], lines: Sequence[str], folder: Path | None
) -> None:
    """Show what a command would do: lines for people, and a result without cells as JSON."""
    result = Result(
        tool_version=__version__,
        command=args.argv[0],
        study=None if folder is None else str(folder),
        began_utc=utc_stamp(),
        payload=dict(payload),
    )
    deliver_lines(args, result, lines)

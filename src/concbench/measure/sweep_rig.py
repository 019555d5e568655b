"""A lane of a sweep: started, watched, and started again when its engine has died."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil

from concbench.clock import now_ns, sleep_s
from concbench.domain import CellOutcome, TargetFacts
from concbench.errors import (
    NotReady,
    PortTaken,
    PromptTooLong,
    StartFailed,
    TargetError,
    Unreachable,
    UsageError,
)
from concbench.measure.carrier import Carrier
from concbench.measure.observed import observing
from concbench.measure.session import Session, calibrate, open_session, with_first_request
from concbench.plan.matrix import Variant, file_name
from concbench.plan.model import LanePlan, Plan
from concbench.serve import records
from concbench.serve.attached import local_pids
from concbench.serve.dossier import dossier
from concbench.serve.http import Access
from concbench.serve.lane import RunningLane
from concbench.serve.launch import varied
from concbench.serve.logfile import lines_from, tail
from concbench.serve.process import Child
from concbench.serve.running import ReadyLane, origin_of, running_lane

PATIENCE_S = 60.0
"""How long a port may stay taken, or a server be away, after its engine died."""

RETRY_S = 0.5
SHOWN_LINES = 12

IDENTITY = (
    "engine",
    "engine_version",
    "model",
    "quantization",
    "kv_cache_dtype",
    "max_context_tok",
    "slots",
    "speculation",
    "prefix_caching",
    "eager",
)
"""Facts that must not change between two starts of a lane whose rounds are put together."""


@dataclass(frozen=True, slots=True)
class RigOptions:
    """What all lanes of a sweep have in common."""

    plan: Plan
    access: Access
    log_folder: Path
    seed: int
    carrier: Carrier = field(default_factory=Carrier)
    wait_s: float | None = None


class NoRoom(TargetError):
    """Not even the short requests fit that tell how a lane counts its prompts."""


class LaneDown(Exception):
    """A lane that did not start: `outcome` is what becomes of its cells."""

    def __init__(self, error: TargetError, log: list[str]) -> None:
        super().__init__(str(error))
        self.error = error
        self.outcome: CellOutcome = error.outcome if isinstance(error, StartFailed) else "crashed"
        if isinstance(error, NoRoom):
            self.outcome = "context_rejected"
        self.log = log


@dataclass(slots=True)
class Rig:
    """One variant of a lane. `first_prompt` is the number of the next prompt nobody has used.

    `borne_s` is how long a short request may be silent once the lane was up; 0 before.
    """

    variant: Variant
    options: RigOptions
    first_prompt: int = 0
    starts: int = 0
    borne_s: float = 0.0
    session: Session | None = None
    running: ReadyLane | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def name(self) -> str:
        """The variant's name, which its cells carry as their lane."""
        return self.variant.name

    @property
    def log_path(self) -> Path:
        """Where the engine's output goes."""
        return self.options.log_folder / f"{file_name(self.name)}.log"

    @property
    def lane(self) -> LanePlan:
        """The lane with the variant's flags."""
        plain = self.options.plan.lanes[self.variant.lane]
        return varied(plain, self.variant.flags) if self.variant.flags else plain

    def open(self) -> Session:
        """Return the session, starting the lane where it is not up.

        Raises LaneDown where it does not come up, UsageError for what no waiting mends.
        """
        if self.session is not None:
            return self.session
        patience_s = PATIENCE_S if self.starts else 0.0
        give_up_ns = now_ns() + int(patience_s * 1e9)
        while True:
            try:
                return self._open()
            except PromptTooLong as error:
                raise LaneDown(NoRoom(f"the shortest request is too long: {error}"), []) from None
            except TargetError as error:
                away = isinstance(error, Unreachable | PortTaken) or type(error) is NotReady
                if not away or now_ns() >= give_up_ns:
                    raise LaneDown(error, _notes(error)) from None
            sleep_s(RETRY_S)

    def _open(self) -> Session:
        options, plan = self.options, self.options.plan
        lane = self.lane
        if self.variant.flags and records.find(plan.path, lane.name) is not None:
            raise UsageError(
                f"lane {lane.name} is up already and its flags are to be varied: "
                f"`concbench lanes down {lane.name}` first"
            )
        ask: dict[str, object] = {
            "endpoint": plan.workload.endpoint,
            "stream": plan.workload.stream,
            "temperature": plan.workload.temperature,
            "extra_body": plan.workload.extra_body,
            "ignore_eos": plan.workload.ignore_eos,
        }
        options.log_folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            running = stack.enter_context(
                running_lane(
                    lane,
                    plan.path,
                    options.access,
                    self.log_path,
                    wait_s=options.wait_s,
                    endpoint=plan.workload.endpoint,
                )
            )
            session = open_session(running.attached, options.access, ask)
            session.lane = self.name
            session.alive = running.alive
            session.carrier = options.carrier
            session.facts = msgspec.structs.replace(running.facts, lane=self.name)
            origin = origin_of(running, lane, Path(plan.path).parent)
            session.dossier = dossier(running.attached, session.facts, origin)
            pids = local_pids(running.attached.root)
            log = self.log_path if self.log_path.is_file() else None
            stack.enter_context(observing(session, options.access, log=log, engine_pids=pids))
            session.silent_s = self.borne_s or session.silent_s
            calibrate(session, plan.workload.content, options.seed + self.starts)
            if session.facts.first_request_s is None:
                session.facts = with_first_request(session)
            self.borne_s = max(self.borne_s, session.silent_s)
            session.next_prompt = max(session.next_prompt, self.first_prompt)
            self._stack = stack.pop_all()
        self.session, self.running = session, running
        self.starts += 1
        return session

    def close(self) -> TargetFacts | None:
        """Stop what was started; return its last facts, its end among them. Safe to call again."""
        session, running = self.session, self.running
        if session is None or running is None:
            return None
        self.first_prompt = session.next_prompt
        self.session = self.running = None
        self._stack.close()
        return msgspec.structs.replace(session.facts, teardown=running.facts.teardown)

    @property
    def is_ours(self) -> bool:
        """Whether the engine is a child of this tool, which can be started again."""
        return isinstance(self.running, RunningLane)

    def died_of(self) -> CellOutcome:
        """Return the outcome that a dead engine's log tells: `oom`, else `crashed`."""
        known = self.running.child.failure() if isinstance(self.running, RunningLane) else None
        return "oom" if known is not None and known.outcome == "oom" else "crashed"

    def last_lines(self) -> list[str]:
        """Return the last lines that the engine logged; empty where there is no log."""
        if isinstance(self.running, RunningLane):
            return tail(self.running.child.log_lines())[-SHOWN_LINES:]
        return tail(lines_from(self.log_path))[-SHOWN_LINES:] if self.log_path.is_file() else []

    def memory_bytes(self) -> int:
        """Return the memory that its processes hold here; 0 where the engine is not a child."""
        child = self.running.child if isinstance(self.running, RunningLane) else None
        return child.rss_bytes() if isinstance(child, Child) else 0

    def identity(self) -> dict[str, Any]:
        """Return the facts by which two starts of the lane are told to be the same."""
        assert self.session is not None
        assert self.running is not None
        facts = self.session.facts
        extra = self.running.attached.extra
        return {name: getattr(facts, name) for name in IDENTITY} | {
            "model_hash": extra.get("model_hash")
        }


def _notes(error: BaseException) -> list[str]:
    """Return the engine's last lines that a failed start carries."""
    return [line for note in getattr(error, "__notes__", ()) for line in note.splitlines()][
        -SHOWN_LINES:
    ]


def free_bytes() -> int:
    """Return the memory that new processes can have."""
    return int(psutil.virtual_memory().available)

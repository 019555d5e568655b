"""A lane of the plan, however it is had: rejoined, attached to, or started for the occasion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from concbench.domain import TargetFacts
from concbench.plan.model import LanePlan
from concbench.serve import records
from concbench.serve.attached import attach_lane
from concbench.serve.dossier import Origin
from concbench.serve.http import Access
from concbench.serve.lane import RunningLane, start
from concbench.serve.launch import deadline_s, recipe_of
from concbench.serve.probe import IMPATIENT, Attached, Patience
from concbench.serve.records import Record


class ReadyLane(Protocol):
    """What measuring needs of a lane."""

    @property
    def attached(self) -> Attached:
        """The server that was met."""
        ...

    @property
    def facts(self) -> TargetFacts:
        """What is known of it; with its teardown once it was stopped."""
        ...

    def alive(self) -> str | None:
        """Return None while it lives, otherwise one line on its end."""
        ...


@dataclass(frozen=True, slots=True)
class RejoinedLane:
    """A lane that `lanes up` left running: used again, and left running again."""

    attached: Attached
    record: Record

    @property
    def facts(self) -> TargetFacts:
        """What is known of it, its start included."""
        cold = self.record.cold_start
        return msgspec.structs.replace(
            self.attached.facts,
            cold_start_s=cold.get("first_token_s"),
            first_request_s=cold.get("first_request_s"),
        )

    def alive(self) -> str | None:
        """Return None while it lives, otherwise one line on its end."""
        return self.record.alive()


@contextmanager
def running_lane(
    lane: LanePlan,
    plan: str,
    access: Access,
    log_path: Path,
    *,
    wait_s: float | None = None,
    endpoint: Literal["chat", "completions"] = "chat",
    patience: Patience = IMPATIENT,
) -> Iterator[ReadyLane]:
    """Yield the lane once it has given a token; stop it after, if it was started here.

    `plan` is the plan file's path. A lane that `lanes up` left running is used as it is. Raises
    what `attach_lane`, `recipe_of` and `lane.start` raise.
    """
    record = records.find(plan, lane.name)
    limit_s = deadline_s(lane) if wait_s is None else wait_s
    if record is not None:
        yield RejoinedLane(record.attach(access), record)
    elif lane.url is not None:
        with attach_lane(lane, access, log_path, limit_s, endpoint, patience) as met:
            yield met
    else:
        recipe = recipe_of(lane, Path(plan).parent).replaced(endpoint=endpoint)
        with start(recipe, log_path, limit_s, access) as started:
            yield started


def origin_of(lane: ReadyLane, plan: LanePlan, folder: Path) -> Origin:
    """Return how a lane of the plan came to run; `folder` is the plan's."""
    if isinstance(lane, RejoinedLane):
        record = lane.record
        return Origin(record.spoken, record.env, record.cold_start, plan, folder)
    if isinstance(lane, RunningLane):
        return Origin(lane.recipe.spoken, lane.recipe.env, lane.cold_start, plan, folder)
    return Origin(plan=plan, folder=folder)

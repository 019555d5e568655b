"""The parts of a comparison: its sides, what every run does, what it tells, how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from concbench.analyse.looks import LOOKS
from concbench.domain import Round
from concbench.errors import TargetError
from concbench.measure.campaign import OnDiscard, OnRound, OnSay
from concbench.measure.session import Session
from concbench.measure.watch import OnLook
from concbench.plan.order import Letter
from concbench.plan.prompts import Prompt
from concbench.result import VerdictResult

_GONE = frozenset(
    {"connect_refused", "connect_failed", "connect_timeout", "reset", "truncated", "no_response"}
)

Upkeep = Literal["attached", "kept", "fresh"]
AbEnd = Literal["verdict", "pairs", "max_s", "not_comparable", "crashes", "interrupt"]


@dataclass(frozen=True, slots=True)
class Side:
    """One side. `reach` gives a calibrated session each time it is called.

    `attached`: the lane runs already. `kept`: it is started once and stays up. `fresh`: it is
    started for each run and stopped after it, so that a start's own luck is in the spread.
    """

    letter: Letter
    name: str
    reach: Callable[[], AbstractContextManager[Session]]
    upkeep: Upkeep
    flags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AbOptions:
    """What every run does. `contexts` are prompt lengths in tokens; cells are contexts × levels.

    With `contents` they are multiplied by these kinds of content, which then stand in the cells'
    `context_label`; without, all prompts are of kind `content`.
    `output_tok` None means auto, fixed for both sides by a pilot before the first run. `looks`,
    `until`: `driver.Progress`. No pair is begun after `max_s`. With `same_server` the two runs of a
    pair get different prompts, which a prompt cache would otherwise know from the other side.
    """

    levels: Sequence[int]
    contexts: Sequence[int]
    output_tok: int | None
    content: str
    seed: int
    rounds: int = 4
    warmup: int = 1
    looks: Sequence[int] = LOOKS
    until: float | None = None
    max_s: float | None = None
    timeout_s: float | None = None
    inactivity_s: float | None = None
    same_prompt: bool = False
    file_prompts: Sequence[Prompt] = ()
    reset_cache: bool = False
    same_server: bool = False
    contents: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AbHooks:
    """What a comparison tells: rounds and notes to be stored, and what is to be shown.

    `look` judges what was stored so far. `on_pair(pairs, verdicts)` follows each complete pair,
    `on_lane(session)` whenever a lane was reached, or stopped and told its end, and
    `on_look(snapshot)` comes twice a second while a round runs.
    """

    on_round: OnRound
    on_discard: OnDiscard
    on_failed: Callable[[str, str], None]
    on_note: Callable[[str, Mapping[str, Any]], None]
    on_lane: Callable[[Session], None]
    look: Callable[[], Sequence[VerdictResult]]
    on_pair: Callable[[int, Sequence[VerdictResult]], None]
    say: OnSay
    on_look: OnLook | None = None


@dataclass(slots=True)
class AbOutcome:
    """How a comparison ended. `cells` says why each cell's rounds ended, where that is known."""

    ended_by: AbEnd
    pairs: int
    crashes: int
    cells: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


class LaneDied(TargetError):
    """A lane that stopped answering in the middle of a run."""


def lost(finished: Round) -> str | None:
    """Return why a round shows that its lane is gone, or None.

    An engine that was started here and ended, one that hangs, or a server where nobody listens any
    more. Requests that fail with an answer are a result, not a crash.
    """
    if finished.outcome in ("crashed", "hung", "oom"):
        return finished.outcome_detail or f"the engine {finished.outcome}"
    kinds = {record.error for record in finished.requests if record.outcome != "ok"}
    answered = any(record.outcome == "ok" for record in finished.requests)
    if "connect_refused" in kinds or (kinds and not answered and kinds <= _GONE):
        detail = next((r.error_detail for r in finished.requests if r.error_detail), None)
        return f"nobody answers any more ({detail or ', '.join(sorted(map(str, kinds)))})"
    return None

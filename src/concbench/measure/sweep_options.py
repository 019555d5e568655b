"""What a sweep is asked to do, and what it asks of those around it: displays and links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from concbench.measure.sweep_rig import RigOptions
from concbench.measure.watch import Snapshot
from concbench.plan.model import Plan
from concbench.plan.prompts import Prompt
from concbench.plan.steps import Step

Together = Literal["auto", "yes", "no"]


class Watching(Protocol):
    """A display of a sweep's progress."""

    def begin(self, step: Step, left: Sequence[Step]) -> None:
        """Say which round begins; `left` are it and those of its group after it."""
        ...

    def say(self, text: str) -> None:
        """Say what goes on."""
        ...

    def look(self, now: Snapshot) -> None:
        """Show how the round that is running goes: twice a second, and it must cost nothing."""
        ...


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What a sweep is to do. `hang_s` None: from what prompts take; `has_gpu`: on this machine.

    `rounds_max` lets a cell have more than `rounds` until its interval is narrow; `prompts` are
    those of a file, instead of made ones.
    """

    plan: Plan
    rounds: int
    output_tok: int
    seed: int
    rig: RigOptions
    rounds_max: int | None = None
    prompts: Sequence[Prompt] = ()
    together: Together = "auto"
    hang_s: float | None = None
    ceiling: bool = False
    warmup: bool = True
    has_gpu: bool = False


class Stopped(Exception):
    """A signal came during a round."""


class LinkSwitch(Protocol):
    """Brings a link up before the rounds over it, and puts things back after."""

    def use(self, name: str | None) -> None:
        """Change over to a link; None is the network as it is."""
        ...

    def close(self) -> None:
        """Put back what was changed. Safe to call again."""
        ...

"""Who carries a round's load: this process, several of its own, or actors of a Ray cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

from concbench.load.generator import LoadPlan, RawRound, run
from concbench.load.procs import auto_procs, run_split
from concbench.load.share import can_split


@dataclass(frozen=True, slots=True)
class Carrier:
    """`procs` 0 means as many processes as suit the streams. `stall` is for tests: `LoadPlan`."""

    procs: int = 0
    workers: Literal["local", "ray"] = "local"
    stall: tuple[int, int] | None = None

    def carry(self, plan: LoadPlan) -> RawRound:
        """Run one round.

        Raises UsageError for a load that cannot be split when that was asked for, MissingExtra
        without Ray.
        """
        if self.stall is not None:
            plan = replace(plan, stall=self.stall)
        if self.workers == "ray":
            from concbench.load.ray_workers import run_on_ray

            return run_on_ray(plan, self.procs or None)
        procs = self.procs
        if not procs:
            streams = len(plan.scripts)
            procs = auto_procs(streams, os.cpu_count() or 1) if can_split(plan) else 1
        return run(plan) if procs == 1 else run_split(plan, procs)

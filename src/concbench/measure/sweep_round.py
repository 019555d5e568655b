"""One round of a sweep, with how it ended: measured, rejected, or the engine gone or silent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from concbench.analyse.doubts_requests import is_context_error
from concbench.clock import now_ns, sleep_s
from concbench.domain import CellOutcome, RequestRecord, Round
from concbench.load.generator import LoadPlan, Progress
from concbench.load.script import Script
from concbench.measure.campaign import Asking, Campaign, Recorder
from concbench.measure.observed import live
from concbench.measure.session import Session
from concbench.measure.sweep_rig import Rig
from concbench.measure.watch import OnLook
from concbench.observe.observer import LiveView
from concbench.plan.model import Plan
from concbench.plan.prompts import Prompt

LEAST_HANG_S = 60.0
HANG_FACTOR = 5.0
"""A silence is a hang when it lasts this many times what the prompts in flight take alone."""

REAP_S = 2.0
REAP_POLL_S = 0.05
_GONE = frozenset(
    {"connect_refused", "connect_failed", "connect_timeout", "reset", "truncated", "no_response"}
)


class Silence:
    """Ends a round in which, for `limit_s`, no byte came and no counter of the server moved."""

    def __init__(self, limit_s: float, view: Callable[[], LiveView | None]) -> None:
        self._limit_s = limit_s
        self._view = view
        self._seen: tuple[object, ...] = ()
        self._since_ns = 0
        self.told: str | None = None

    def tick(self, progress: Progress) -> bool:
        """Look at the counts; return whether the round is to end now."""
        view = self._view()
        server = () if view is None else (view.generated_tok, view.running, view.waiting)
        seen = (progress.received_bytes, progress.ended, *server)
        if seen != self._seen or not progress.in_flight:
            self._seen, self._since_ns = seen, progress.elapsed_ns
            return False
        silent_s = (progress.elapsed_ns - self._since_ns) / 1e9
        if silent_s < self._limit_s:
            return False
        self.told = (
            f"no byte came and no counter moved for {silent_s:.0f} s with "
            f"{progress.in_flight} requests in flight"
        )
        return True


def asking_of(
    plan: Plan, prompt_tok: int, seed: int, file_prompts: Sequence[Prompt] = ()
) -> Asking:
    """Return what all requests of a round have in common."""
    return Asking(
        prompt_tok=prompt_tok,
        content=plan.workload.content,
        seed=seed,
        timeout_s=plan.workload.timeout_s,
        inactivity_s=plan.workload.inactivity_s,
        same_prompt=plan.workload.same_prompt,
        file_prompts=file_prompts,
    )


@dataclass(slots=True)
class SweepRecorder(Recorder):
    """Runs the rounds of one lane; what did not go well is stored as discarded, with its outcome.

    `seed` is that of the next round's prompts, `silence` watches it.
    """

    rig: Rig | None = None
    seed: int = 0
    silence: Silence = field(default_factory=lambda: Silence(LEAST_HANG_S, lambda: None))

    @classmethod
    def of(
        cls,
        rig: Rig,
        session: Session,
        store: Callable[[Round], None],
        on_look: OnLook | None = None,
    ) -> SweepRecorder:
        """Return the recorder of a lane that is up. `store` is given every round."""

        def on_round(done: Round) -> None:
            bad = done.outcome != "measured" and not done.interrupted
            store(msgspec.structs.replace(done, phase="discarded") if bad else done)

        asking = asking_of(rig.options.plan, 1, 0)
        return cls(session, asking, Campaign(), on_round, on_look=on_look, rig=rig)

    def next_seed(self) -> int:
        """Return the seed that the sweep chose for this round."""
        return self.seed

    def watch(self, limit_s: float) -> None:
        """Begin to watch for a silence of that length, in the next round."""
        self.silence = Silence(limit_s, lambda: live(self.session))

    def plan(self, scripts: Sequence[Script]) -> LoadPlan:
        """Return the load plan, which a silence ends."""
        return replace(Recorder.plan(self, scripts), stop_when=self.silence.tick)

    def _ending(self, parsed: Round, hung: str | None) -> dict[str, str]:
        """Say how the round ended where it was not simply measured."""
        if parsed.interrupted:
            return {}
        outcome, detail = self._outcome(parsed.requests, self.silence.told or hung)
        return {} if outcome == "measured" else {"outcome": outcome, "outcome_detail": detail}

    def _outcome(
        self, requests: Sequence[RequestRecord], hung: str | None
    ) -> tuple[CellOutcome, str]:
        assert self.rig is not None
        died = self._died(requests)
        if died is not None:
            return self.rig.died_of(), died
        if hung is not None:
            return "hung", hung
        if any(record.outcome == "ok" for record in requests):
            return "measured", ""
        rejected = [record for record in requests if is_context_error(record)]
        if rejected:
            return "context_rejected", rejected[0].error_detail or "too long"
        if all(record.error in _GONE for record in requests) and not self._answers():
            return "crashed", f"the server answers no more ({requests[0].error})"
        return "measured", ""

    def _died(self, requests: Sequence[RequestRecord]) -> str | None:
        """Return how the engine ended; where connections broke it is given a moment to be gone."""
        broken = any(record.error in _GONE for record in requests)
        give_up_ns = now_ns() + int(REAP_S * 1e9)
        while (died := self.session.alive()) is None and broken and now_ns() < give_up_ns:
            sleep_s(REAP_POLL_S)
        return died

    def _answers(self) -> bool:
        return bool(self.session.http.get("/").status)


def hang_s(session: Session, prompt_tok: int, n: int, ttft_s: float | None) -> float:
    """Return how long a silence in a round of n prompts may be, in seconds.

    A prefill makes no sound: as many prompts as run at once, one after another, may come before
    the first token. `ttft_s` is what one such prompt took alone, None where it is not known.
    """
    at_once = min(n, session.facts.slots or n)
    guess_s = session.prefill_ns / 1e9 * max(1.0, prompt_tok / 50)
    alone_s = guess_s if ttft_s is None else ttft_s
    return max(LEAST_HANG_S, HANG_FACTOR * at_once * alone_s)

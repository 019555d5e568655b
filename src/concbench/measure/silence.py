"""When a round will not end by itself: silence on every side, answers without an end, a trickle.

No request waits for ever, with or without `--timeout-s`, the first ones that find the pace
included: a round is cut when no byte came and the
server's own counter stood still for long, when far more came than was asked for, and when it takes
many times what its requests would one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from concbench.domain import RequestRecord
from concbench.load.generator import LoadPlan, Progress
from concbench.observe.observer import LiveView

STALL_S = 10.0
"""How long a silence is borne at least."""

STALL_FACTOR = 5.0
"""How many times the longest wait for a first token that was seen."""

MOST_GUESSED_S = 600.0
"""The longest that is borne on a guess, before anything like it was measured."""

ROUND_FACTOR = 10.0
LEAST_ROUND_S = 60.0
UNKNOWN_STEP_S = 1.0

PROBE_TOK = 50
RUNAWAY_FACTOR = 8.0
RUNAWAY_ROOM_BYTES = 4 << 20
UNKNOWN_BYTES_PER_TOK = 1024.0

FIRST_SILENT_S = 600.0
"""How long the very first request may be silent: some servers load the model meanwhile."""

LATER_SILENT_S = 30.0
"""How long a short request may be silent at least, once the server has answered one."""


class Silence:
    """Notices that no byte came for `limit_s` while requests wait and the counter stands still."""

    def __init__(self, limit_s: float, live: Callable[[], LiveView | None]) -> None:
        self._limit_s = limit_s
        self._live = live
        self._heard = (0, 0, 0.0)

    def look(self, progress: Progress) -> str | None:
        """Return what is wrong, in words, once the silence has lasted too long."""
        _, received, generated = self._heard
        view = self._live()
        counted = generated if view is None or view.generated_tok is None else view.generated_tok
        if progress.received_bytes != received or counted != generated or not progress.in_flight:
            self._heard = (progress.elapsed_ns, progress.received_bytes, counted)
            return None
        silent_s = (progress.elapsed_ns - self._heard[0]) / 1e9
        if silent_s < self._limit_s:
            return None
        return f"no byte came for {silent_s:.0f} s with {progress.in_flight} requests in flight"


class Deadline:
    """Notices that a round takes many times what its requests would one after another."""

    def __init__(self, serial_s: float) -> None:
        """`serial_s`: the requests one after another, at the pace of one alone."""
        self._limit_s = max(LEAST_ROUND_S, ROUND_FACTOR * serial_s)

    def look(self, progress: Progress) -> str | None:
        """Return what is wrong, in words, once the round is far too long."""
        if progress.elapsed_ns / 1e9 <= self._limit_s:
            return None
        return (
            f"the round did not end within {self._limit_s:.0f} s, at least {ROUND_FACTOR:.0f} "
            "times what its requests take one after another"
        )


class Runaway:
    """Notices that the answers grow far beyond what was asked for."""

    def __init__(self, asked_tok: int, requests: int, bytes_per_tok: float) -> None:
        """`asked_tok` in all `requests`; `bytes_per_tok` 0 where that is not known."""
        self._asked_tok = asked_tok
        each = bytes_per_tok or UNKNOWN_BYTES_PER_TOK
        self._limit_bytes = RUNAWAY_FACTOR * asked_tok * each + requests * RUNAWAY_ROOM_BYTES

    def look(self, progress: Progress) -> str | None:
        """Return what is wrong, in words, once far too much has come."""
        if progress.received_bytes <= self._limit_bytes:
            return None
        return (
            f"the answers did not end: {progress.received_bytes:,} bytes came where "
            f"{self._asked_tok:,} tokens were asked for"
        )


@dataclass(slots=True)
class Guard:
    """Ends a round that would not end by itself; `hung` then says why."""

    silence: Silence
    runaway: Runaway
    deadline: Deadline
    hung: str | None = None

    def over(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan with this guard beside its own rule, if it has one."""
        own = plan.stop_when

        def stop(progress: Progress) -> bool:
            if own is not None and own(progress):
                return True
            rules = (self.silence, self.runaway, self.deadline)
            self.hung = next(filter(None, (rule.look(progress) for rule in rules)), None)
            return self.hung is not None

        return replace(plan, stop_when=stop)


@dataclass(slots=True)
class Patience:
    """How long a silence is borne, learnt from the waits for first tokens as they are seen."""

    prefill_ns: int
    longest_ns: int = 0

    def learn(self, records: Sequence[RequestRecord]) -> None:
        """Take note of how long these requests waited for their first tokens."""
        for record in records:
            if record.first_token_ns is not None and record.sent_ns is not None:
                self.longest_ns = max(self.longest_ns, record.first_token_ns - record.sent_ns)

    def limit_s(self, requests: int, prompt_tok: int) -> float:
        """Return how long a silence of so many requests of that length is borne.

        The guess is that of prompts which are read one after another, each at the pace of the
        short one at the start; it counts beside what was seen, since prompts may grow.
        """
        scale = requests * max(1.0, prompt_tok / PROBE_TOK)
        guess_s = min(MOST_GUESSED_S, STALL_FACTOR * self.prefill_ns / 1e9 * scale)
        return max(STALL_S, guess_s, STALL_FACTOR * self.longest_ns / 1e9)


def probe_guard(silent_s: float, output_tok: int, step_s: float, bytes_per_tok: float) -> Guard:
    """Return the guard of one short request: silent for `silent_s` at most, `step_s` a token."""
    serial_s = silent_s / ROUND_FACTOR + output_tok * step_s
    return Guard(
        Silence(silent_s, lambda: None),
        Runaway(output_tok, 1, bytes_per_tok),
        Deadline(serial_s),
    )


def later_silent_s(answer_s: float) -> float:
    """Return how long a short request may be silent where one took `answer_s` before."""
    return max(LATER_SILENT_S, STALL_FACTOR * answer_s)

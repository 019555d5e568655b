"""What a sweep shows: its cells beforehand, and one changing line while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from concbench.analyse.windows import MIN_STEPS
from concbench.cli.live import StatusLine
from concbench.domain import Round
from concbench.measure.sweep_state import Standing
from concbench.measure.watch import OnLook, Snapshot
from concbench.plan.matrix import MatrixCell, guess_s, pace
from concbench.plan.steps import Step

LEAST_ANSWER_TOK = MIN_STEPS + 10
"""Shorter answers leave no steady window once the streams have started one after the other."""


class SweepDisplay(StatusLine):
    """What a sweep shows: what is under way, and each measured round.

    `leave` turns what shows a snapshot into what also leaves it for who watches.
    """

    def __init__(
        self, state: Standing, leave: Callable[[OnLook], OnLook] = lambda show: show, *, quiet: bool
    ) -> None:
        super().__init__(quiet=quiet)
        self._state = state
        self._doing = ""
        self._look = leave(super().look)

    def look(self, now: Snapshot) -> None:
        """Show how the round goes, and leave it for who watches."""
        self._look(now)

    def begin(self, step: Step, left: Sequence[Step]) -> None:
        """Show which round begins and how long those of this group will take."""
        left_s = left_seconds(left, self._state)
        self._doing = f"{len(left)} to do with these lanes, about {duration(left_s)}"
        if self._live is not None:
            self.say(f"{step.cell_id} round {step.index + 1} · {self._doing}")

    def finished(self, done: Round) -> None:
        """Say how a round went."""
        if self.quiet or done.phase == "warmup":
            return
        took_s = (done.end_ns - done.start_ns) / 1e9
        ok = sum(record.outcome == "ok" for record in done.requests)
        text = (
            f"{done.cell.cell} round {done.index + 1}: {ok}/{len(done.requests)} ok, "
            f"{took_s:.1f} s, {done.outcome}{f' · {self._doing}' if self._doing else ''}"
        )
        self.keep(text)


def left_seconds(left: Sequence[Step], state: Standing) -> float:
    """Return how long these steps will take, by what was measured so far, in seconds."""
    known = state.mean_s()
    cells = [step.cell for step in left]
    factor = pace(cells, known)
    return sum(
        known.get(step.cell_id, known.get(step.cell.cell.cell, guess_s(step.cell) * factor))
        for step in left
    )


def duration(seconds: float) -> str:
    """Return a duration for people: `45 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plan_rows(
    groups: Sequence[tuple[str | None, Sequence[MatrixCell], bool]],
    rounds: int,
    state: Standing,
) -> list[dict[str, Any]]:
    """Return one row a cell: what it asks, how many rounds are left, how long they will take.

    A group is (link, cells, whether the KV pool is known).
    """
    known = state.mean_s()
    factor = pace([cell for _, cells, _ in groups for cell in cells], known)
    rows = []
    for link, cells, sure in groups:
        for each in cells:
            name = each.cell.cell
            done = sum((name, index) in state.done for index in range(rounds))
            left = 0 if name in state.ended else rounds - done
            one_s = known.get(name, guess_s(each) * factor)
            rows.append(
                {
                    "cell": name,
                    "lane": each.cell.lane,
                    "link": link,
                    "context_tok": each.cell.context_tok,
                    "concurrency": each.cell.concurrency,
                    "demand_tok": each.demand_tok,
                    "over_kv": each.over_kv,
                    "capped": each.capped,
                    "pool_known": sure,
                    "rounds_done": done,
                    "rounds_left": left,
                    "ended": state.ended.get(name, (None, None))[0],
                    "prompt_tok": left * each.cell.concurrency * each.cell.context_tok,
                    "output_tok": left * each.cell.concurrency * each.output_tok,
                    "answer_tok": each.output_tok,
                    "left_s": left * one_s + (min(one_s, 30.0) if left else 0.0),
                    "measured": name in known,
                }
            )
    return rows


def plan_lines(rows: Sequence[dict[str, Any]], extra_rounds: int = 0) -> Iterator[str]:
    """Yield the dry run's lines: a table of cells, then the totals.

    `extra_rounds` is how many more a cell may get whose interval stays wide.
    """
    width = max((len(row["cell"]) for row in rows), default=4)
    heads = f"{'N':>6}  {'context':>8}  {'KV tokens':>11}  {'rounds':>6}  {'time':>7}"
    yield f"{'cell':<{width}}  {heads}"
    for row in rows:
        marks = [
            word
            for word, on in (
                ("over-KV", row["over_kv"]),
                ("over the cap", row["capped"]),
                ("pool not known yet", not row["pool_known"]),
                (str(row["ended"]), row["ended"] is not None),
            )
            if on
        ]
        yield (
            f"{row['cell']:<{width}}  {row['concurrency']:>6}  {row['context_tok']:>8,}  "
            f"{row['demand_tok']:>11,}  {row['rounds_left']:>6}  {duration(row['left_s']):>7}"
            f"{'  ' + ', '.join(marks) if marks else ''}"
        )
    total_s = sum(row["left_s"] for row in rows)
    basis = (
        "from what was measured in this study" if any(r["measured"] for r in rows) else "a guess"
    )
    yield (
        f"{len(rows)} cells, {sum(r['rounds_left'] for r in rows)} rounds left, "
        f"{sum(r['prompt_tok'] for r in rows):,} prompt and "
        f"{sum(r['output_tok'] for r in rows):,} output tokens, about {duration(total_s)} ("
        f"{basis}; starts of lanes come on top)"
    )
    short = min((row["answer_tok"] for row in rows), default=LEAST_ANSWER_TOK)
    if short < LEAST_ANSWER_TOK:
        yield (
            f"answers of {short} tokens leave no steady window ({MIN_STEPS} decode steps): there "
            f"will be batch figures alone; from {LEAST_ANSWER_TOK} output_tokens on there is one"
        )
    if extra_rounds:
        yield f"and up to {extra_rounds} rounds more for each cell whose interval stays wide"

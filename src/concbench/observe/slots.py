"""llama.cpp's `/slots`: how many tokens each running request has, at every poll.

Its counters of tokens move only when a request ends; the slots move at every step. Two counters
come of it. `generated_tok_live` adds up what the polls saw each task gain: it moves with every
step, and misses what a task gained between its last poll and its end. `generated_tok` is the
counter of ended requests plus the tokens of those that run: exact, and given only where both were
read so closely that no request can have ended between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from concbench.domain import ServerSample


def read_slots(body: bytes) -> dict[int, int] | None:
    """Return tokens decoded by task number, of the slots that work; None where it is no list."""
    try:
        slots = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(slots, list):
        return None
    running: dict[int, int] = {}
    for index, slot in enumerate(slots):
        if isinstance(slot, dict) and slot.get("is_processing") is True:
            task = slot.get("id_task")
            number = task if isinstance(task, int) else -1 - index
            running[number] = running.get(number, 0) + _decoded(slot)
    return running


def _decoded(slot: dict[str, Any]) -> int:
    """Return `n_decoded`, which old builds keep in an object and new ones in a list of them."""
    following = slot.get("next_token")
    items = following if isinstance(following, list) else [following]
    counts = [item.get("n_decoded") for item in items if isinstance(item, dict)]
    counts = counts or [slot.get("n_decoded")]
    return sum(count for count in counts if isinstance(count, int) and 0 <= count < 1 << 40)


class SlotCounter:
    """Follows the tasks from poll to poll."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._live = 0
        self._first = True
        self._ended_tok: float | None = None

    def rows(
        self, running: dict[int, int], ended_tok: float | None, sent_ns: int, received_ns: int
    ) -> Iterator[ServerSample]:
        """Yield the rows of one poll; `ended_tok` is the counter read just before, if any."""

        def row(name: str, value: float) -> ServerSample:
            return ServerSample(
                sent_ns=sent_ns, received_ns=received_ns, source="slots", name=name, value=value
            )

        if not self._first:
            self._live += sum(
                max(0, tokens - self._seen.get(task, 0)) for task, tokens in running.items()
            )
        yield row("running", len(running))
        yield row("generated_tok_live", self._live)
        if ended_tok is not None and self._unbroken(running, ended_tok):
            yield row("generated_tok", ended_tok + sum(running.values()))
        self._seen, self._ended_tok, self._first = dict(running), ended_tok, False

    def _unbroken(self, running: dict[int, int], ended_tok: float) -> bool:
        """Whether every task that is gone since the last poll is in the counter of ended ones."""
        gone = sum(tokens for task, tokens in self._seen.items() if task not in running)
        before = ended_tok if self._ended_tok is None else self._ended_tok
        return ended_tok - before >= gone

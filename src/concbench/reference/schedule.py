"""A continuous-batching scheduler in virtual time: who runs, who waits, when each token is due.

Pure: it is told the time, and hands back what fell due. All due times follow from the arrival
stamps and the pace alone, never from when it was asked, so a late caller gets the same schedule.

Two modes. *Free*: each stream has its own clock, token k of a stream that started at s is due at
s + ttft + prefill + k·itl. *Step*: all decoding streams get their tokens at common step times;
the step after one that leaves B streams decoding lasts a + b·B.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import Any

Deliver = Callable[["Job", int, int], None]
"""deliver(job, tokens, due_ns): called once for each chunk, in the order of the due times."""

_STALE = -1


@dataclass(frozen=True, slots=True)
class Pace:
    """The truth to be followed. `slots`, `kv_tok` and `prefill_tok_per_s` are unlimited at 0.

    `itl_ns` is the time per token: a chunk of k tokens comes every k·itl. `jitter` is the
    largest relative deviation of a gap, drawn uniformly. Step mode is on when `step_a_ns` is set.
    """

    ttft_ns: int = 50_000_000
    itl_ns: int = 20_000_000
    jitter: float = 0.0
    seed: int = 0
    slots: int = 0
    tokens_per_chunk: int = 1
    prefill_tok_per_s: float = 0.0
    kv_tok: int = 0
    block_tok: int = 16
    step_a_ns: int | None = None
    step_b_ns: int = 0


class Job:
    """One request in the scheduler. Stamps are monotonic ns; -1 means not yet.

    `started_ns` is the first admission, `first_due_ns` and `last_due_ns` the scheduled times of
    the first and the latest token, `sent_tok` how many tokens fell due so far.
    """

    __slots__ = (
        "arrived_ns",
        "cached_tok",
        "first_due_ns",
        "kv_tok",
        "last_due_ns",
        "output_tok",
        "owner",
        "preemptions",
        "prompt_tok",
        "sent_tok",
        "seq",
        "started_ns",
        "state",
    )

    def __init__(
        self,
        arrived_ns: int,
        prompt_tok: int,
        output_tok: int,
        cached_tok: int = 0,
        owner: Any = None,  # noqa: ANN401 - the scheduler never looks at it
    ) -> None:
        self.arrived_ns = arrived_ns
        self.prompt_tok = prompt_tok
        self.cached_tok = min(cached_tok, prompt_tok)
        self.output_tok = output_tok
        self.owner = owner
        self.started_ns = -1
        self.first_due_ns = -1
        self.last_due_ns = -1
        self.sent_tok = 0
        self.seq = _STALE
        self.state = "waiting"
        self.kv_tok = 0
        self.preemptions = 0


class Scheduler:
    """FIFO admission by slots and KV blocks, then tokens by the pace."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.waiting: deque[Job] = deque()
        self.running: dict[Job, None] = {}
        self.kv_used_tok = 0
        self.preemptions = 0
        self.steps = 0
        self._heap: list[tuple[int, int, Job]] = []
        self._free_since: deque[int] = deque([0] * pace.slots)
        self._busy_until_ns = 0
        self._seq = 0
        self._batch: dict[Job, None] = {}
        self._step_ns = 0
        self._rng = random.Random(pace.seed)
        self._chunk_gap_ns = pace.itl_ns * pace.tokens_per_chunk

    def submit(self, job: Job) -> None:
        """Queue a job; it starts at its arrival if a slot and the KV pool allow."""
        self.waiting.append(job)
        self._admit(0)

    def cancel(self, job: Job, now_ns: int) -> None:
        """Forget a job whose client went away; its slot is free from `now_ns`.

        It may have gone before the job was even submitted.
        """
        if job.state == "waiting":
            with suppress(ValueError):
                self.waiting.remove(job)
        elif job.state == "running":
            self._release(job, now_ns)
        job.state = "cancelled"
        job.seq = _STALE
        self._admit(now_ns)

    def next_due_ns(self) -> int | None:
        """When something falls due next, or None when nothing runs."""
        if self._batch:
            return self._step_ns
        heap = self._heap
        while heap and heap[0][1] != heap[0][2].seq:
            heappop(heap)
        return heap[0][0] if heap else None

    def advance(self, now_ns: int, deliver: Deliver) -> int:
        """Hand over everything due up to `now_ns`; return the number of chunks."""
        if self.pace.step_a_ns is not None:
            return self._advance_steps(now_ns, self.pace.step_a_ns, deliver)
        return self._advance_free(now_ns, deliver)

    def stall(self, now_ns: int, length_ns: int) -> None:
        """Stop the engine from `now_ns` for `length_ns`: all that is still due comes later."""
        self._heap = [(due + length_ns, seq, job) for due, seq, job in self._heap]
        self._step_ns += length_ns
        self._busy_until_ns = now_ns + length_ns

    def preempt(self, now_ns: int, count: int) -> int:
        """Send the `count` youngest running jobs back to the queue; return how many went."""
        victims = list(self.running)[::-1][:count]
        for job in victims:
            self._evict(job, now_ns)
        self._admit(now_ns)
        return len(victims)

    def _advance_free(self, now_ns: int, deliver: Deliver) -> int:
        pace = self.pace
        heap, chunk_tok, gap_ns = self._heap, pace.tokens_per_chunk, self._chunk_gap_ns
        jitter, watch_kv = pace.jitter, pace.kv_tok > 0
        chunks = 0
        while heap and heap[0][0] <= now_ns:
            due_ns, seq, job = heap[0]
            if job.seq != seq:
                heappop(heap)
                continue
            chunks += 1
            count = job.output_tok - job.sent_tok
            if job.sent_tok == 0:
                job.first_due_ns = due_ns
            job.last_due_ns = due_ns
            if count > chunk_tok:
                count = chunk_tok
                job.sent_tok += count
                step_ns = self._jittered(gap_ns) if jitter else gap_ns
                heapreplace(heap, (due_ns + step_ns, seq, job))
                if watch_kv:
                    self._grow(job, due_ns)
            else:
                heappop(heap)
                job.sent_tok += count
                self._finish(job, due_ns)
            deliver(job, count, due_ns)
        return chunks

    def _advance_steps(self, now_ns: int, step_a_ns: int, deliver: Deliver) -> int:
        chunks = 0
        while True:
            at_ns = self.next_due_ns()
            if at_ns is None or at_ns > now_ns:
                return chunks
            self._join_batch(at_ns)
            produced = [(job, self._take_step(job, at_ns)) for job in list(self._batch)]
            self.steps += 1
            length_ns = step_a_ns + self.pace.step_b_ns * len(self._batch)
            self._step_ns = at_ns + max(1, self._jittered(length_ns))
            for job, count in produced:
                if count:
                    chunks += 1
                    deliver(job, count, at_ns)

    def _join_batch(self, at_ns: int) -> None:
        heap = self._heap
        while heap and (heap[0][0] <= at_ns or heap[0][1] != heap[0][2].seq):
            _, seq, job = heappop(heap)
            if job.seq == seq:
                self._batch[job] = None

    def _take_step(self, job: Job, at_ns: int) -> int:
        if job not in self._batch:  # an earlier stream's growth evicted it in this very step
            return 0
        count = min(job.output_tok - job.sent_tok, self.pace.tokens_per_chunk)
        if job.sent_tok == 0:
            job.first_due_ns = at_ns
        job.last_due_ns = at_ns
        job.sent_tok += count
        if job.sent_tok >= job.output_tok:
            self._finish(job, at_ns)
        elif self.pace.kv_tok:
            self._grow(job, at_ns)
        return count

    def _jittered(self, length_ns: int) -> int:
        if not self.pace.jitter:
            return length_ns
        return int(length_ns * (1.0 + self.pace.jitter * (2.0 * self._rng.random() - 1.0)))

    def _admit(self, floor_ns: int) -> None:
        """Start waiting jobs in order while they fit; none starts before `floor_ns`."""
        while self.waiting:
            job = self.waiting[0]
            if self.pace.slots and not self._free_since:
                return
            need_tok = self._blocks(job.prompt_tok + job.sent_tok + 1)
            if self.pace.kv_tok and self.running and self.kv_used_tok + need_tok > self.pace.kv_tok:
                return
            self.waiting.popleft()
            slot_ns = self._free_since.popleft() if self.pace.slots else 0
            self._start(job, max(job.arrived_ns, slot_ns, floor_ns, self._busy_until_ns), need_tok)

    def _start(self, job: Job, at_ns: int, need_tok: int) -> None:
        if job.started_ns < 0:
            job.started_ns = at_ns
        # A preempted job lost its KV: prompt and what it wrote are computed again.
        todo_tok = job.prompt_tok + job.sent_tok if job.preemptions else job.prompt_tok
        if not job.preemptions:
            todo_tok -= job.cached_tok
        due_ns = at_ns + self.pace.ttft_ns
        if self.pace.prefill_tok_per_s:
            due_ns += round(todo_tok * 1e9 / self.pace.prefill_tok_per_s)
        self._seq += 1
        job.seq = self._seq
        job.state = "running"
        job.kv_tok = need_tok
        self.kv_used_tok += need_tok
        self.running[job] = None
        heappush(self._heap, (due_ns, job.seq, job))

    def _finish(self, job: Job, at_ns: int) -> None:
        job.state = "done"
        self._release(job, at_ns)
        self._admit(at_ns)

    def _release(self, job: Job, at_ns: int) -> None:
        job.seq = _STALE
        self._batch.pop(job, None)
        del self.running[job]
        self.kv_used_tok -= job.kv_tok
        job.kv_tok = 0
        if self.pace.slots:
            self._free_since.append(at_ns)

    def _evict(self, job: Job, at_ns: int) -> None:
        self._release(job, at_ns)
        job.state = "waiting"
        job.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(job)

    def _grow(self, job: Job, at_ns: int) -> None:
        """Give the job the block its next token needs, evicting the youngest when there is none."""
        need_tok = self._blocks(job.prompt_tok + job.sent_tok + 1)
        if need_tok == job.kv_tok:
            return
        self.kv_used_tok += need_tok - job.kv_tok
        job.kv_tok = need_tok
        while self.kv_used_tok > self.pace.kv_tok and len(self.running) > 1:
            self._evict(next(reversed(self.running)), at_ns)

    def _blocks(self, tokens: int) -> int:
        """Round up to whole KV blocks, in tokens."""
        block = self.pace.block_tok
        return -(-tokens // block) * block

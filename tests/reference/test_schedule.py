from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.reference.schedule import Job, Pace, Scheduler

MS = 1_000_000
PACE = Pace(ttft_ns=50 * MS, itl_ns=20 * MS)


@dataclass
class Log:
    """Every chunk of a run, and the jobs that made them."""

    rows: list[tuple[Job, int, int]] = field(default_factory=list)

    def deliver(self, job: Job, tokens: int, due_ns: int) -> None:
        self.rows.append((job, tokens, due_ns))

    def times_ms(self, job: Job) -> list[float]:
        return [due / MS for other, _, due in self.rows if other is job]


def drain(scheduler: Scheduler, log: Log, until_ns: int | None = None) -> None:
    """Run in virtual time until nothing is due (or up to `until_ns`)."""
    while (due := scheduler.next_due_ns()) is not None and (until_ns is None or due <= until_ns):
        scheduler.advance(due, log.deliver)


def test_one_stream_follows_the_pace_exactly():
    scheduler, log = Scheduler(PACE), Log()
    job = Job(7 * MS, prompt_tok=10, output_tok=4)
    scheduler.submit(job)
    drain(scheduler, log)
    assert log.times_ms(job) == [57, 77, 97, 117]
    assert (job.started_ns, job.first_due_ns, job.last_due_ns) == (7 * MS, 57 * MS, 117 * MS)


def test_a_late_caller_gets_the_same_schedule():
    scheduler, log = Scheduler(PACE), Log()
    job = Job(0, 10, 4)
    scheduler.submit(job)
    scheduler.advance(10**12, log.deliver)
    assert log.times_ms(job) == [50, 70, 90, 110]


def test_prefill_counts_uncached_tokens_only():
    pace = replace(PACE, prefill_tok_per_s=1000)
    scheduler, log = Scheduler(pace), Log()
    job = Job(0, prompt_tok=300, output_tok=1, cached_tok=100)
    scheduler.submit(job)
    drain(scheduler, log)
    assert log.times_ms(job) == [250]


def test_slots_queue_in_order_of_arrival():
    scheduler, log = Scheduler(replace(PACE, slots=1)), Log()
    jobs = [Job(i * MS, 1, 2) for i in range(3)]
    for job in jobs:
        scheduler.submit(job)
    assert len(scheduler.waiting) == 2
    drain(scheduler, log)
    assert [log.times_ms(job) for job in jobs] == [[50, 70], [120, 140], [190, 210]]
    assert [job.started_ns / MS for job in jobs] == [0, 70, 140]


def test_a_slot_freed_in_the_past_starts_the_next_job_in_the_past():
    scheduler, log = Scheduler(replace(PACE, slots=1)), Log()
    first, second = Job(0, 1, 1), Job(60 * MS, 1, 1)
    scheduler.submit(first)
    scheduler.advance(500 * MS, log.deliver)
    scheduler.submit(second)
    assert second.started_ns == 60 * MS


def test_chunks_of_several_tokens_keep_the_time_per_token():
    scheduler, log = Scheduler(replace(PACE, tokens_per_chunk=4)), Log()
    job = Job(0, 1, 10)
    scheduler.submit(job)
    drain(scheduler, log)
    assert [(tokens, due / MS) for _, tokens, due in log.rows] == [(4, 50), (4, 130), (2, 210)]


def test_steps_are_common_and_last_longer_with_more_streams():
    pace = replace(PACE, step_a_ns=10 * MS, step_b_ns=5 * MS)
    scheduler, log = Scheduler(pace), Log()
    first, second = Job(0, 1, 4), Job(12 * MS, 1, 3)
    scheduler.submit(first)
    scheduler.submit(second)
    drain(scheduler, log)
    # Alone 15 ms a step: 50, 65. The second joins at 65; with two a step lasts 20.
    assert log.times_ms(first) == [50, 65, 85, 105]
    assert log.times_ms(second) == [65, 85, 105]


def test_a_stall_moves_all_that_is_still_due():
    scheduler, log = Scheduler(PACE), Log()
    early, late = Job(0, 1, 3), Job(60 * MS, 1, 1)
    scheduler.submit(early)
    drain(scheduler, log, 55 * MS)
    scheduler.stall(55 * MS, 100 * MS)
    scheduler.submit(late)
    drain(scheduler, log)
    assert log.times_ms(early) == [50, 170, 190]
    assert log.times_ms(late) == [205]


def test_the_pool_admits_by_blocks_and_preempts_the_youngest():
    pace = replace(PACE, kv_tok=64, block_tok=16)
    scheduler, log = Scheduler(pace), Log()
    old, young = Job(0, prompt_tok=20, output_tok=20), Job(0, prompt_tok=20, output_tok=20)
    third = Job(0, prompt_tok=20, output_tok=1)
    for job in (old, young, third):
        scheduler.submit(job)
    assert list(scheduler.running) == [old, young]
    drain(scheduler, log)
    # The old one's third block costs the young one its place; later the young one's, the third's.
    assert [job.preemptions for job in (old, young, third)] == [0, 1, 1]
    assert scheduler.preemptions == 2
    assert [job.sent_tok for job in (old, young, third)] == [20, 20, 1]
    assert third.first_due_ns > young.started_ns
    assert scheduler.kv_used_tok == 0


def test_preempt_sends_the_youngest_back_to_the_head_of_the_queue():
    scheduler, log = Scheduler(replace(PACE, slots=2)), Log()
    jobs = [Job(0, 1, 5) for _ in range(3)]
    for job in jobs:
        scheduler.submit(job)
    drain(scheduler, log, 60 * MS)
    assert scheduler.preempt(60 * MS, 1) == 1
    drain(scheduler, log)
    assert [job.preemptions for job in jobs] == [0, 1, 0]
    # It starts again at once in the slot that it left, and pays for its prefill again.
    assert log.times_ms(jobs[1]) == [50, 110, 130, 150, 170]


def test_cancelling_frees_the_slot():
    scheduler, log = Scheduler(replace(PACE, slots=1)), Log()
    first, second, third = (Job(0, 1, 5) for _ in range(3))
    for job in (first, second, third):
        scheduler.submit(job)
    scheduler.cancel(second, 1 * MS)
    scheduler.cancel(first, 10 * MS)
    drain(scheduler, log)
    assert log.times_ms(third) == [60, 80, 100, 120, 140]
    assert len(log.rows) == 5


def test_jitter_is_repeatable_and_bounded():
    def times(seed: int) -> list[float]:
        scheduler, log = Scheduler(replace(PACE, jitter=0.5, seed=seed)), Log()
        job = Job(0, 1, 200)
        scheduler.submit(job)
        drain(scheduler, log)
        return log.times_ms(job)

    assert times(1) == times(1)
    assert times(1) != times(2)
    gaps = [b - a for a, b in itertools.pairwise(times(1))]
    assert min(gaps) >= 10
    assert max(gaps) <= 30
    assert sum(gaps) / len(gaps) == pytest.approx(20, rel=0.1)


PACES = st.builds(
    Pace,
    ttft_ns=st.integers(0, 50 * MS),
    itl_ns=st.integers(1, 20 * MS),
    jitter=st.sampled_from([0.0, 0.3]),
    slots=st.integers(0, 4),
    tokens_per_chunk=st.integers(1, 3),
    prefill_tok_per_s=st.sampled_from([0.0, 5000.0]),
    kv_tok=st.sampled_from([0, 96, 512]),
    step_a_ns=st.sampled_from([None, None, 5 * MS]),
    step_b_ns=st.integers(0, MS),
)
LOADS = st.lists(
    st.tuples(st.integers(0, 30 * MS), st.integers(1, 40), st.integers(1, 30)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(PACES, LOADS)
def test_whatever_the_pace_the_books_balance(pace: Pace, load: list[tuple[int, int, int]]):
    scheduler, log = Scheduler(pace), Log()
    arrived_ns, jobs = 0, []
    for gap_ns, prompt_tok, output_tok in load:
        arrived_ns += gap_ns
        drain(scheduler, log, arrived_ns)
        job = Job(arrived_ns, prompt_tok, output_tok)
        jobs.append(job)
        scheduler.submit(job)
        assert not pace.slots or len(scheduler.running) <= pace.slots
    drain(scheduler, log)
    assert not scheduler.running
    assert not scheduler.waiting
    assert scheduler.kv_used_tok == 0
    dues = [due for _, _, due in log.rows]
    assert dues == sorted(dues)
    for job in jobs:
        mine = [(tokens, due) for other, tokens, due in log.rows if other is job]
        assert sum(tokens for tokens, _ in mine) == job.output_tok
        assert job.started_ns >= job.arrived_ns
        assert mine[0][1] == job.first_due_ns >= job.started_ns + pace.ttft_ns
    starts = [job.started_ns for job in jobs]
    assert starts == sorted(starts)
    _little(jobs, log)


def _little(jobs: list[Job], log: Log) -> None:
    """L = λ W over the whole run: the area under "in system" is the sum of the times in it."""
    steps = [(job.arrived_ns, 1) for job in jobs]
    seen: dict[int, int] = {}
    for job, tokens, due_ns in log.rows:
        seen[id(job)] = seen.get(id(job), 0) + tokens
        if seen[id(job)] == job.output_tok:
            steps.append((due_ns, -1))
    area, inside, last_ns = 0, 0, 0
    for at_ns, change in sorted(steps):
        area += inside * (at_ns - last_ns)
        inside, last_ns = inside + change, at_ns
    assert inside == 0
    assert area == sum(job.last_due_ns - job.arrived_ns for job in jobs)


def test_a_closed_loop_obeys_littles_law_on_its_queue():
    """16 users, 4 slots, service 50 + 9·20 = 230 ms: X = 4 ÷ 0.23 s and W = 16 ÷ X."""
    scheduler = Scheduler(replace(PACE, slots=4))
    ended: list[tuple[int, int]] = []

    def deliver(job: Job, _tokens: int, due_ns: int) -> None:
        if job.sent_tok == job.output_tok:
            ended.append((job.arrived_ns, due_ns))
            scheduler.submit(Job(due_ns, 1, 10))

    for _ in range(16):
        scheduler.submit(Job(0, 1, 10))
    while len(ended) < 400:
        due = scheduler.next_due_ns()
        assert due is not None
        scheduler.advance(due, deliver)
    steady = ended[100:]
    rate_per_s = (len(steady) - 4) / ((steady[-1][1] - steady[0][1]) / 1e9)
    wait_s = sum(end - begun for begun, end in steady) / len(steady) / 1e9
    assert rate_per_s == pytest.approx(4 / 0.23, rel=0.01)
    assert rate_per_s * wait_s == pytest.approx(16, rel=0.01)

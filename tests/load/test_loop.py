"""A closed loop in one process, taken apart, and put together again."""

from __future__ import annotations

from collections import deque

import msgspec
import pytest

from concbench.load.generator import LoadPlan, resolve
from concbench.load.loop import BACK_OFF_NS, ClosedLoop, Ended, News, tell
from concbench.load.procs import run_split
from concbench.load.script import Done, Outgoing
from concbench.load.share import split
from tests.load.server import serving
from tests.load.test_generator import REQUEST, stream_three
from tests.load.test_procs import bodies


def loop_of(requests: int, workers: int, step_ns: int = 1) -> tuple[ClosedLoop, News]:
    left = deque(Outgoing(REQUEST.payload, 3, prompt=k) for k in range(requests))
    news = News()
    take = lambda: left.popleft() if left else None  # noqa: E731
    return ClosedLoop(workers, step_ns, take, lambda: list(left), news), news


def test_a_worker_asks_again_at_once_and_waits_after_a_failure() -> None:
    loop, news = loop_of(4, 1)
    (worker,) = loop.scripts()
    first = worker.next(None)
    assert first is not None
    assert first.due_ns == 0
    well = worker.next(Done(0, loop.start_ns + 10**12, "complete", 9))
    assert well is not None
    assert well.due_ns is None
    at_ns = loop.start_ns + 5_000
    backing_off = worker.next(Done(1, at_ns, "reset", 0))
    assert backing_off is not None
    assert backing_off.due_ns == 5_000 + BACK_OFF_NS
    assert [end.took_ns < 0 for end in news.ends] == [False, True]
    assert [end.whole for end in news.ends] == [False, True]
    assert len(news.issues_ns) == 3


def test_an_answer_too_quick_to_have_been_decoded_is_a_refusal() -> None:
    loop, news = loop_of(2, 1, step_ns=10**9)
    (worker,) = loop.scripts()
    worker.next(None)
    again = worker.next(Done(0, loop.start_ns + 1_000_000, "complete", 1))
    assert again is not None
    assert again.due_ns is not None
    assert news.ends[0].took_ns == -1


def test_a_worker_that_finds_nothing_ends_and_says_so() -> None:
    loop, _ = loop_of(1, 2)
    one, two = loop.scripts()
    assert one.next(None) is not None
    assert not loop.exhausted
    assert two.next(None) is None
    assert loop.exhausted


def test_each_share_gets_a_first_request_a_worker_and_its_part_of_the_others() -> None:
    loop, _ = loop_of(11, 3)
    plan = LoadPlan(peer=resolve("127.0.0.1", 9, None), scripts=loop.scripts(), loop=loop)
    jobs = split(plan, 2)
    assert [job.workers for job in jobs] == [2, 1]
    assert [[r.prompt for r in job.requests] for job in jobs] == [
        [0, 2, 3, 5, 7, 9],
        [1, 4, 6, 8, 10],
    ]
    assert len(split(plan, 8)) == 3


def test_news_survive_the_wire_and_are_told_with_the_workers_own_number_and_our_clock() -> None:
    loop, heard = loop_of(1, 4)
    told = News([1_000], [Ended(1, Done(7, 2_000, "complete", 3), 900, True)], True)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=News)
    tell(loop, again, first_worker=2, offset_ns=500)
    assert heard.issues_ns == [500]
    assert heard.ends == [Ended(3, Done(7, 1_500, "complete", 3), 900, True)]
    assert loop.exhausted


@pytest.mark.parametrize("procs", [1, 2])
def test_a_loop_over_processes_sends_every_prompt_once_and_tells_all(procs: int) -> None:
    loop, news = loop_of(12, 3)
    ticks: list[int] = []
    with serving(stream_three) as address:
        plan = LoadPlan(
            peer=resolve(*address, None),
            scripts=loop.scripts(),
            loop=loop,
            stop_when=lambda progress: ticks.append(progress.ended) is not None,
        )
        raw = run_split(plan, procs)
    assert sorted(r.prompt for r in raw.requests) == list(range(12))
    assert {r.ending for r in raw.requests} == {"complete"}
    assert {r.worker for r in raw.requests} <= set(range(3))
    # What came after the last tick is not told: the loop is over by then.
    assert len(news.ends) <= 12
    assert sorted(bodies(raw)) == list(range(12))

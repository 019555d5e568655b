import threading

from concbench.clock import now_ns
from concbench.observe.ticker import Ticker, Ticket

from .server import until

MS = 1_000_000


def test_work_comes_at_absolute_times():
    at, enough = [], threading.Event()

    def work(asked: bool) -> None:
        at.append(now_ns())
        if len(at) == 20:
            enough.set()

    ticker = Ticker("t", 20 * MS, work)
    ticker.start()
    assert enough.wait(10)
    ticker.end()
    ticker.join()
    # Relative pacing would add the work's own time at every tick.
    off = [(stamp - at[0]) % (20 * MS) for stamp in at]
    assert sum(min(o, 20 * MS - o) < 4 * MS for o in off) > len(off) / 2


def test_slow_work_lets_ticks_go_by():
    missed, calls = [], []
    release = threading.Event()

    def work(asked: bool) -> None:
        calls.append(now_ns())
        if len(calls) == 2:
            release.wait(10)

    ticker = Ticker("t", 5 * MS, work, missed.append)
    ticker.start()
    until(lambda: len(calls) == 2, "the second call")
    stuck_ns = now_ns()
    until(lambda: now_ns() - stuck_ns > 60 * MS, "some ticks")
    assert len(calls) == 2
    release.set()
    until(lambda: sum(missed) > 8, "the missed ticks")
    ticker.end()
    ticker.join()


def test_a_poke_is_answered_once_all_are_done():
    asked, done = [], threading.Event()
    tickers = [Ticker("t", 10**12, asked.append) for _ in range(3)]
    for ticker in tickers:
        ticker.start()
    until(lambda: len(asked) == 3, "the first calls")
    ticket = Ticket(3, done.set)
    for ticker in tickers:
        ticker.poke(ticket)
    assert done.wait(10)
    assert asked == [False] * 3 + [True] * 3
    for ticker in tickers:
        ticker.end()
        ticker.join()


def test_a_ticket_that_nobody_holds_is_done():
    done = threading.Event()
    Ticket(0, done.set)
    assert done.is_set()

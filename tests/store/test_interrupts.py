"""A signal during a query is an interrupt, whatever the database makes of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from concbench.store.interrupts import QUERY_INTERRUPTED, interrupts

# One thread, as studies have it: with several the database now and then looks for no signal.
LONG_QUERY = """
import os, signal, threading
import duckdb
from concbench.store.interrupts import interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)
connection = duckdb.connect(config={"threads": 1})
threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    with interrupts():
        connection.execute(
            "select sum(a.range * b.range) from range(10000000) a, range(1000000) b"
        ).fetchall()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""


def test_a_signal_during_a_query_interrupts() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONG_QUERY], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout == "interrupted\n", done.stderr


def test_the_databases_own_words_are_an_interrupt_and_other_errors_stay_what_they_are() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts():
        raise RuntimeError(QUERY_INTERRUPTED)
    with pytest.raises(RuntimeError, match="else"), interrupts():
        raise RuntimeError("something else")

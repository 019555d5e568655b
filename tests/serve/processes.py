"""Waiting for processes to end; a zombie that nobody reaps has ended."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from concbench.clock import now_ns, sleep_s
from concbench.serve.family import has_life


def all_end(processes: Sequence[psutil.Process], timeout_s: float = 10.0) -> bool:
    end_ns = now_ns() + int(timeout_s * 1e9)
    while any(map(_lives, processes)):
        if now_ns() > end_ns:
            return False
        sleep_s(0.01)
    return True


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and has_life(process)
    except psutil.NoSuchProcess:
        return False

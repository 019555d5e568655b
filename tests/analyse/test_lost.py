"""A load generator that lost a part of itself, and how far apart a burst's requests left."""

from __future__ import annotations

import msgspec
import pytest

from concbench.analyse.cell import cell_result
from concbench.analyse.instrument import start_spread_ms
from concbench.domain import Round
from tests.analyse.simulate import MS, as_round, steady_stream


def burst(sent_ms: tuple[float, ...], lost: int = 0) -> Round:
    round_ = as_round([steady_stream(50 * MS, 10 * MS, 60) for _ in sent_ms])
    records = [
        msgspec.structs.replace(record, sent_ns=record.due_ns + int(ms * MS))
        for record, ms in zip(round_.requests, sent_ms, strict=True)
    ]
    records[:lost] = [
        msgspec.structs.replace(r, outcome="incomplete", sent_ns=None, notes=("worker_lost",))
        for r in records[:lost]
    ]
    return msgspec.structs.replace(round_, requests=records)


def test_lost_requests_are_a_warning_that_counts_them() -> None:
    _, doubts = cell_result([burst((0, 0, 0, 0), lost=2)])
    [found] = [doubt for doubt in doubts if doubt.code == "worker_lost"]
    assert found.severity == "warning"
    assert found.evidence == {"requests": 2, "of": 4}
    _, doubts = cell_result([burst((0, 0))])
    assert "worker_lost" not in {doubt.code for doubt in doubts}


def test_the_widest_start_of_the_bursts_is_told() -> None:
    assert start_spread_ms([burst((0, 3)), burst((1, 8, 2))]) == pytest.approx(7)
    assert start_spread_ms([burst((5,))]) == 0
    closed = burst((0, 9))
    closed = msgspec.structs.replace(
        closed, workload=msgspec.structs.replace(closed.workload, arrival="closed")
    )
    assert start_spread_ms([closed]) is None
    assert start_spread_ms([]) is None

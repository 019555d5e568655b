"""Stamps as columns: decoded, put on one clock, grouped by request."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from concbench.load.log import NO_STAMP, ReadLog
from concbench.measure.stamped import grouped, to_monotonic

OFFSET = 1_700_000_000_000_000_000
S = 1_000_000_000


def stamp(real_ns: int) -> bytes:
    return struct.pack("=qq", *divmod(real_ns, S))


def test_the_offset_is_interpolated_between_samples_and_held_outside() -> None:
    offsets = [(10 * S, OFFSET), (20 * S, OFFSET + 1000)]
    kernel = stamp(5 * S + OFFSET) + stamp(15 * S + OFFSET + 500) + stamp(30 * S + OFFSET + 1000)
    assert to_monotonic(kernel, offsets).tolist() == [5 * S, 15 * S, 30 * S]


def test_a_read_without_a_stamp_is_zero() -> None:
    found = to_monotonic(NO_STAMP + stamp(OFFSET + 7), [(0, OFFSET)])
    assert found.tolist() == [0, 7]


@given(
    st.lists(st.integers(0, 3600 * S), min_size=1, max_size=30),
    st.integers(-500_000, 500_000),
)
def test_no_nanosecond_is_lost_where_the_clocks_drift_evenly(
    times: list[int], drift_ns: int
) -> None:
    """Stamps are 19 digits long: a float on the way would cost a microsecond."""
    length = 3600 * S
    offsets = [(0, OFFSET), (length, OFFSET + drift_ns)]
    real = [t + OFFSET + round(drift_ns * t / length) for t in times]
    found = to_monotonic(b"".join(map(stamp, real)), offsets)
    assert np.abs(found - np.array(times)).max() <= 1


def log_of(rows: list[tuple[int, int]]) -> ReadLog:
    log = ReadLog()
    for request, user_ns in rows:
        log.request.append(request)
        log.user_ns.append(user_ns)
        log.size.append(1)
        log.kernel += stamp(OFFSET + user_ns - 3) if user_ns % 2 else NO_STAMP
    return log


def test_reads_are_grouped_by_request_in_their_order() -> None:
    found = grouped(log_of([(2, 11), (0, 20), (2, 31), (0, 41)]), [(0, OFFSET)], 3)
    assert [found.of(k)[1].tolist() for k in range(3)] == [[20, 41], [], [11, 31]]
    assert [found.of(k)[0].tolist() for k in range(3)] == [[0, 38], [], [8, 28]]


def test_nothing_read_is_nothing_found() -> None:
    found = grouped(ReadLog(), [(0, OFFSET)], 2)
    assert [found.of(k)[0].size for k in range(2)] == [0, 0]


def test_another_hosts_clock_is_a_line_in_time() -> None:
    clock = ((1000, 500), (2000, 600))
    found = grouped(log_of([(0, 1001), (0, 1500), (0, 2001)]), [(0, OFFSET)], 1, clock)
    kernel_ns, user_ns = found.of(0)
    assert user_ns.tolist() == [501, 950, 1401]
    assert kernel_ns.tolist() == [498, 0, 1398]

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from concbench.analyse.cell import empty_cell
from concbench.analyse.evidence import gather
from concbench.analyse.hostview import (
    foreign_users,
    other_gpu_users,
    slow_rounds,
    throttled,
)
from concbench.domain import ServerSample

from .simulate import Reply, S, as_round


def row(at_s, name, value, labels="gpu=0", source="gpu"):
    at = int(at_s * S)
    return ServerSample(
        sent_ns=at - 1, received_ns=at, source=source, name=name, labels=labels, value=value
    )


def clocks(*mhz, util=0.9):
    rows = []
    for second, clock in enumerate(mhz):
        rows += [row(second, "gpu_clock_mhz", clock), row(second, "gpu_util", util)]
    return rows


def rounds(*samples):
    reply = Reply(times=[S, 2 * S, 60 * S], end=60 * S)
    return [
        msgspec.structs.replace(as_round([reply], index=index, end_ns=60 * S), samples=rows)
        for index, rows in enumerate(samples)
    ]


def test_q03_clocks_that_drop_in_the_middle_of_a_run():
    fell = clocks(*[2223] * 10, *[890] * 10, *[695] * 10)
    steady = clocks(*[2223, 2200, 2230] * 10)
    found = slow_rounds(rounds(steady, fell, steady))
    assert [(f["round"], f["device"]) for f in found] == [("r1", "gpu 0")]
    assert found[0]["lowest_mhz"] == 695
    assert found[0]["usual_mhz"] == 2223


def test_a_run_that_was_slow_throughout():
    found = slow_rounds(rounds(clocks(*[2000] * 9), clocks(*[1700] * 9), clocks(*[1990] * 9)))
    assert [f["round"] for f in found] == ["r1"]
    assert found[0]["median_mhz"] == 1700


def test_small_changes_and_idle_clocks_are_no_throttling():
    idle = [row(40, "gpu_clock_mhz", 345), row(40, "gpu_util", 0.0)] * 5
    assert slow_rounds(rounds(clocks(*[2000, 1850] * 9) + idle, clocks(*[1900] * 9))) == []
    outside = [row(at, "gpu_clock_mhz", 300) for at in (70, 71, 72)]
    assert slow_rounds(rounds(clocks(*[2000] * 9) + outside)) == []
    assert slow_rounds(rounds(clocks(*[2000] * 9, 900))) == []
    assert slow_rounds(rounds([])) == []


def test_reasons_count_by_themselves_but_a_power_limit_does_not():
    hot = [*clocks(*[2000] * 5), row(2, "gpu_throttle_reasons", float(0x40 | 0x4))]
    capped = [*clocks(*[2000] * 5), row(2, "gpu_throttle_reasons", float(0x4 | 0x1))]
    found = slow_rounds(rounds(hot, capped))
    assert [(f["round"], f["reasons"]) for f in found] == [("r0", ["hw_thermal", "power_cap"])]
    only = [row(2, "gpu_throttle_reasons", 128.0)]
    assert slow_rounds(rounds(only))[0]["reasons"] == ["power_brake"]


def test_a_cpu_that_counts_its_own_throttling():
    counts = [row(at, "cpu_throttle_count", value, "", "host") for at, value in ((1, 7), (9, 12))]
    found = slow_rounds(rounds(counts, [row(1, "cpu_throttle_count", 7, "", "host")] * 2))
    assert found == [{"round": "r0", "device": "cpu", "throttled_times": 5}]


def test_others_on_the_lanes_gpu():
    def user(at, labels, used):
        return row(at, "gpu_user_bytes", used, labels)

    mine = row(1, "gpu_own_bytes", 1e9)
    there = [user(at, "gpu=0,pid=77,name=python", 1e9 * at) for at in (1, 2, 3)]
    elsewhere = [user(at, "gpu=1,pid=78,name=python", 1e9) for at in (1, 2, 3)]
    once = [user(1, "gpu=0,pid=79,name=vllm", 1e9)]
    found = foreign_users(rounds([mine, *there, *elsewhere, *once]))
    assert found == [{"gpu": "0", "pid": 77, "name": "python", "most_bytes": 3_000_000_000}]
    # Where none of our own is seen, nobody can be told from the engine itself.
    assert foreign_users(rounds(there)) == []


def test_doubts_name_their_evidence():
    mine = row(1, "gpu_own_bytes", 1e9)
    there = [row(at, "gpu_user_bytes", 5e8, "gpu=0,pid=77,name=trainer") for at in (1, 2)]
    hot = clocks(*[2000] * 6, *[900] * 4)
    seen = gather(rounds([mine, *there, *hot]))
    result = empty_cell(seen.cell, "measured")
    (slow,) = throttled(seen, result)
    assert (slow.code, slow.severity) == ("throttled", "warning")
    assert "900 MHz" in slow.message
    assert slow.evidence["slow"][0]["slow_share"] == 0.4
    (users,) = other_gpu_users(seen, result)
    assert (users.code, users.severity, users.evidence["users"][0]["pid"]) == (
        "other_gpu_users",
        "warning",
        77,
    )
    quiet = gather(rounds([]))
    assert not list(throttled(quiet, result)) + list(other_gpu_users(quiet, result))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["gpu_clock_mhz", "gpu_util", "gpu_throttle_reasons", "gpu_user_bytes"]
            ),
            st.floats(0, 1e4) | st.none(),
            st.sampled_from(["gpu=0", "gpu=1,pid=3,name=x", "", "gpu="]),
        ),
        max_size=20,
    )
)
def test_any_rows_are_judged(found):
    each = rounds([row(at, *item) for at, item in enumerate(found)])
    slow_rounds(each)
    foreign_users(each)

from hypothesis import given
from hypothesis import strategies as st

from concbench.analyse.logwindows import log_windows, whole_windows
from concbench.domain import ServerSample

S = 1_000_000_000


def report(at_s, running, rate, labels=""):
    def row(name, value):
        return ServerSample(
            sent_ns=at_s * S - S // 4,
            received_ns=at_s * S,
            source="log",
            name=name,
            labels=labels,
            value=value,
        )

    return [row("log_output_tok_per_s", rate), row("log_running", running)]


def reports(*pairs, labels=""):
    return [r for at, (n, rate) in enumerate(pairs) for r in report(10 * at, n, rate, labels)]


def rates(samples, n):
    return [window.tok_per_s for window in whole_windows(samples, n)]


def test_a_short_run_has_no_whole_window():
    # M08: two reports around a short burst, 0.2 and then 24.0 tok/s: neither is a rate.
    assert rates(reports((1, 0.2), (1, 24.0)), 1) == []
    assert rates(reports((8, 3.3), (8, 24.0), (7, 23.2)), 8) == []


def test_first_and_last_are_dropped_and_three_are_enough():
    seen = reports((0, 0.0), (8, 3.3), (8, 24.0), (8, 24.2), (8, 23.8), (8, 20.0), (0, 4.0))
    assert rates(seen, 8) == [24.0, 24.2, 23.8]
    assert rates(seen[:-6], 8) == []


def test_other_levels_and_interruptions_do_not_count():
    runs = [(8, 1.0), (8, 24.0), (8, 24.0), (8, 9.0)]
    assert rates(reports(*runs, (7, 20.0), *runs), 8) == [24.0] * 4
    assert rates(reports(*runs, (7, 20.0), *runs), 7) == []
    assert rates([], 8) == []


def test_engines_that_report_apart_are_added_up():
    both = [
        row
        for at in range(5)
        for row in report(10 * at, 4, 10.0, "key=0") + report(10 * at + 1, 4, 12.0, "key=1")
    ]
    assert rates(both, 8) == [22.0] * 3
    # One of them stayed silent once: that report is left out.
    assert len(log_windows(both[:12] + both[14:])) == 4


def test_an_aggregated_line_replaces_its_engines():
    seen = reports(*[(8, 30.0)] * 5, labels="key=all") + reports(*[(4, 15.0)] * 5, labels="key=0")
    assert rates(seen, 8) == [30.0] * 3


def test_several_reports_in_one_chunk_stay_apart():
    chunk = [row for rate in (1.0, 20.0, 21.0, 22.0, 2.0) for row in report(0, 8, rate)]
    assert rates(chunk, 8) == [20.0, 21.0, 22.0]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=30), st.integers(0, 3))
def test_windows_are_reports_at_n_and_never_fewer_than_three(pairs, n):
    found = whole_windows(reports(*pairs), n)
    assert len(found) == 0 or len(found) >= 3
    assert all(window.running == n for window in found)
    assert len(found) <= max(0, sum(count == n for count, _ in pairs) - 2)

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from concbench.observe.hostload import HostLoad, plain, process_table

from .server import until


def stat(pid, parent, session, ticks, name="worker (x) y", born=5):
    fields = [0] * 40
    fields[1], fields[3], fields[11], fields[19], fields[21] = parent, session, ticks, born, 7
    rest = " ".join(str(f) for f in fields[1:])
    return f"{pid} ({name}) S {rest}\n".encode()


def table(root, rows):
    for row in rows:
        pid = row.split(b" ")[0].decode()
        (root / pid).mkdir(exist_ok=True)
        (root / pid / "stat").write_bytes(row)


def by_name(readings, name):
    return {labels: value for found, labels, value in readings if found == name}


def test_the_table_of_this_machine():
    me = {process.pid: process for process in process_table()}[os.getpid()]
    assert me.parent == os.getppid()
    assert me.session == os.getsid(0)
    assert me.rss_bytes > 1 << 20


def test_whose_cpu_it_is(tmp_path):
    (tmp_path / "self").mkdir()
    ticks = os.sysconf("SC_CLK_TCK")

    def rows(used):
        return [
            stat(10, 1, 10, used),  # the client
            stat(20, 10, 20, 2 * used),  # the engine: the client's child in its own session
            stat(21, 1, 20, 3 * used),  # left its parent, kept the session
            stat(30, 1, 30, 50 * used, name="a,b=c d"),  # somebody else
            stat(2, 0, 0, 0, name="kthreadd"),
            stat(40, 2, 0, 90 * used, name="kworker"),
        ]

    table(tmp_path, rows(0))
    load = HostLoad({"client": [10], "engine": [20]}, tmp_path)
    first = load.read()
    assert by_name(first, "memory_group_bytes")["group=engine"] == 14 * os.sysconf("SC_PAGE_SIZE")
    assert not by_name(first, "cpu_group_cores")
    assert load.own_pids == {10, 20, 21}
    table(tmp_path, rows(ticks))
    load._next_ns = 0
    found = load.read()
    cores = by_name(found, "cpu_group_cores")
    assert round(cores["group=engine"] / cores["group=client"], 6) == 5
    foreign = by_name(found, "cpu_foreign_cores_by")
    assert list(foreign) == ["pid=30,name=a_b_c_d"]
    assert by_name(found, "cpu_foreign_cores")[""] == foreign["pid=30,name=a_b_c_d"]


def test_a_number_used_again_is_another_process(tmp_path):
    table(tmp_path, [stat(30, 1, 30, 10_000, born=5)])
    load = HostLoad({}, tmp_path)
    load.read()
    table(tmp_path, [stat(30, 1, 30, 0, born=9)])
    load._next_ns = 0
    assert by_name(load.read(), "cpu_foreign_cores") == {"": 0.0}


def test_a_child_that_burns_is_seen_and_totals_are_there():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        load = HostLoad({"burner": [child.pid]})
        load.read()

        def burning() -> bool:
            found = load.read()
            return by_name(found, "cpu_group_cores").get("group=burner", 0) > 0.05

        until(burning, "the child's CPU")
        names = {name for name, _, _ in load.read()}
        assert {"cpu_busy_cores", "memory_available_bytes", "swap_used_bytes"} <= names
        child.kill()


def test_without_a_process_table_there_are_totals(tmp_path):
    load = HostLoad({"engine": [1]}, tmp_path / "none")
    assert by_name(load.read(), "cpu_cores")
    assert load.own_pids == frozenset()


@given(st.text())
def test_names_fit_into_labels(name):
    assert not set(plain(name)) & set(",= \n\t")

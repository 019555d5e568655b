import math
import os
import tempfile

from hypothesis import given
from hypothesis import strategies as st

from concbench.observe.spool import (
    KINDS,
    RawSample,
    Writer,
    offset,
    read_records,
    read_slot,
)

records = st.lists(
    st.builds(
        RawSample,
        kind=st.sampled_from(KINDS),
        sent_ns=st.integers(0, 1 << 62),
        received_ns=st.integers(0, 1 << 62),
        status=st.integers(0, 599),
        body=st.one_of(st.binary(max_size=40), st.binary(max_size=3).map(lambda b: b * 400)),
    ),
    max_size=6,
)


@given(records, st.integers(0, 6))
def test_what_is_written_is_read_from_any_mark(made, cut):
    with tempfile.TemporaryFile() as file:
        writer = Writer(file.fileno())
        marks = []
        for one in made:
            marks.append(offset(read_slot(file.fileno())))
            writer.add(one.kind, one.sent_ns, one.received_ns, one.body, one.status)
        marks.append(offset(read_slot(file.fileno())))
        cut = min(cut, len(made))
        assert list(read_records(file.fileno(), marks[cut])) == made[cut:]


@given(st.binary(max_size=400), st.integers(0, 500))
def test_a_foreign_file_is_no_spool(content, since):
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        assert list(read_records(file.fileno(), since)) == []


def test_damaged_records_end_or_are_skipped():
    with tempfile.TemporaryFile() as file:
        writer = Writer(file.fileno())
        writer.add("metrics", 1, 2, b"x" * 5000)
        writer.add("log", 3, 4, b"short")
        slot = read_slot(file.fileno())
        os.pwrite(file.fileno(), b"\xff" * 8, 256 + 30)
        assert [r.kind for r in read_records(file.fileno(), 0)] == ["log"]
        os.pwrite(file.fileno(), b"\xff" * 40, 256)
        assert list(read_records(file.fileno(), 0)) == []
        assert slot is not None
        assert slot.lost == 0


def test_dropping_keeps_offsets_going_on():
    with tempfile.TemporaryFile() as file:
        writer = Writer(file.fileno())
        writer.add("log", 1, 2, b"old" * 1000)
        before = offset(read_slot(file.fileno()))
        writer.drop()
        assert offset(read_slot(file.fileno())) == before
        assert os.fstat(file.fileno()).st_size == 256
        writer.add("log", 3, 4, b"new")
        assert [r.body for r in read_records(file.fileno(), before)] == [b"new"]
        assert [r.body for r in read_records(file.fileno(), 0)] == [b"new"]


def test_a_second_writer_goes_on_and_the_slot_remembers():
    with tempfile.TemporaryFile() as file:
        first = Writer(file.fileno())
        assert not first.resumed
        first.add("log", 1, 2, b"one")
        first.tell(running=3.0)
        first.count(scrapes=2, failed=1)
        # What a dying observer had half written lies beyond the slot's end.
        os.pwrite(file.fileno(), b"half a rec", first.slot.end)
        second = Writer(file.fileno())
        assert second.resumed
        second.add("log", 3, 4, b"two")
        assert [r.body for r in read_records(file.fileno(), 0)] == [b"one", b"two"]
        slot = read_slot(file.fileno())
        assert slot is not None
        assert (slot.running, slot.scrapes, slot.failed) == (3.0, 2, 1)
        assert math.isnan(slot.waiting)


def test_a_full_disk_loses_and_counts():
    fd = os.open("/dev/full", os.O_RDWR)
    try:
        writer = Writer(fd)
        writer.add("log", 1, 2, b"x")
        assert writer.slot.lost == 1
    finally:
        os.close(fd)

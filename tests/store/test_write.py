import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from concbench.domain import TargetFacts
from concbench.errors import OutputUnusable
from concbench.store import files, log, parts
from concbench.store.read import open_study
from concbench.store.write import Study
from tests.store.build import create, finished, make_round


class Killed(BaseException):
    """Stands for the end of the process: nothing may catch it."""


class FailAt:
    """Lets `steps` durable operations pass and fails every later one."""

    def __init__(self, monkeypatch, steps, error):
        self.left, self.error = steps, error
        for module, name in [(os, "fsync"), (os, "replace"), (os, "write")]:
            monkeypatch.setattr(module, name, self.guarded(getattr(module, name)))
        monkeypatch.setattr(Path, "mkdir", self.guarded(Path.mkdir))
        monkeypatch.setattr(Path, "write_bytes", self.guarded(Path.write_bytes))
        monkeypatch.setattr(parts, "_copy", self.guarded(parts._copy))

    def guarded(self, real):
        def call(*args, **kwargs):
            if self.left == 0:
                raise self.error
            self.left -= 1
            return real(*args, **kwargs)

        return call


def steps_of_a_round(tmp_path):
    with pytest.MonkeyPatch.context() as patch, create(tmp_path / "count") as writer:
        guard = FailAt(patch, 10_000, Killed())
        writer.write_round(make_round())
        return 10_000 - guard.left


def failed_rounds(tmp_path, error):
    """Yield (folder, writer, error) after a third round failed at each of its steps in turn."""
    for step in range(steps_of_a_round(tmp_path)):
        folder = tmp_path / f"step{step}"
        writer = create(folder)
        for name in ("r0", "r1"):
            writer.write_round(make_round(name))
        with pytest.MonkeyPatch.context() as patch:
            FailAt(patch, step, error)
            with pytest.raises((Killed, OutputUnusable)) as caught:
                writer.write_round(make_round("r2"))
        yield folder, writer, caught.value


def test_a_kill_at_any_step_loses_at_most_the_round_in_flight(tmp_path):
    outcomes = set()
    for folder, writer, _ in failed_rounds(tmp_path, Killed()):
        writer.lock.release()
        reader = open_study(folder)
        ids = [info.round_id for info in reader.rounds()]
        assert ids[:2] == ["r0", "r1"]
        assert reader.load_round("r1") == make_round("r1")
        assert reader.recovered in ([], ids[2:])  # [] where the line was written, not yet synced
        assert (reader.lost, reader.damaged_lines, reader.finished) == ([], 0, False)
        outcomes.add(len(ids))
        with Study.resume(folder) as resumed:
            if len(ids) == 2:
                resumed.write_round(make_round("r2"))
            resumed.finish()
        after = open_study(folder)
        assert [info.round_id for info in after.rounds()] == ["r0", "r1", "r2"]
        assert after.load_round("r2") == make_round("r2")
        assert after.finished
        assert not list((folder / "rounds").glob(".tmp-*"))
    assert outcomes == {2, 3}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_full_disk_at_any_step_is_one_line(tmp_path, code):
    error = OSError(code, os.strerror(code))
    for folder, writer, raised in failed_rounds(tmp_path, error):
        assert isinstance(raised, OutputUnusable)
        assert os.strerror(code) in str(raised)
        assert "\n" not in str(raised)
        assert not list((folder / "rounds").glob(".tmp-*"))
        if "r2" not in {info.round_id for info in open_study(folder).rounds()}:
            writer.write_round(make_round("r2"))
        writer.finish()
        reader = open_study(folder)
        assert [info.round_id for info in reader.rounds()] == ["r0", "r1", "r2"]
        assert reader.finished


def test_duckdb_reports_a_full_disk_in_one_line(tmp_path):
    with create(tmp_path / "s") as writer:
        full = Path("/dev/full")
        if not full.exists():
            pytest.skip("needs /dev/full")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parts, "part_path", lambda folder, table: full)
            with pytest.raises(OutputUnusable) as caught:
                writer.write_round(make_round())
        told = f"cannot write to {tmp_path / 's'}: {os.strerror(errno.ENOSPC)}; "
        assert str(caught.value) == f"{told}what was recorded before is intact"
        writer.write_round(make_round())


def test_a_killed_process_leaves_whole_rounds_and_no_lock(tmp_path):
    script = (
        "import sys; from pathlib import Path; from tests.store.build import create, make_round\n"
        "writer = create(Path(sys.argv[1]))\n"
        "for n in range(10**6):\n"
        "    writer.write_round(make_round(f'r{n:06}')); print(n, flush=True)\n"
    )
    folder = tmp_path / "s"
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, cwd=root
    ) as child:
        assert child.stdout is not None
        try:
            for _ in range(5):
                seen = int(child.stdout.readline())
            with pytest.raises(OutputUnusable, match=f"process {child.pid}"):
                Study.resume(folder)
            assert open_study(folder).running
        finally:
            child.send_signal(signal.SIGKILL)
    reader = open_study(folder)
    ids = [info.round_id for info in reader.rounds()]
    assert ids == [f"r{n:06}" for n in range(len(ids))]
    assert len(ids) > seen
    assert all(reader.load_round(name) == make_round(name) for name in ids)
    assert (reader.finished, reader.interrupted, reader.running) == (False, False, False)
    Study.resume(folder).finish()
    assert open_study(folder).finished


def test_the_parents_are_made_and_the_record_is_kept(tmp_path):
    folder = tmp_path / "a" / "b" / "c"
    create(folder, plan={"x": float("nan"), "p": Path("/x"), "t": "\ud835"}).finish()
    study = json.loads((folder / "study.json").read_text(), parse_constant=pytest.fail)
    assert study["schema"] == "concbench.study/1"
    assert study["plan"] == {"x": None, "p": "/x", "t": "\\ud835"}
    assert study["targets"]["a"]["engine"] == "vllm"
    reader = open_study(folder)
    assert reader.plan["t"] == "\ud835"
    assert (reader.record.seed, reader.record.command) == (1, "burst")
    assert reader.record.study == study["study"]


def tree(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_study_is_not_touched(tmp_path):
    folder = finished(tmp_path / "s")
    before = tree(folder)
    with pytest.raises(OutputUnusable, match="already holds a study"):
        create(folder)
    with pytest.raises(OutputUnusable, match="finished study"):
        Study.resume(folder)
    assert tree(folder) == before


def test_a_finished_study_can_be_extended_on_request(tmp_path):
    folder = finished(tmp_path / "s")
    with Study.resume(folder, even_finished=True) as writer:
        writer.write_round(make_round("more"))
    reader = open_study(folder)
    assert (len(reader.rounds()), reader.finished) == (4, False)


def test_a_foreign_folder_is_not_touched(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(OutputUnusable, match=r"thesis\.txt"):
        create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_rounds_of_a_study_without_its_record_are_foreign(tmp_path):
    folder = finished(tmp_path / "s")
    (folder / "study.json").unlink()
    (folder / "log.jsonl").unlink()
    with pytest.raises(OutputUnusable, match="not empty"):
        create(folder)


def test_what_a_killed_creation_left_is_no_obstacle(tmp_path):
    (tmp_path / ".lock").write_text("1\n")
    (tmp_path / ".study.json.tmp").write_text("{")
    (tmp_path / "rounds").mkdir()
    create(tmp_path).finish()
    assert open_study(tmp_path).finished


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "f").write_text("x")
    for folder in (tmp_path / "f", tmp_path / "f" / "below"):
        with pytest.raises(OutputUnusable):
            create(folder)


@pytest.mark.parametrize("name", ["half\udcff", "nul\x00"])
def test_a_folder_whose_name_cannot_be_used(tmp_path, name):
    with pytest.raises(OutputUnusable):
        create(tmp_path / name)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, code):
    def refuse(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OutputUnusable, match=os.strerror(code)):
        create(tmp_path / "s")


def test_a_second_writer_is_refused_by_name(tmp_path):
    with create(tmp_path / "s"), pytest.raises(OutputUnusable, match=f"process {os.getpid()}"):
        Study.resume(tmp_path / "s")
    Study.resume(tmp_path / "s").finish()


def test_looking_whether_it_runs_turns_no_writer_away(tmp_path):
    create(tmp_path).close()
    assert not files.is_locked(tmp_path)
    assert not files.is_locked(tmp_path / "absent")
    with Study.resume(tmp_path):
        assert files.is_locked(tmp_path)


def test_nothing_is_overwritten(tmp_path):
    with create(tmp_path / "s") as writer:
        writer.write_round(make_round())
        with pytest.raises(OutputUnusable, match="on record"):
            writer.write_round(make_round(index=5))
        assert open_study(tmp_path / "s").load_round("r1").index == 0


@pytest.mark.parametrize("round_id", ["", ".", "..", "a/b", ".tmp-x", "a\x00", "é", "x" * 300])
def test_an_id_that_is_no_file_name(tmp_path, round_id):
    with create(tmp_path / "s") as writer, pytest.raises(ValueError, match="file name"):
        writer.write_round(make_round(round_id))


def test_targets_notes_and_failures_are_appended(tmp_path):
    with create(tmp_path / "s") as writer:
        before = (tmp_path / "s" / "study.json").read_bytes()
        writer.targets({"a": TargetFacts(lane="a", engine="vllm", base_url="u", cold_start_s=3.5)})
        writer.targets({"b": TargetFacts(lane="b", engine="sglang", base_url="v")})
        writer.note("calibration", {"ceiling_tok_per_s": 48_000.0, "bad": float("inf")})
        writer.failed("a-n8", "out of memory", {"log": ["CUDA \ud835"]})
        writer.finish(interrupted=True)
    reader = open_study(tmp_path / "s")
    assert (tmp_path / "s" / "study.json").read_bytes() == before
    assert reader.targets()["a"].cold_start_s == 3.5
    assert set(reader.targets()) == {"a", "b"}
    assert reader.notes("calibration") == [{"ceiling_tok_per_s": 48_000.0, "bad": None}]
    (failure,) = reader.failures()
    assert (failure.cell, failure.data) == ("a-n8", {"log": ["CUDA \ud835"]})
    assert (reader.interrupted, reader.finished) == (True, False)


def test_every_line_of_the_log_is_numbered_and_strict(tmp_path):
    folder = finished(tmp_path / "s")
    raw = (folder / log.LOG_NAME).read_text().splitlines()
    lines = [json.loads(line, parse_constant=pytest.fail) for line in raw]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert len({line["study"] for line in lines}) == 1
    assert all(line["utc"].endswith("Z") for line in lines)
    assert [line["event"] for line in lines] == ["started", *["finished"] * 4]


def test_a_line_that_the_disk_cut_short_is_not_joined_to_the_next(tmp_path, monkeypatch):
    real = os.write
    writer = create(tmp_path / "s")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))
        with pytest.raises(OutputUnusable, match=os.strerror(errno.ENOSPC)):
            writer.write_round(make_round("r1"))
    assert open_study(tmp_path / "s").recovered == ["r1"]
    writer.write_round(make_round("r2"))
    writer.finish()
    reader = open_study(tmp_path / "s")
    assert [info.round_id for info in reader.rounds()] == ["r2", "r1"]
    assert (reader.damaged_lines, reader.finished) == (1, True)

"""Whatever fails, at whatever moment: recorded rounds are whole, and the study goes on."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from concbench import clock
from concbench.errors import OutputUnusable
from concbench.store.correct import retract
from concbench.store.read import open_study
from concbench.store.write import Study
from tests.servers import reference_server
from tests.store.build import create, finished, make_round
from tests.store.durability import ACTS, FAULTS, PAGE, ROOT, Disk, Outcome, outcomes, page


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with reference_server("--ttft-ms", "2", "--itl-ms", "1") as url:
        yield url


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("act", ACTS)
def test_at_every_step_of_every_act(act: str, fault: str) -> None:
    found = outcomes(fault, act)
    assert len(found) >= 2
    assert all(outcome.goes_on for outcome in found)
    for outcome in found:
        _check_kept(outcome)
        if fault not in ("kill -9", "power cut"):
            assert outcome.said is not None
            assert "\n" not in outcome.said
            assert "intact" in outcome.said


def _check_kept(outcome: Outcome) -> None:
    assert not outcome.damaged, outcome
    if outcome.act == "creating a study":
        assert outcome.rounds in (None, ())
    elif outcome.act == "recording a third round":
        assert outcome.rounds in (("r0", "r1"), ("r0", "r1", "r2"))
    else:
        assert outcome.rounds == ("r0", "r1")
        assert outcome.retracted in ((), ("r1",))


def test_the_steps_are_those_that_a_round_takes() -> None:
    """Were a step not seen, nothing would be tested there."""
    steps = [outcome.step for outcome in outcomes("kill -9", "recording a third round")]
    assert steps[-3:] == ["sync of rounds", "line of log.jsonl", "sync of log.jsonl"]
    assert steps.index("rename to the round") > steps.index("sync of the round")
    assert steps.count("sync of a table") == 4


def test_a_power_cut_forgets_what_was_not_synced(tmp_path: Path) -> None:
    """The model itself: bytes after the last sync, and names that no folder was synced with."""
    (tmp_path / "a").mkdir()
    disk, path = Disk(), tmp_path / "a" / "f"
    path.write_bytes(b"one")
    for each in (path, tmp_path / "a", tmp_path):
        descriptor = os.open(each, os.O_RDONLY)
        disk.synced(descriptor)
        os.close(descriptor)
    path.write_bytes(b"one two")
    (tmp_path / "a" / "late").write_bytes(b"x")
    disk.restore(tmp_path / "left", tmp_path.stat().st_ino)
    assert (tmp_path / "left" / "a" / "f").read_bytes() == b"one"
    assert not (tmp_path / "left" / "a" / "late").exists()


def test_a_clock_that_goes_back_changes_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    with create(tmp_path / "s") as writer:
        for number in range(4):
            monkeypatch.setattr(clock, "utc_now", lambda n=number: now - timedelta(hours=n))
            began = (now - timedelta(hours=number)).strftime("%Y-%m-%dT%H:%M:%SZ")
            writer.write_round(make_round(f"r{number}", began_utc=began))
        writer.finish()
    retract(tmp_path / "s", "r1", "wrong", by="r2")
    reader = open_study(tmp_path / "s")
    assert [info.round_id for info in reader.rounds()] == ["r0", "r1", "r2", "r3"]
    assert [line.seq for line in reader.log] == list(range(1, len(reader.log) + 1))
    stamps = [line.utc for line in reader.log]
    assert stamps != sorted(stamps)
    assert reader.finished
    assert [one["round"] for one in reader.corrections()] == ["r1"]


def test_a_second_writer_is_refused_at_every_moment_and_a_reader_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with create(folder) as writer:
        for act in (
            lambda: create(folder),
            lambda: Study.resume(folder),
            lambda: retract(folder, "r0", "wrong"),
        ):
            with pytest.raises(Exception, match=r"process|already holds|no round"):
                act()
        writer.write_round(make_round("r0"))
        assert [info.round_id for info in open_study(folder).rounds()] == ["r0"]
        with pytest.raises(OutputUnusable, match="process"):
            retract(folder, "r0", "wrong")
        writer.finish()
    with pytest.raises(OutputUnusable, match="finished"):
        Study.resume(folder)


def _burst(url: str, folder: Path, *options: str, limit_bytes: int | None = None):
    def limit() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    return subprocess.run(
        [sys.executable, "-m", "concbench", "burst", url, "--levels", "4", "--rounds", "3",
         "--quiet", "--output-tokens", "400", "--out", str(folder), *options],
        capture_output=True, text=True, preexec_fn=limit, check=False, timeout=120, cwd=ROOT,
    )  # fmt: skip


def test_files_that_may_not_grow_end_the_run_in_one_line(server: str, tmp_path: Path) -> None:
    done = _burst(server, tmp_path / "s", limit_bytes=8_000)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("concbench: cannot write to"), done.stderr
    reader = open_study(tmp_path / "s")
    assert not reader.finished
    assert not reader.unreadable
    for info in reader.rounds():
        reader.load_round(info.round_id)


def test_an_output_that_is_no_folder_or_another_study_is_not_touched(
    server: str, tmp_path: Path
) -> None:
    study = finished(tmp_path / "done")
    before = {path: path.read_bytes() for path in study.rglob("*") if path.is_file()}
    (tmp_path / "file").write_text("mine")
    for folder in (study, tmp_path / "file"):
        done = _burst(server, folder)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert {path: path.read_bytes() for path in study.rglob("*") if path.is_file()} == before
    assert (tmp_path / "file").read_text() == "mine"


def test_a_disk_that_fills_up_after_the_rounds_keeps_them(server: str, tmp_path: Path) -> None:
    """The page cannot be written: what was measured is on disk all the same, and is told."""
    done = _burst(server, tmp_path / "s", "--json", "-", "--html", "/dev/full")
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2, 4)
    assert Path("/dev/full").is_char_device()  # not replaced by a file
    reader = open_study(tmp_path / "s")
    assert len(reader.rounds("measured")) == 3
    if done.returncode != 2:
        assert json.loads(done.stdout)["cells"]


def test_the_page_is_what_the_tests_saw() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.store.durability`"

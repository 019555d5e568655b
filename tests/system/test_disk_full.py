"""A disk that is really full: a small file system of its own, where mounting one is allowed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from concbench.store.read import StudyReader, open_study
from tests.servers import reference_server


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield an empty file system of 4 MB; skip where it cannot be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    words = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if mounted.returncode:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, free_bytes: int) -> Path:
    """Take all the room but that with a file; return the file."""
    left = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(left.f_bavail * left.f_frsize - free_bytes))
    return filler


def concbench(*words: str) -> tuple[int, str, str]:
    """Run a command; return its code, stdout and stderr."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    argv = [sys.executable, "-m", "concbench", *words]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False, timeout=300)
    return done.returncode, done.stdout, done.stderr


def told(code: int, said: str, study: Path) -> None:
    """Check that a full disk was told as it should be: the code, and one line at the end."""
    assert code == 2, said
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if line.startswith("concbench: ")]
    assert lines == [
        f"concbench: cannot write to {study}: No space left on device; "
        "what was recorded before is intact"
    ]


def whole(study: Path) -> StudyReader:
    """Return the reader of a study of which every recorded round can be read; nothing is staged."""
    reader = open_study(study)
    assert not reader.unreadable
    assert not reader.finished
    for info in reader.rounds():
        loaded = reader.load_round(info.round_id)
        assert len(loaded.requests) == loaded.cell.concurrency
        assert {record.outcome for record in loaded.requests} == {"ok"}
    assert not list((study / "rounds").glob(".tmp-*"))
    return reader


@pytest.mark.timeout(600)
def test_a_burst_until_the_disk_is_full(disk: Path) -> None:
    study = disk / "study"
    fill(disk, 300 << 10)
    with reference_server("--ttft-ms", "2", "--itl-ms", "1") as url:
        words = "--levels", "2,4", "--rounds", "400", "--output-tokens", "100"
        code, _, said = concbench("burst", url, *words, "--out", str(study))
    told(code, said, study)
    reader = whole(study)
    kept = reader.rounds("measured")
    assert len(kept) >= 2
    # What the terminal told of as measured is there, and beside it at most the round for whose line
    # in the log there was no room: it is whole, and found again. Where the first rounds showed that
    # the warm-up was too short, they are there as discarded.
    assert len(reader.recovered) <= 1
    recorded = len(kept) + len(reader.rounds("discarded"))
    assert said.count(": measured, ") + len(reader.recovered) == recorded

    # Reading it needs no room.
    code, shown, said = concbench("report", str(study), "--json", "-")
    assert code == 0, said
    for cell in json.loads(shown)["cells"]:
        level = cell["concurrency"]
        rounds = sum(info.cell.concurrency == level for info in kept)
        assert cell["requests"]["sent"] == cell["requests"]["ok"] == rounds * level
    code, shown, said = concbench("query", str(study), "--csv", "select count(*) from requests")
    assert code == 0, said
    every = sum(info.cell.concurrency for info in reader.rounds())
    assert shown.split()[-1] == str(every)


@pytest.mark.timeout(600)
def test_a_sweep_goes_on_once_there_is_room(disk: Path, tmp_path: Path) -> None:
    study, plan = disk / "study", tmp_path / "plan.toml"
    filler = fill(disk, 300 << 10)
    with reference_server("--ttft-ms", "2", "--itl-ms", "1") as url:
        plan.write_text(
            f'[study]\nseed = 7\n[lanes.there]\nurl = "{url}"\n[workload]\noutput_tokens = 50\n'
            '[sweep]\ncontexts = ["short", 200]\nconcurrency = [1, 2, 3, 4]\n'
        )
        words = ["sweep", str(plan), "--rounds", "4", "--warmup", "0", "--out", str(study)]
        code, _, said = concbench(*words)
        told(code, said, study)
        before = {info.round_id for info in whole(study).rounds("measured")}
        assert 1 <= len(before) < 32
        filler.unlink()
        code, _, said = concbench(*words)
    assert code in (0, 4), said
    reader = open_study(study)
    assert reader.finished
    after = reader.rounds("measured")
    assert before < {info.round_id for info in after}
    # Each cell has its four rounds; the control is measured anew when a lane is reached again.
    counts = Counter(info.cell.cell for info in after if not info.cell.cell.endswith(".control"))
    assert sorted(counts.values()) == [4] * 8

"""What is running in a study: a file that is written over, never half, never old, then gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from concbench.clock import utc_now
from concbench.store.now import NOW_NAME, SIZE_BYTES, STALE_S, NowFile, read_now


def test_the_last_word_stands_and_the_file_never_changes_its_size(tmp_path: Path) -> None:
    now = NowFile(tmp_path)
    assert read_now(tmp_path) is None
    for values in ({"cell": "a" * 900}, {"cell": "b", "signs": ["ü"]}):
        now.write(values)
        assert read_now(tmp_path) == values
        assert (tmp_path / NOW_NAME).stat().st_size == SIZE_BYTES
    now.close()
    now.close()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_before_the_first_word(tmp_path: Path) -> None:
    NowFile(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_too_long_is_left_out(tmp_path: Path) -> None:
    now = NowFile(tmp_path)
    now.write({"cell": "a"})
    now.write({"cell": "b" * SIZE_BYTES})
    assert read_now(tmp_path) == {"cell": "a"}
    now.close()


def test_an_old_word_is_none(tmp_path: Path) -> None:
    now = NowFile(tmp_path)
    now.write({"cell": "a"})
    then = utc_now().timestamp() - 2 * STALE_S
    os.utime(tmp_path / NOW_NAME, (then, then))
    assert read_now(tmp_path) is None
    now.close()


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff" * 40, b'"x"'])
def test_what_makes_no_sense_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NOW_NAME).write_bytes(content)
    assert read_now(tmp_path) is None


def test_a_link_is_neither_followed_nor_written_through(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text('{"cell": "a"}')
    (tmp_path / NOW_NAME).symlink_to(target)
    assert read_now(tmp_path) is None
    NowFile(tmp_path).write({"cell": "b"})
    assert target.read_text() == '{"cell": "a"}'


def test_a_pipe_or_a_folder_in_its_place_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NOW_NAME)
    assert read_now(tmp_path) is None
    (tmp_path / NOW_NAME).unlink()
    (tmp_path / NOW_NAME).mkdir()
    assert read_now(tmp_path) is None
    NowFile(tmp_path).write({"cell": "b"})


def test_a_folder_that_is_gone_costs_nothing(tmp_path: Path) -> None:
    now = NowFile(tmp_path / "gone")
    now.write({"cell": "a"})
    now.write({"cell": "b"})
    now.close()

import pytest

from concbench.errors import OutputUnusable, StudyUnreadable, UsageError
from concbench.store.correct import amend, retract
from concbench.store.log import LOG_NAME
from concbench.store.read import open_study
from tests.store.build import create, finished


def test_a_retraction_is_appended_and_nothing_is_lost(tmp_path):
    folder = finished(tmp_path / "s")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    retract(folder, "r1", "another job ran", by="r2")
    reader = open_study(folder)
    (correction,) = reader.corrections()
    assert correction.pop("at_utc")
    assert correction == {"round": "r1", "why": "another job ran", "by": "r2"}
    assert [info.retracted for info in reader.rounds()] == [False, True, False]
    assert reader.load_round("r1").round_id == "r1"
    assert reader.finished
    log = before.pop(folder / LOG_NAME)
    assert (folder / LOG_NAME).read_bytes().startswith(log)
    before.pop(folder / ".lock")
    assert all(path.read_bytes() == content for path, content in before.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("r9", "x"), "no round 'r9'"),
        (("r1", "x", "r9"), "no round 'r9'"),
        (("r1", "x", "r1"), "own successor"),
        (("r0", "x"), "already"),
        (("r1", "x", "r0"), "itself retracted"),
        (("r1", "  "), "--why"),
    ],
)
def test_a_wrong_retraction_changes_nothing(tmp_path, arguments, message):
    folder = finished(tmp_path / "s")
    retract(folder, "r0", "first")
    log = (folder / LOG_NAME).read_bytes()
    with pytest.raises(UsageError, match=message):
        retract(folder, *arguments)
    assert (folder / LOG_NAME).read_bytes() == log


def test_a_study_being_written_cannot_be_corrected(tmp_path):
    with create(tmp_path / "s"), pytest.raises(OutputUnusable, match="being written"):
        retract(tmp_path / "s", "r0", "x")


def test_correcting_something_else_leaves_no_trace(tmp_path):
    with pytest.raises(StudyUnreadable):
        retract(tmp_path, "r0", "x")
    assert not list(tmp_path.iterdir())


def test_both_studies_say_that_one_supersedes_the_other(tmp_path):
    old, new = finished(tmp_path / "old"), finished(tmp_path / "new")
    amend(new, old, "new driver")
    (from_new,) = open_study(new).amendments()
    (from_old,) = open_study(old).amendments()
    assert from_new["supersedes"] == open_study(old).record.study
    assert from_old["superseded_by"] == open_study(new).record.study
    assert from_new["why"] == from_old["why"] == "new driver"
    assert open_study(new).corrections() == []
    for pair, message in [
        ((new, old), "already"),
        ((old, new), "both ways"),
        ((new, new), "itself"),
    ]:
        with pytest.raises(UsageError, match=message):
            amend(*pair, "again")


def test_a_study_that_is_elsewhere_is_superseded_by_its_id(tmp_path):
    folder = finished(tmp_path / "s")
    amend(folder, "0" * 32, "measured again")
    assert open_study(folder).amendments()[0]["supersedes"] == "0" * 32
    with pytest.raises(UsageError, match="already"):
        amend(folder, "0" * 32, "measured again")
    with pytest.raises(UsageError, match="itself"):
        amend(folder, open_study(folder).record.study, "x")
    with pytest.raises(StudyUnreadable, match="no such folder"):
        amend(folder, tmp_path / "absent", "x")

import pytest

from concbench.analyse.study import StudyFacts, judge
from concbench.cli import study as studies
from concbench.cli.main import main
from concbench.cli.stored import ENTRY, EXHIBITS, drawn_result, stored_result
from concbench.cli.study import result_of
from concbench.errors import StudyUnreadable
from concbench.result import to_json
from concbench.store.correct import retract
from concbench.store.read import open_study
from tests.cli.studies import interleaved


@pytest.fixture
def study(tmp_path):
    return interleaved(tmp_path / "s", {"a": {1: 50.0, 2: 90.0}, "b": {1: 55.0}}, rounds=2)


def test_the_kept_result_is_the_judged_one(study, monkeypatch):
    fresh = to_json(result_of(study))
    assert to_json(stored_result(study)) == fresh

    def never(folder):
        raise AssertionError("judged again")

    monkeypatch.setattr(studies, "result_of", never)
    assert to_json(stored_result(study)) == fresh


def test_what_a_page_draws_is_kept_beside_the_result(study, monkeypatch):
    drawn = []
    fresh = to_json(result_of(study, exhibits=drawn))
    assert [each.cell for each in drawn] == ["a.50.c1", "a.50.c2", "b.50.c1"]
    result, exhibits = drawn_result(study)
    assert (to_json(result), exhibits) == (fresh, drawn)

    def never(folder, exhibits=None):
        raise AssertionError("read again")

    monkeypatch.setattr(studies, "result_of", never)
    result, exhibits = drawn_result(study)
    assert (to_json(result), exhibits) == (fresh, drawn)
    assert to_json(stored_result(study)) == fresh


def test_a_page_after_a_correction_is_drawn_anew(study):
    _, before = drawn_result(study)
    retract(study, first_round(study), "wrong")
    result, after = drawn_result(study)
    assert result.corrections
    assert after != before


@pytest.mark.parametrize("name", [ENTRY, EXHIBITS])
def test_a_page_whose_entry_is_damaged_or_missing_is_drawn_anew(study, name):
    result, exhibits = drawn_result(study)
    (study / "cache" / name).write_bytes(b"nonsense" * 20)
    again, drawn = drawn_result(study)
    assert (to_json(again), drawn) == (to_json(result), exhibits)
    (study / "cache" / name).unlink()
    again, drawn = drawn_result(study)
    assert (to_json(again), drawn) == (to_json(result), exhibits)


def test_a_correction_makes_it_stale(study):
    stored_result(study)
    retract(study, first_round(study), "wrong")
    after = stored_result(study)
    assert after.corrections
    assert to_json(after) == to_json(result_of(study))


def first_round(study):
    return sorted(path.name for path in (study / "rounds").iterdir())[0]


@pytest.mark.parametrize("content", [b"", b"nonsense" * 20])
def test_a_damaged_entry_is_judged_anew(study, content):
    fresh = to_json(stored_result(study))
    (study / "cache" / ENTRY).write_bytes(content)
    assert to_json(stored_result(study)) == fresh


def test_where_the_study_lies_is_told_as_asked(study, monkeypatch):
    stored_result(study)
    monkeypatch.chdir(study.parent)
    assert stored_result(study.relative_to(study.parent)).study == "s"


def test_no_study(tmp_path):
    with pytest.raises(StudyUnreadable):
        stored_result(tmp_path / "nowhere")


def test_the_tables_over_lanes_as_files(study, tmp_path, capsys):
    assert main(["report", str(study), "--csv-tables", str(tmp_path / "t")]) == 0
    names = sorted(path.name for path in (tmp_path / "t").iterdir())
    assert names == [
        *("against.csv", "concurrency.csv", "gain.csv"),
        *("max_concurrency.csv", "predicted.csv", "single_stream.csv", "unlike.csv"),
    ]
    assert main(["report", str(study)]) == 0
    assert "One stream alone" in capsys.readouterr().out


def test_cell_by_cell_is_judged_as_all_at_once(study):
    reader = open_study(study)
    rounds = [reader.load_round(info.round_id) for info in reader.rounds()]
    record = reader.record
    facts = StudyFacts(
        tool_version=record.tool_version,
        command=record.command,
        study=str(study),
        began_utc=record.created_utc,
        machine=record.machine,
        targets=reader.targets(),
        seed=record.seed,
    )
    whole, lazily = judge(rounds, facts), result_of(study)
    assert whole.cells == lazily.cells
    assert whole.doubts == lazily.doubts
    assert whole.workload == lazily.workload

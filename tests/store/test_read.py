import json
import shutil

import pytest

from concbench import __version__
from concbench.domain import RequestRecord, Workload
from concbench.errors import StudyUnreadable, UsageError
from concbench.store.log import LOG_NAME
from concbench.store.read import open_study
from concbench.store.write import Study
from tests.store.build import create, finished, make_cell, make_round


def test_a_round_comes_back_as_it_was(tmp_path):
    request = RequestRecord(
        index=0,
        worker=1,
        due_ns=5,
        sent_ns=None,
        outcome="failed",
        error="http_503",
        error_detail="body \ud835 \x00 \\ud835",
        notes=("retried", "\udfff"),
        text="𝔸 \ud835",
    )
    round_ = make_round(
        requests=[request],
        workload=Workload(
            prompt_tokens=1,
            output_tokens=2,
            seed=2**63 + 5,
            arrival="closed",
            extra_body={"stop": ["\ud800"], "n": 1.5, "deep": {"a": [None, True]}},
        ),
        outcome="oom",
        outcome_detail="CUDA out of memory",
        interrupted=True,
    )
    with create(tmp_path / "s") as writer:
        writer.write_round(round_)
    assert open_study(tmp_path / "s").load_round("r1") == round_


def test_rounds_are_listed_in_order_and_by_phase(tmp_path):
    with create(tmp_path / "s") as writer:
        writer.write_round(make_round("z", phase="warmup"))
        writer.write_round(make_round("a"))
        writer.write_round(make_round("m"))
        writer.discard("a", "the warm-up was not over")
    reader = open_study(tmp_path / "s")
    assert [info.round_id for info in reader.rounds()] == ["z", "a", "m"]
    assert [info.round_id for info in reader.rounds("measured")] == ["m"]
    assert [info.round_id for info in reader.rounds("discarded")] == ["a"]
    assert reader.load_round("a").phase == "discarded"
    info = reader.rounds()[0]
    assert (info.requests, info.events, info.samples) == (2, 10, 1)
    assert info.instrument.read_lateness_ns == []


def test_conditions_are_kept(tmp_path):
    study = json.loads((finished(tmp_path / "s") / "study.json").read_text())
    assert study["argv"] == ["concbench", "burst"]
    assert study["machine"] == {"cpu": "x", "cores": 2}
    record = json.loads((tmp_path / "s" / "rounds" / "r0" / "round.json").read_text())
    assert record["workload"]["seed"] == 2**40
    assert record["cell"]["concurrency"] == 2


def test_no_nan_in_any_json(tmp_path):
    nan = float("nan")
    with create(tmp_path / "s", machine={"mhz": nan, "inf": float("inf")}) as writer:
        cell = make_cell()
        writer.write_round(
            make_round(
                workload=Workload(
                    prompt_tokens=1, output_tokens=1, seed=1, arrival="burst", extra_body={"x": nan}
                ),
                cell=type(cell)(
                    cell="c", lane="a", concurrency=1, context_tok=1, rate_rps=float("inf")
                ),
            )
        )
    for path in (tmp_path / "s").rglob("*.json*"):
        for line in (
            path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        ):
            json.loads(line, parse_constant=pytest.fail)
    assert open_study(tmp_path / "s").rounds()[0].cell.rate_rps is None


def test_a_line_that_a_crash_cut_is_skipped_and_never_joined(tmp_path):
    folder = finished(tmp_path / "s")
    path = folder / LOG_NAME
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rsplit(b"\n", 1)[1]
    for cut in range(1, len(last)):
        path.write_bytes(whole[: -1 - len(last) + cut])
        reader = open_study(folder)
        assert (reader.damaged_lines, reader.finished, len(reader.rounds())) == (1, False, 3)
    with Study.resume(folder) as writer:
        writer.write_round(make_round("next"))
        writer.finish()
    reader = open_study(folder)
    assert (len(reader.rounds()), reader.recovered, reader.finished) == (4, [], True)


def test_a_cut_inside_a_character_is_skipped(tmp_path):
    folder = finished(tmp_path / "s")
    with (folder / LOG_NAME).open("ab") as file:
        file.write('{"seq": 9, "event": "é'.encode()[:-1])
    assert open_study(folder).damaged_lines == 1


def test_unknown_events_are_passed_over(tmp_path):
    folder = finished(tmp_path / "s")
    study = open_study(folder).record.study
    line = {"seq": 99, "utc": "x", "study": study, "event": "sang", "verse": 3}
    with (folder / LOG_NAME).open("a") as file:
        file.write(json.dumps(line) + "\n")
    reader = open_study(folder)
    assert (reader.damaged_lines, reader.finished, len(reader.rounds())) == (0, True, 3)


def test_a_logged_round_without_its_folder_is_lost(tmp_path):
    folder = finished(tmp_path / "s")
    shutil.rmtree(folder / "rounds" / "r1")
    reader = open_study(folder)
    assert reader.lost == ["r1"]
    assert [info.round_id for info in reader.rounds()] == ["r0", "r2"]
    with pytest.raises(UsageError, match="no round 'r1'"):
        reader.load_round("r1")


def test_a_damaged_round_spares_the_others(tmp_path):
    folder = finished(tmp_path / "s")
    (folder / "rounds" / "r0" / "round.json").write_text('{"study": ')
    (folder / "rounds" / "r1" / "events.parquet").write_bytes(b"PAR1")
    reader = open_study(folder)
    assert list(reader.unreadable) == ["r0"]
    with pytest.raises(StudyUnreadable, match=r"round r1 .* damaged") as caught:
        reader.load_round("r1")
    assert "\n" not in str(caught.value)
    assert reader.load_round("r2") == make_round("r2", index=2)


def test_what_others_leave_in_the_folder_does_not_matter(tmp_path):
    folder = finished(tmp_path / "s")
    (folder / "rounds" / ".DS_Store").write_text("x")
    (folder / "rounds" / ".tmp-r9").mkdir()
    (folder / "report.html").write_text("x")
    assert len(open_study(folder).rounds()) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged"),
        (b"{", "damaged"),
        (b"[1]", "damaged"),
        (b"\xff\xfe", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b"{}", "not the record of a study"),
        (b'{"schema": "concbench.study/1"}', "damaged"),
        (b'{"schema": "concbench.study/99"}', "upgrade"),
    ],
)
def test_a_record_that_cannot_be_used(tmp_path, content, message):
    folder = finished(tmp_path / "s")
    (folder / "study.json").write_bytes(content)
    with pytest.raises(StudyUnreadable, match=message) as caught:
        open_study(folder)
    assert "\n" not in str(caught.value)


def test_what_is_no_study(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file", tmp_path / "absent", tmp_path / "nul\x00"):
        with pytest.raises(StudyUnreadable) as caught:
            open_study(path)
        assert caught.value.exit_code == 2


def test_a_round_of_another_study_is_refused(tmp_path):
    mine, other = finished(tmp_path / "a"), finished(tmp_path / "b", rounds=1)
    shutil.copytree(other / "rounds" / "r0", mine / "rounds" / "stray")
    with pytest.raises(StudyUnreadable, match="a record of study") as caught:
        open_study(mine)
    assert caught.value.exit_code == 2


def test_a_log_of_another_study_is_refused(tmp_path):
    mine, other = finished(tmp_path / "a"), finished(tmp_path / "b", rounds=1)
    shutil.copy(other / LOG_NAME, mine / LOG_NAME)
    with pytest.raises(StudyUnreadable, match="line 1: an event of study"):
        open_study(mine)


def test_a_copied_round_is_refused(tmp_path):
    folder = finished(tmp_path / "s")
    shutil.copytree(folder / "rounds" / "r0", folder / "rounds" / "r9")
    with pytest.raises(StudyUnreadable, match="record of round r0"):
        open_study(folder)


def test_summaries_are_computed_once_and_rebuilt_when_damaged(tmp_path):
    folder = finished(tmp_path / "s")
    calls = []

    def compute(round_):
        calls.append(round_.round_id)
        return f"summary of {round_.round_id}".encode()

    assert open_study(folder).cached("r1", compute) == b"summary of r1"
    assert open_study(folder).cached("r1", compute) == b"summary of r1"
    assert calls == ["r1"]
    (entry,) = (folder / "cache" / __version__).iterdir()
    for damage in (b"", b"x", entry.read_bytes()[:-1], entry.read_bytes() + b"y"):
        entry.write_bytes(damage)
        assert open_study(folder).cached("r1", compute) == b"summary of r1"
    assert len(calls) == 5
    assert open_study(folder).cached("r1", compute, kind="other")
    assert len(calls) == 6
    with pytest.raises(UsageError):
        open_study(folder).cached("r7", compute)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    folder = finished(tmp_path / "s")
    (folder / "cache").write_text("in the way")
    assert open_study(folder).cached("r1", lambda _: b"x") == b"x"

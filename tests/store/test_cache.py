import os
import shutil

import duckdb
import msgspec
import pytest

from concbench.errors import StudyUnreadable, UsageError
from concbench.store import cache
from concbench.store import query as queries
from concbench.store.correct import retract
from concbench.store.query import query
from concbench.store.read import open_study
from concbench.store.write import Study
from tests.store.build import finished, make_round


@pytest.fixture
def study(tmp_path):
    return finished(tmp_path / "st[ud]y'*")


def test_the_identity_stays_while_nothing_changes(study):
    first = cache.identity(study)
    assert first is not None
    assert cache.identity(study) == first
    (study / "cache").mkdir()
    (study / "report.html").write_text("x")
    assert cache.identity(study) == first


def test_the_identity_changes_with_a_round_a_correction_and_a_touched_file(study):
    seen = {cache.identity(study)}
    part = study / "rounds" / "r1" / "requests.parquet"
    os.utime(part, ns=(1, 1))
    seen.add(cache.identity(study))
    retract(study, "r1", "wrong")
    seen.add(cache.identity(study))
    with Study.resume(study, even_finished=True) as writer:
        writer.write_round(make_round("r9", index=9))
    seen.add(cache.identity(study))
    shutil.rmtree(study / "rounds" / "r9")
    seen.add(cache.identity(study))
    assert len(seen) == 5
    assert cache.identity(study.parent / "nowhere") is None


def test_an_entry_is_returned_for_its_identity_alone(study):
    cache.keep(study, "x", "a" * 64, b"value")
    assert cache.load(study, "x", "a" * 64) == b"value"
    assert cache.load(study, "x", "b" * 64) is None
    assert cache.load(study, "y", "a" * 64) is None


@pytest.mark.parametrize("cut", [0, 10, 70, 98, 100])
def test_a_damaged_entry_is_none(study, cut):
    cache.keep(study, "x", "a" * 64, b"value")
    path = study / "cache" / "x"
    path.write_bytes(path.read_bytes()[:cut])
    assert cache.load(study, "x", "a" * 64) is None


def test_an_entry_that_cannot_be_kept_is_no_error(study):
    (study / "cache").write_text("a file where the folder should be")
    cache.keep(study, "x", "a" * 64, b"value")
    assert cache.load(study, "x", "a" * 64) is None
    assert cache.keep_folder(study, "t", "a" * 64, lambda path: None) is None


def test_a_folder_entry_is_found_until_one_of_its_files_is_touched(study):
    key = "c" * 64

    def fill(path):
        (path / "one").write_bytes(b"1")

    old = cache.keep_folder(study, "t", "b" * 64, fill)
    kept = cache.keep_folder(study, "t", key, fill)
    assert kept is not None
    assert kept == cache.kept_folder(study, "t", key)
    assert old is not None
    assert not old.exists()
    (kept / "one").write_bytes(b"2")
    assert cache.kept_folder(study, "t", key) is None
    assert sorted(path.name for path in (study / "cache").iterdir()) == [kept.name]


def test_a_folder_entry_that_could_not_be_filled_leaves_nothing(study):
    def fill(path):
        (path / "one").write_bytes(b"1")
        raise OSError("disk full")

    assert cache.keep_folder(study, "t", "a" * 64, fill) is None
    assert list((study / "cache").iterdir()) == []


SQL = "SELECT round_id, count(*) FROM requests GROUP BY 1 ORDER BY 1"


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(queries, "CACHED_FROM_ROUNDS", 1)


def tables(study):
    return list((study / "cache").glob("tables-*"))


@pytest.mark.usefixtures("small")
def test_queries_from_the_cache_say_the_same(study):
    direct = query(study, SQL)
    (kept,) = tables(study)
    assert query(study, SQL) == direct
    for table in queries.TABLES:
        assert query(study, f"DESCRIBE {table}")[1] == described(study, table)
    with Study.resume(study, even_finished=True) as writer:
        writer.write_round(make_round("r9", index=9))
    assert [row[0] for row in query(study, SQL)[1]] == ["r0", "r1", "r2", "r9"]
    assert tables(study) != [kept]
    assert len(tables(study)) == 1


def described(study, table):
    with queries._connection(open_study(study)) as connection:
        return connection.execute(f"DESCRIBE {table}").fetchall()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("manifest_fits", [True, False])
def test_a_damaged_cache_is_made_anew(study, manifest_fits):
    truth = query(study, SQL)
    (kept,) = tables(study)
    (kept / "requests.parquet").write_bytes(b"PAR1 nonsense")
    if manifest_fits:
        found = cache._manifest(kept)
        (kept / cache.MANIFEST_NAME).write_bytes(msgspec.json.encode(found))
    assert query(study, SQL) == truth
    assert query(study, SQL) == truth


@pytest.mark.usefixtures("small")
def test_a_query_from_the_cache_reads_nothing_else(study, tmp_path):
    query(study, SQL)
    other = tmp_path / "other.parquet"
    duckdb.sql(f"COPY (SELECT 1 AS a) TO '{other}'")
    for sql in (f"FROM '{other}'", "FROM read_csv('/etc/hostname')", "SET threads = 1"):
        with pytest.raises(UsageError):
            query(study, sql)


def test_groups_of_rounds_are_read_as_single_ones_are(study):
    reader = open_study(study)
    groups = [["r2", "r0"], [], ["r1"]]
    loaded = list(open_study(study).load_groups(groups))
    assert loaded == [[reader.load_round(name) for name in group] for group in groups]


def test_a_damaged_round_in_a_group_is_named(study):
    (study / "rounds" / "r1" / "events.parquet").write_bytes(b"nonsense")
    with pytest.raises(StudyUnreadable, match="round r1"):
        list(open_study(study).load_groups([["r0", "r1", "r2"]]))


def test_rows_that_are_not_on_record_are_noticed(study):
    shutil.copy(
        study / "rounds" / "r1" / "requests.parquet", study / "rounds" / "r0" / "requests.parquet"
    )
    record = study / "rounds" / "r0" / "round.json"
    record.write_text(record.read_text().replace('"requests": 2', '"requests": 3'))
    (loaded,) = open_study(study).load_groups([["r0", "r1"]])
    assert [len(each.requests) for each in loaded] == [2, 2]

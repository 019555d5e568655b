import csv
import json
import shutil
from pathlib import Path

import duckdb
import msgspec
import pytest

from concbench.errors import OutputUnusable, StudyUnreadable, UsageError
from concbench.store.correct import retract
from concbench.store.query import export, query
from concbench.store.read import open_study
from concbench.store.schema import TABLES
from tests.store.build import create, finished, make_round


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = finished(tmp_path_factory.mktemp("query") / "st[ud]y'*")
    retract(folder, "r1", "wrong")
    return folder


def rows(folder, sql):
    return query(folder, sql)[1]


def test_every_table_has_the_columns_of_the_dictionary(study):
    for table, columns in TABLES.items():
        described = rows(study, f"DESCRIBE {table}")
        assert [row[:2] for row in described] == [(c.name, c.sql_type) for c in columns]


def test_tables_join_by_round(study):
    columns, found = query(
        study,
        "SELECT round_id, count(*) AS n, sum(output_tok) AS tok FROM requests "
        "JOIN rounds USING (round_id) WHERE NOT retracted GROUP BY ALL ORDER BY 1 -- done",
    )
    assert columns == ["round_id", "n", "tok"]
    assert found == [("r0", 2, 10), ("r2", 2, 10)]
    assert rows(study, "SELECT count(*) FROM events") == [(30,)]
    assert rows(study, "SELECT sum(lag_ns) FROM lags WHERE series = 'loop'") == [(9,)]
    assert rows(study, "SELECT cell, concurrency, measured_rounds FROM cells") == [("a-n2", 2, 2)]
    assert rows(study, "FROM samples LIMIT 1")[0][3:5] == ("metrics", "running")
    assert sorted(rows(study, "SHOW TABLES")) == sorted((table,) for table in TABLES)


def test_a_study_without_rounds_has_all_tables(tmp_path):
    create(tmp_path / "s").finish()
    for table, columns in TABLES.items():
        names, found = query(tmp_path / "s", f"SELECT * FROM {table}")
        assert (names, found) == ([column.name for column in columns], [])


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "-- nothing",
        "selec 1",
        "SELECT nothing FROM requests",
        "SELECT 1; SELECT 2",
        "SELECT * FROM unknown",
        "SELECT 1/0 AS x, error('no')",
        "SELECT 'a'::INTEGER",
        "SELECT '\ud835'",
        "SELECT * FROM sql",
    ],
)
def test_wrong_sql_is_one_line(study, sql):
    with pytest.raises(UsageError) as caught:
        query(study, sql)
    assert "\n" not in str(caught.value)


READS = [
    "SELECT * FROM read_csv('{out}')",
    "SELECT * FROM '{out}'",
    "SELECT * FROM read_text('{out}')",
    "SELECT * FROM read_parquet('{study}/rounds/../../secret.csv')",
    "SELECT * FROM read_text('{study}/study.json')",
    "SELECT * FROM glob('/etc/*')",
    "ATTACH '{out}' AS x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "RESET lock_configuration",
]
WRITES = [
    "COPY requests TO '{evil}'",
    "WITH a AS (COPY (SELECT 7) TO '{evil}') SELECT 1",
    "WITH a AS (COPY (SELECT 7) TO '{evil}') SELECT * FROM a",
    "SELECT * FROM query('WITH a AS (COPY (SELECT 7) TO ''{evil}'') SELECT * FROM a')",
    "SELECT * FROM (SELECT 1), (WITH a AS (COPY (SELECT 7) TO '{evil}') SELECT 1)",
    "SELECT * FROM enable_logging(storage = 'file', storage_path = '{evil}')",
    "EXPORT DATABASE '{evil}'",
    "CREATE TABLE x AS SELECT 1",
    "DROP VIEW requests",
    "DELETE FROM rounds",
    "UPDATE rounds SET phase = 'measured'",
    "WITH a AS (INSERT INTO cells SELECT * FROM cells RETURNING *) SELECT * FROM a",
    "EXPLAIN ANALYZE SELECT 1",
    "CALL force_checkpoint()",
    "PRAGMA version",
]


@pytest.mark.parametrize("sql", READS + WRITES)
def test_a_query_reads_the_study_and_nothing_else(study, sql):
    secret = study.parent / "secret.csv"
    secret.write_text("password\nhunter2\n")
    before = sorted(study.parent.rglob("*"))
    quoted = str(study).replace("'", "''")
    for evil in (f"{quoted}/rounds/evil", f"{study.parent}/evil"):
        with pytest.raises(UsageError) as caught:
            query(study, sql.format(out=secret, study=quoted, evil=evil))
        assert "\n" not in str(caught.value)
        assert "hunter2" not in str(caught.value)
    assert sorted(study.parent.rglob("*")) == before


def test_serialised_sql_cannot_write_either(study):
    target = study / "rounds" / "evil"
    quoted = str(target).replace("'", "''")
    with duckdb.connect() as connection:
        hidden = connection.execute(
            "SELECT json_serialize_sql(?)",
            [f"WITH a AS (COPY (SELECT 7) TO '{quoted}') SELECT * FROM a"],
        ).fetchone()[0]
    literal = hidden.replace("'", "''")
    inner = f"SELECT * FROM json_execute_serialized_sql('{literal}')"
    for sql in (inner, "SELECT * FROM query('" + inner.replace("'", "''") + "')"):
        with pytest.raises(UsageError):
            query(study, sql)
    assert not target.exists()


def test_a_query_leaves_nothing_behind(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows(study, "SELECT * FROM events ORDER BY user_ns")
    assert not list(tmp_path.iterdir())


def test_a_damaged_part_is_one_line(tmp_path):
    folder = finished(tmp_path / "s")
    (folder / "rounds" / "r1" / "events.parquet").write_bytes(b"nonsense")
    with pytest.raises(UsageError, match=r"events\.parquet"):
        query(folder, "SELECT count(DISTINCT user_ns) FROM events")
    assert rows(folder, "SELECT count(*) FROM requests") == [(6,)]


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_export_writes_every_table_and_explains_it(study, tmp_path, format_):
    dest = tmp_path / "o'ut"
    written = export(study, dest, format_)
    assert sorted(path.name for path in written) == sorted(path.name for path in dest.iterdir())
    with (dest / "data-dictionary.csv").open(newline="") as file:
        explained = {(row["table"], row["column"]) for row in csv.DictReader(file)}
    for table in TABLES:
        path = str(dest / f"{table}.{format_}").replace("'", "''")
        with duckdb.connect() as connection:
            columns = connection.execute(f"DESCRIBE FROM '{path}'").fetchall()
            count = connection.execute(f"SELECT count(*) FROM '{path}'").fetchone()
        assert {(table, column[0]) for column in columns} <= explained
        assert count == rows(study, f"SELECT count(*) FROM {table}")[0]


def test_export_overwrites_nothing(study, tmp_path):
    (tmp_path / "x").write_text("x")
    for dest in (tmp_path, tmp_path / "x", tmp_path / "x" / "y"):
        with pytest.raises(OutputUnusable):
            export(study, dest, "csv")
    with pytest.raises(UsageError, match="csv or parquet"):
        export(study, tmp_path / "new", "xlsx")
    assert not (tmp_path / "new").exists()


def test_no_study(tmp_path):
    with pytest.raises(StudyUnreadable):
        query(tmp_path, "SELECT 1")


def test_results_can_be_strict_json(study):
    columns, found = query(study, "SELECT * FROM requests")
    json.dumps([dict(zip(columns, row, strict=True)) for row in found], allow_nan=False)


def test_rounds_that_are_gone_are_left_out(tmp_path):
    folder = finished(tmp_path / "s")
    shutil.rmtree(folder / "rounds" / "r1")
    with Path(folder / "rounds" / "r2" / "events.parquet").open("rb"):
        (folder / "rounds" / "r2" / "events.parquet").unlink()
    assert rows(folder, "SELECT count(DISTINCT round_id) FROM events") == [(1,)]
    assert rows(folder, "SELECT count(*) FROM rounds") == [(2,)]


def test_big_seeds_do_not_break_the_tables(tmp_path):
    round_ = make_round()
    big = msgspec.structs.replace(round_.workload, seed=2**70, extra_body={"x": -(2**99)})
    with create(tmp_path / "s") as writer:
        writer.write_round(make_round(workload=big))
    assert rows(tmp_path / "s", "SELECT round_id FROM rounds") == [("r1",)]
    assert open_study(tmp_path / "s").load_round("r1").workload == big

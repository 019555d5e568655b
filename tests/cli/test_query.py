import csv
import io
import json

import duckdb
import pytest

from concbench.cli.main import main
from concbench.cli.query import unique
from concbench.store.schema import TABLES
from tests.cli.studies import interleaved


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("query") / "s"
    return interleaved(folder, {"a": {1: 50.0, 2: 90.0}, "b": {1: 55.0}}, rounds=2)


def said(capsys, *words):
    code = main(["query", *map(str, words)])
    out = capsys.readouterr()
    return code, out.out, out.err


CELLS = "SELECT lane, concurrency, measured_rounds FROM cells ORDER BY ALL"


def test_a_table_on_the_terminal(capsys, study):
    code, out, _ = said(capsys, study, CELLS)
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["lane", "concurrency", "measured_rounds"],
        ["a", "1", "2"],
        ["a", "2", "2"],
        ["b", "1", "2"],
    ]


@pytest.mark.parametrize("first", [True, False])
def test_json_wherever_the_option_stands(capsys, study, first):
    sql = "SELECT lane, NULL AS lane, 1.5::DECIMAL(3, 1) AS d, concurrency FROM cells LIMIT 1"
    words = ["--json", study, sql] if first else [study, "--json", sql]
    code, out, _ = said(capsys, *words)
    assert code == 0
    assert json.loads(out) == [{"lane": "a", "lane_2": None, "d": "1.5", "concurrency": 1}]


def test_csv_and_markdown(capsys, study):
    _, out, _ = said(capsys, study, CELLS, "--csv")
    assert list(csv.reader(io.StringIO(out)))[1] == ["a", "1", "2"]
    _, out, _ = said(capsys, study, CELLS, "--markdown")
    assert out.splitlines()[:3] == [
        "| lane | concurrency | measured\\_rounds |",
        "| --- | ---: | ---: |",
        "| a | 1 | 2 |",
    ]


def test_no_rows_are_an_answer(capsys, study):
    for shape in ([], ["--csv"], ["--markdown"], ["--json"]):
        assert said(capsys, study, "FROM cells WHERE false", *shape)[0] == 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/hostname')",
        "COPY cells TO '/tmp/never.csv'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SELEC 1",
        "DROP TABLE cells",
    ],
)
def test_it_reads_the_study_and_nothing_else(capsys, study, sql):
    code, out, err = said(capsys, study, sql)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_the_dictionary_needs_no_study(capsys):
    code, out, _ = said(capsys, "--tables", "--json")
    assert code == 0
    assert {(row["table"], row["column"]) for row in json.loads(out)} == {
        (table, column.name) for table, columns in TABLES.items() for column in columns
    }


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_export_holds_every_table(capsys, study, tmp_path, kind):
    code, out, _ = said(capsys, study, "--export", tmp_path / "out", "--format", kind)
    assert code == 0
    assert len(out.splitlines()) == len(TABLES) + 1
    for table in TABLES:
        path = tmp_path / "out" / f"{table}.{kind}"
        (told,) = said(capsys, study, f"SELECT count(*) AS n FROM {table}", "--csv")[1:2]
        found = duckdb.sql(f"SELECT count(*) FROM read_{kind}('{path}')").fetchall()
        assert found == [(int(told.split()[1]),)]
    assert (tmp_path / "out" / "data-dictionary.csv").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "name a study"),
        (["{study}"], "give a query"),
        (["{study}", "SELECT 1", "--export", "x"], "either a query or"),
        (["/nowhere", "SELECT 1"], "no such folder"),
        (["{study}", "SELECT 1", "--json", "--csv"], "not allowed with"),
    ],
)
def test_what_is_wrong_in_one_line(capsys, study, words, part):
    code, _, err = said(capsys, *(word.format(study=study) for word in words))
    assert code == 2
    assert part in err
    assert len(err.splitlines()) == 1


def test_equal_names_become_different():
    assert unique(["a", "a", "a_2", "a"]) == ["a", "a_2", "a_2_2", "a_3"]

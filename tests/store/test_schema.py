from dataclasses import fields

import pytest

from concbench.domain import Events, RequestRecord, ServerSample
from concbench.errors import StudyUnreadable
from concbench.store import schema


def names(columns):
    return [column.name for column in columns]


def test_the_tables_hold_every_field_of_the_records():
    assert names(schema.REQUESTS) == list(RequestRecord.__struct_fields__)
    assert names(schema.SAMPLES) == list(ServerSample.__struct_fields__)
    assert names(schema.EVENTS) == [field.name for field in fields(Events)]


def test_every_column_is_explained():
    rows = schema.data_dictionary()
    assert {row["table"] for row in rows} == set(schema.TABLES)
    assert all(row["meaning"] and row["type"] for row in rows)
    assert all(row["unit"] for row in rows if row["column"].endswith(("_ns", "_tok")))


@pytest.mark.parametrize("found", [None, 1, "", "concbench.study", "concbench.result/1", "x/²"])
def test_something_else_is_no_study(found):
    with pytest.raises(StudyUnreadable, match="no schema"):
        schema.migrate({"schema": found}, "study.json")


def test_a_newer_study_asks_for_an_upgrade():
    with pytest.raises(StudyUnreadable, match=r"newer concbench .*study/2.*upgrade"):
        schema.migrate({"schema": "concbench.study/2"}, "study.json")


def test_an_older_study_goes_through_every_migration(monkeypatch):
    monkeypatch.setattr(schema, "_SCHEMA_NUMBER", 3)
    monkeypatch.setitem(schema.MIGRATIONS, 1, lambda study: study | {"one": True})
    monkeypatch.setitem(schema.MIGRATIONS, 2, lambda study: study | {"two": study["one"]})
    migrated = schema.migrate({"schema": "concbench.study/1"}, "study.json")
    assert migrated["two"] is True


def test_a_format_that_never_was_is_refused():
    with pytest.raises(StudyUnreadable, match="never was"):
        schema.migrate({"schema": "concbench.study/0"}, "study.json")


def test_joins_need_no_qualified_names():
    def shared(one, other):
        return set(names(schema.TABLES[one])) & set(names(schema.TABLES[other]))

    for part in schema.PARTS:
        assert shared(part, "rounds") == {"round_id"}
        assert shared(part, "cells") == set()
    assert shared("rounds", "cells") == {"cell"}

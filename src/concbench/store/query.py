"""SQL on a study, and its tables in other programs' formats.

A query sees the tables of `concbench.store.schema` and nothing else: it can neither read another
file nor write one.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal

import duckdb

from concbench.errors import OutputUnusable, StudyUnreadable, UsageError
from concbench.store import parts
from concbench.store.cache import identity, keep_folder, kept_folder
from concbench.store.files import output_errors
from concbench.store.read import StudyReader, open_study
from concbench.store.record import ROUNDS_NAME
from concbench.store.schema import PARTS, TABLES, data_dictionary

ExportFormat = Literal["csv", "parquet"]

DICTIONARY_NAME = "data-dictionary.csv"

_MEMORY_LIMIT = "400MB"
# A COPY can hide in a WITH clause, and serialised SQL can hide anything: the plan shows both.
_OPERATOR = re.compile(r'"name": "([A-Z0-9_ ]+)"')
_WRITES = re.compile(r"COPY|INSERT|UPDATE|DELETE|MERGE|CREATE|DROP|ALTER|ATTACH|EXECUTE|EXPORT")


def query(folder: Path, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the column names and the rows of one SELECT on the study.

    DESCRIBE, SUMMARIZE and SHOW TABLES work too. Beyond 400 MB DuckDB spills to a temporary
    folder. Raises UsageError, in one line, for anything that is wrong with the SQL or that
    would write, StudyUnreadable as `open_study` does.
    """
    key = identity(folder)
    kept = None if key is None else kept_folder(folder, _TABLES_ENTRY, key)
    if kept is None:
        reader = open_study(folder)
        if key is not None and len(reader.rounds()) >= CACHED_FROM_ROUNDS:
            kept = keep_folder(folder, _TABLES_ENTRY, key, lambda path: _gather(reader, path))
    if kept is not None:
        try:
            return _answer(_cached(kept), sql)
        except _CacheUnusable:
            shutil.rmtree(kept, ignore_errors=True)
    return _answer(_connection(open_study(folder)), sql)


CACHED_FROM_ROUNDS = 200
"""From so many rounds on, their tables are also kept as one file each: opening thousands takes
seconds."""

_TABLES_ENTRY = "tables"


class _CacheUnusable(Exception):
    """A kept table cannot be read: the rounds' own files can."""


def _answer(
    opened: AbstractContextManager[duckdb.DuckDBPyConnection], sql: str
) -> tuple[list[str], list[tuple[Any, ...]]]:
    with opened as connection:
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        try:
            _require_reading(connection, sql)
            cursor = connection.execute(sql)
            return [column[0] for column in cursor.description], cursor.fetchall()
        except duckdb.Error as error:
            raise UsageError(f"the query failed: {_first_lines(error)}") from error


def _gather(reader: StudyReader, path: Path) -> None:
    """Write every table of the study as one file into `path`. Raises OSError."""
    with _connection(reader) as connection:
        connection.execute("SET threads = 1")
        connection.execute("SET memory_limit = '200MB'")
        try:
            for table in TABLES:
                target = parts.sql_text(str((path / f"{table}.parquet").absolute()))
                connection.execute(f"COPY {table} TO {target} ({_COPY_OPTIONS['parquet']})")
        except duckdb.Error as error:
            raise OSError(str(error)) from error


@contextmanager
def _cached(kept: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with every table from a cache, allowed to read its folder.

    Raises _CacheUnusable where a table is damaged or has just been removed.
    """
    with _opened(kept) as connection:
        try:
            for table in TABLES:
                path = parts.sql_path(parts.part_path(kept, table))
                connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet([{path}])")
        except duckdb.Error as error:
            raise _CacheUnusable from error
        try:
            yield connection
        except UsageError as error:
            if isinstance(error.__cause__, duckdb.IOException | duckdb.InvalidInputException):
                raise _CacheUnusable from error
            raise


def export(folder: Path, dest: Path, format: ExportFormat) -> list[Path]:  # noqa: A002
    """Write every table of the study, and the data dictionary, into a new or empty folder.

    Returns the files. Raises UsageError for an unknown format, OutputUnusable when `dest` holds
    something or cannot be written, StudyUnreadable as `open_study` does.
    """
    if format not in _COPY_OPTIONS:
        raise UsageError(f"unknown export format {format!r}: expected csv or parquet")
    reader = open_study(folder)
    with output_errors(dest):
        if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
            raise OutputUnusable(f"{dest} is not an empty folder: choose another")
        dest.mkdir(parents=True, exist_ok=True)
    files = [dest / f"{table}.{format}" for table in TABLES]
    with _connection(reader) as connection:
        try:
            for table, path in zip(TABLES, files, strict=True):
                target = parts.sql_text(str(path.absolute()))
                connection.execute(f"COPY {table} TO {target} ({_COPY_OPTIONS[format]})")
        except duckdb.Error as error:
            raise OutputUnusable(f"cannot export to {dest}: {_first_lines(error)}") from error
    dictionary = dest / DICTIONARY_NAME
    with output_errors(dest):
        dictionary.write_text(_dictionary_csv(), encoding="utf-8")
    return [*files, dictionary]


_COPY_OPTIONS = {"csv": "FORMAT csv, HEADER", "parquet": "FORMAT parquet, COMPRESSION zstd"}


def _dictionary_csv() -> str:
    rows = data_dictionary()
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _first_lines(error: duckdb.Error) -> str:
    """Return the message without the picture of the query that follows it, as one line."""
    return " ".join(str(error).split("\n\nLINE ")[0].split())


def _require_reading(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the query is not valid UTF-8") from error
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise UsageError(
            "a query is one SELECT (or DESCRIBE, SUMMARIZE, SHOW TABLES): a study is read only"
        )
    plan = connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()
    for operator in _OPERATOR.findall(" ".join(str(row[-1]) for row in plan)):
        if _WRITES.search(operator):
            raise UsageError(f"a study is read only: the query would run {operator}")


@contextmanager
def _connection(reader: StudyReader) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with every table of the study, allowed to read its rounds' folder."""
    with _opened(reader.folder.absolute() / ROUNDS_NAME) as connection:
        _create_rounds(connection, reader)
        for table in PARTS:
            _create_part(connection, reader, table)
        yield connection


@contextmanager
def _opened(*folders: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection that may read the folders and spill to a temporary one."""
    with tempfile.TemporaryDirectory(prefix="concbench-query-") as spill:
        connection = parts.connect(
            threads=2, memory_limit=_MEMORY_LIMIT, temp_directory=spill, enable_object_cache=True
        )
        try:
            # The check compares the path as it is written in the views, which may be escaped.
            absolute = [path.absolute() for path in folders]
            texts = [text for p in absolute for text in (parts.sql_text(str(p)), parts.sql_path(p))]
            connection.execute(f"SET allowed_directories = [{', '.join(texts)}]")
            yield connection
        finally:
            connection.close()


def _create_part(connection: duckdb.DuckDBPyConnection, reader: StudyReader, table: str) -> None:
    rounds = reader.folder / ROUNDS_NAME
    files = [parts.part_path(rounds / info.round_id, table) for info in reader.rounds()]
    present = ", ".join(parts.sql_path(path) for path in files if path.exists())
    if present:
        try:
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet([{present}])")
        except duckdb.Error as error:
            raise StudyUnreadable(
                f"the table {table} of {reader.folder} is damaged: {_first_lines(error)}"
            ) from error
    else:
        connection.execute(f"CREATE TABLE {table} ({_columns_sql(table)})")


def _columns_sql(table: str) -> str:
    return ", ".join(f'"{column.name}" {column.sql_type}' for column in TABLES[table])


def _create_rounds(connection: duckdb.DuckDBPyConnection, reader: StudyReader) -> None:
    infos = reader.rounds()
    rounds = [
        {
            "round_id": info.round_id,
            "cell": info.cell.cell,
            "round_index": info.index,
            "phase": info.phase,
            "retracted": info.retracted,
            "round_outcome": info.outcome,
            "round_outcome_detail": info.outcome_detail,
            "interrupted": info.interrupted,
            "began_utc": info.began_utc,
            "round_start_ns": info.start_ns,
            "round_end_ns": info.end_ns,
            "arrival": info.workload.arrival,
            "workload_seed": info.workload.seed,
            "workload_prompt_tok": info.workload.prompt_tokens,
            "workload_output_tok": info.workload.output_tokens,
            "stamp": info.instrument.stamp,
            "min_rtt_ns": info.instrument.min_rtt_ns,
            "client_cpu": info.instrument.client_cpu,
            "request_count": info.requests,
            "event_count": info.events,
            "sample_count": info.samples,
        }
        for info in infos
    ]
    cells: dict[str, dict[str, Any]] = {}
    for info in infos:
        cell = cells.setdefault(
            info.cell.cell,
            {name: getattr(info.cell, name) for name in info.cell.__struct_fields__}
            | {"measured_rounds": 0},
        )
        cell["measured_rounds"] += info.phase == "measured" and not info.retracted
    parts.create_table(connection, "rounds", rounds)
    parts.create_table(connection, "cells", list(cells.values()))

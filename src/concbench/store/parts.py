"""The tables of a round as Parquet files, written and read by DuckDB.

Numbers go from Python's arrays to DuckDB through numpy views without a copy; a million token
events take about a tenth of a second.
"""

from __future__ import annotations

import glob
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
from numpy.typing import NDArray

from concbench.domain import Events, RequestRecord, Round, ServerSample
from concbench.store.schema import LAGS, REQUESTS, SAMPLES, TABLES, Column
from concbench.store.text import escape_text, unescape_text

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_TYPECODES = {
    "request": "i",
    "read": "i",
    "kernel_ns": "q",
    "user_ns": "q",
    "kind": "b",
    "tokens": "f",
}


def connect(**settings: str | bool | int) -> duckdb.DuckDBPyConnection:
    """Return an in-memory DuckDB on one thread that never fetches an extension."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
        # All-null text would otherwise be taken for a type of its own.
        "pandas_analyze_sample": 0,
    }
    return duckdb.connect(":memory:", config={**config, **settings})


def part_path(folder: Path, table: str) -> Path:
    """Return where a round's folder keeps a table."""
    return folder / f"{table}.parquet"


def sql_text(text: str) -> str:
    """Return a string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def sql_path(path: Path) -> str:
    """Return a path as an SQL literal that matches that file alone, whatever its name."""
    return sql_text(glob.escape(str(path.absolute())))


def write_parts(connection: duckdb.DuckDBPyConnection, folder: Path, round_: Round) -> None:
    """Write every table of the round into `folder`.

    Raises duckdb.Error where the disk does not take it, ValueError for columns of unequal length.
    """
    tables = {
        "requests": _struct_arrays(REQUESTS, round_.requests),
        "events": _event_arrays(round_.events),
        "samples": _struct_arrays(SAMPLES, round_.samples),
        "lags": _lag_arrays(round_),
    }
    for table, arrays in tables.items():
        _copy(connection, part_path(folder, table), round_.round_id, table, arrays)


def create_table(
    connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Create a table of the schema in memory, with one row a mapping keyed by column."""
    columns = TABLES[table]
    arrays = {c.name: _column_array(c, [row[c.name] for row in rows]) for c in columns}
    with _registered(connection, arrays):
        connection.execute(f"CREATE TABLE {table} AS SELECT {_typed(columns)} FROM part")


def _copy(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    round_id: str,
    table: str,
    arrays: dict[str, NDArray[Any]],
) -> None:
    columns = _typed(TABLES[table][1:])
    with _registered(connection, arrays):
        connection.execute(
            f"COPY (SELECT {sql_text(round_id)} AS round_id, {columns} FROM part) "
            f"TO {sql_text(str(path.absolute()))} "
            "(FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
        )


@contextmanager
def _registered(
    connection: duckdb.DuckDBPyConnection, arrays: dict[str, NDArray[Any]]
) -> Iterator[None]:
    connection.register("part", arrays)
    try:
        yield
    finally:
        connection.unregister("part")


def _typed(columns: Sequence[Column]) -> str:
    return ", ".join(
        f'from_json("{c.name}", \'["VARCHAR"]\') AS "{c.name}"'
        if c.sql_type == "VARCHAR[]"
        else f'"{c.name}"::{c.sql_type} AS "{c.name}"'
        for c in columns
    )


def _event_arrays(events: Events) -> dict[str, NDArray[Any]]:
    arrays = {name: np.asarray(getattr(events, name)) for name in _TYPECODES}
    if len({len(column) for column in arrays.values()}) != 1:
        raise ValueError("the columns of a round's events differ in length")
    return arrays


def _lag_arrays(round_: Round) -> dict[str, NDArray[Any]]:
    reads, loops = round_.instrument.read_lateness_ns, round_.instrument.loop_lag_ns
    series = np.array(["read"] * len(reads) + ["loop"] * len(loops), dtype=object)
    return {LAGS[0].name: series, LAGS[1].name: _integers([*reads, *loops])}


def _struct_arrays(columns: Sequence[Column], rows: Sequence[Any]) -> dict[str, NDArray[Any]]:
    return {
        column.name: _column_array(column, [getattr(row, column.name) for row in rows])
        for column in columns
    }


def _column_array(column: Column, values: list[Any]) -> NDArray[Any]:
    if column.sql_type == "BOOLEAN":
        return np.array(values, dtype=np.bool_)
    if column.sql_type == "BIGINT":
        return _integers(values)
    if column.sql_type == "DOUBLE":
        return _floats(values, nullable=column.nullable)
    if column.sql_type == "VARCHAR[]":
        values = [msgspec.json.encode([escape_text(t) for t in row]).decode() for row in values]
    else:
        values = [None if value is None else escape_text(value) for value in values]
    texts: NDArray[Any] = np.empty(len(values), dtype=object)
    texts[:] = values
    return texts


def _integers(values: list[Any]) -> NDArray[Any]:
    """Return int64 with None masked. A count no counter can have had must not cost the round."""
    plain = [0 if value is None else value for value in values]
    try:
        numbers = np.array(plain, dtype=np.int64)
    except OverflowError:
        limited = [min(max(value, _INT64_MIN), _INT64_MAX) for value in plain]
        numbers = np.array(limited, dtype=np.int64)
    missing = [value is None for value in values]
    return np.ma.MaskedArray(numbers, mask=missing) if any(missing) else numbers


def _floats(values: list[Any], *, nullable: bool) -> NDArray[Any]:
    """Return float64; None and, where null says the same, NaN are masked."""
    numbers = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    missing = np.isnan(numbers)
    return np.ma.MaskedArray(numbers, mask=missing) if nullable and missing.any() else numbers


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one round. `lags` holds `read` and `loop` lags in nanoseconds."""

    requests: list[RequestRecord]
    events: Events
    samples: list[ServerSample]
    lags: dict[str, list[int]]


def read_tables(connection: duckdb.DuckDBPyConnection, folder: Path) -> Tables:
    """Return the tables of a round as they were. Raises duckdb.Error for a damaged file."""
    return Tables(
        requests=read_requests(connection, folder),
        events=read_events(connection, folder),
        samples=read_samples(connection, folder),
        lags=read_lags(connection, folder),
    )


def read_many(
    connection: duckdb.DuckDBPyConnection,
    rounds: Path,
    counts: Sequence[tuple[str, int, int, int]],
) -> dict[str, Tables]:
    """Return the tables of several rounds by id, read together.

    `counts` are (id, requests, events, samples) as on record: they tell where one round ends and
    the next begins. Raises duckdb.Error for a damaged file, ValueError where the counts are not
    those of the files.
    """
    folders = [rounds / name for name, *_ in counts]
    requests = read_requests(connection, *folders)
    events = read_events(connection, *folders)
    samples = read_samples(connection, *folders)
    lags = _lags_by_round(connection, folders)
    totals = [sum(column) for column in list(zip(*counts, strict=True))[1:]]
    if totals != [len(requests), len(events), len(samples)]:
        raise ValueError("the files do not hold as many rows as are on record")
    tables, at = {}, [0, 0, 0]
    for name, *sizes in counts:
        ends = [start + size for start, size in zip(at, sizes, strict=True)]
        tables[name] = Tables(
            requests=requests[at[0] : ends[0]],
            events=Events(
                **{column: getattr(events, column)[at[1] : ends[1]] for column in _TYPECODES}
            ),
            samples=samples[at[2] : ends[2]],
            lags=lags.get(name, {"read": [], "loop": []}),
        )
        at = ends
    return tables


def read_requests(connection: duckdb.DuckDBPyConnection, *folders: Path) -> list[RequestRecord]:
    """Return the requests of rounds as they were. Raises duckdb.Error for a damaged file."""
    return [
        RequestRecord(**{**row, "notes": tuple(row["notes"])})
        for row in _rows(connection, folders, "requests")
    ]


def read_samples(connection: duckdb.DuckDBPyConnection, *folders: Path) -> list[ServerSample]:
    """Return the samples of rounds as they were. Raises duckdb.Error for a damaged file."""
    return [ServerSample(**row) for row in _rows(connection, folders, "samples")]


def read_events(connection: duckdb.DuckDBPyConnection, *folders: Path) -> Events:
    """Return the events of rounds as they were. Raises duckdb.Error for a damaged file."""
    names = ", ".join(_TYPECODES)
    sql = f"SELECT {names} FROM read_parquet([{_paths(folders, 'events')}])"
    columns = connection.execute(sql).fetchnumpy()
    return Events(**{name: _array(code, columns[name]) for name, code in _TYPECODES.items()})


def _array(typecode: str, column: NDArray[Any]) -> Any:  # noqa: ANN401 - int or float by typecode
    values: array[Any] = array(typecode)
    values.frombytes(column.tobytes())
    return values


def read_lags(connection: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, list[int]]:
    """Return `read` and `loop` lags in nanoseconds. Raises duckdb.Error for a damaged file."""
    found = _lags_by_round(connection, [folder])
    return next(iter(found.values()), {"read": [], "loop": []})


def _lags_by_round(
    connection: duckdb.DuckDBPyConnection, folders: Sequence[Path]
) -> dict[str, dict[str, list[int]]]:
    """Return the lags of rounds by id; rounds without any are missing."""
    sql = f"SELECT round_id, series, lag_ns FROM read_parquet([{_paths(folders, 'lags')}])"
    columns = connection.execute(sql).fetchnumpy()
    ids, series, lags = columns["round_id"], columns["series"], columns["lag_ns"]
    starts = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1), len(ids)] if len(ids) else [0]
    found = {}
    for start, end in pairwise(starts):
        kinds, values = series[start:end], lags[start:end]
        split = {name: values[kinds == name].tolist() for name in ("read", "loop")}
        if sum(map(len, split.values())) != len(values):
            raise KeyError("a series of lags that is neither read nor loop")
        found[str(ids[start])] = split
    return found


def _paths(folders: Sequence[Path], table: str) -> str:
    return ", ".join(sql_path(part_path(folder, table)) for folder in folders)


def _rows(
    connection: duckdb.DuckDBPyConnection, folders: Sequence[Path], table: str
) -> Iterable[dict[str, Any]]:
    files = _paths(folders, table)
    cursor = connection.execute(f"SELECT * EXCLUDE (round_id) FROM read_parquet([{files}])")
    names = [column[0] for column in cursor.description]
    types = {column.name: column.sql_type for column in TABLES[table]}
    columns: list[Sequence[Any]] = list(zip(*cursor.fetchall(), strict=True))
    for place, name in enumerate(names if columns else ()):
        if types.get(name) == "VARCHAR":
            columns[place] = _restored(columns[place])
        elif types.get(name) == "VARCHAR[]":
            columns[place] = [
                row and [unescape_text(text) for text in row] for row in columns[place]
            ]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def _restored(texts: Sequence[str | None]) -> Sequence[str | None]:
    """Return a column of texts as they were given. Few differ, so each is looked at once."""
    plain = {text: unescape_text(text) for text in set(texts) if text is not None}
    if all(text == given for text, given in plain.items()):
        return texts
    return [None if text is None else plain[text] for text in texts]

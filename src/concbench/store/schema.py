"""What is in a study: the version of its format, every table and column, and the migrations.

Format history:

- `concbench.study/1`: the first. `study.json`, `log.jsonl`, and one folder a round with
  `round.json`, `requests.parquet`, `events.parquet`, `samples.parquet` and `lags.parquet`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from concbench.errors import StudyUnreadable

STUDY_SCHEMA = "concbench.study/1"
_SCHEMA_NAME, _SCHEMA_NUMBER = "concbench.study", 1


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its SQL type, its unit (empty where it has none) and its meaning."""

    name: str
    sql_type: str
    unit: str
    meaning: str
    nullable: bool = False


def _stamp(name: str, meaning: str, *, nullable: bool = True) -> Column:
    return Column(name, "BIGINT", "ns, monotonic", meaning, nullable)


def _tok(name: str, meaning: str, *, nullable: bool = True) -> Column:
    return Column(name, "BIGINT", "tokens", meaning, nullable)


def _text(name: str, meaning: str, *, nullable: bool = True) -> Column:
    return Column(name, "VARCHAR", "", meaning, nullable)


def _count(name: str, meaning: str) -> Column:
    return Column(name, "BIGINT", "count", meaning)


REQUESTS = (
    Column("index", "BIGINT", "", "number of the request within its round; events refer to it"),
    Column("worker", "BIGINT", "", "number of the worker (user) that sent it"),
    _stamp("due_ns", "when the schedule said that it was to be sent", nullable=False),
    _stamp("sent_ns", "when its first byte was written"),
    _text("outcome", "ok, failed or incomplete (cut off by the end of the round)", nullable=False),
    Column(
        "connect_ns", "BIGINT", "ns", "how long connecting took, before the clock started", True
    ),
    _stamp("send_done_ns", "when its last byte was written"),
    _stamp("first_byte_ns", "when the first byte of the response arrived"),
    _stamp("first_token_ns", "the first token event"),
    _stamp("first_visible_ns", "the first token event that is not reasoning"),
    _stamp("last_token_ns", "the last token event"),
    _stamp("end_ns", "when the response was complete or given up"),
    Column("http_status", "BIGINT", "", "status of the response", True),
    _text("error", "kind of failure, such as http_503, timeout, truncated; null when ok"),
    _text("error_detail", "what the server or the system said about the failure"),
    _text("finish_reason", "why the server ended the answer: length, stop, tool_calls, …"),
    _tok("asked_output_tok", "output tokens asked for", nullable=False),
    _tok("asked_prompt_tok", "prompt tokens that the prompt was made to have"),
    _tok("prompt_tok", "prompt tokens that the server counted"),
    _tok("cached_tok", "prompt tokens that the server took from its cache"),
    _tok("output_tok", "output tokens received, reasoning included", nullable=False),
    _tok("reasoning_tok", "output tokens that were reasoning"),
    _text("token_source", "where the count is from: usage, continuous_usage, timings, …"),
    _count("events", "token events received"),
    Column("first_event_tok", "DOUBLE", "tokens", "tokens that the first token event carried"),
    _count("reads", "reads from the socket"),
    Column("notes", "VARCHAR[]", "", "remarks of the client about this response"),
    _text("prompt_sha256", "SHA-256 of the prompt"),
    _text("text", "the answer, where it was asked to be kept"),
)

EVENTS = (
    Column("request", "INTEGER", "", "index of the request"),
    Column(
        "read", "INTEGER", "", "number of the read, within its stream, that completed the event"
    ),
    _stamp("kernel_ns", "the kernel's stamp of that read; 0 where there was none", nullable=False),
    _stamp("user_ns", "the client's own stamp of that read", nullable=False),
    Column("kind", "TINYINT", "", "0 content, 1 reasoning, 2 tool call"),
    Column("tokens", "FLOAT", "tokens", "tokens carried; fractional where a total was spread"),
)

SAMPLES = (
    _stamp("sent_ns", "when the server was asked", nullable=False),
    _stamp("received_ns", "when its answer was there", nullable=False),
    _text("source", "metrics, log, slots, …", nullable=False),
    _text("name", "canonical name of the quantity", nullable=False),
    _text("labels", "labels that tell replicas and ranks apart", nullable=False),
    Column(
        "value", "DOUBLE", "as named", "the reading; null where the server gave no number", True
    ),
)

LAGS = (
    _text("series", "read: user stamp − kernel stamp; loop: lateness of a tick", nullable=False),
    Column("lag_ns", "BIGINT", "ns", "one observation, in the order in which they were made"),
)

ROUNDS = (
    _text("cell", "id of the cell", nullable=False),
    Column("round_index", "BIGINT", "", "number of the round within its cell"),
    _text("phase", "warmup, measured or discarded", nullable=False),
    Column("retracted", "BOOLEAN", "", "whether a correction withdrew it"),
    _text("round_outcome", "measured, context_rejected, oom, crashed, hung, …", nullable=False),
    _text("round_outcome_detail", "what is known about that outcome"),
    Column("interrupted", "BOOLEAN", "", "whether a signal cut it short"),
    _text("began_utc", "wall clock at its beginning, for labels only", nullable=False),
    _stamp("round_start_ns", "when its schedule began", nullable=False),
    _stamp("round_end_ns", "when its last response ended", nullable=False),
    _text("arrival", "burst, closed, constant, poisson or trace", nullable=False),
    Column("workload_seed", "BIGINT", "", "seed of its prompts and schedule"),
    _tok("workload_prompt_tok", "prompt tokens asked for", nullable=False),
    _tok("workload_output_tok", "output tokens asked for", nullable=False),
    _text("stamp", "kernel or user: which stamps could be had", nullable=False),
    Column("min_rtt_ns", "BIGINT", "ns", "smallest round trip that TCP saw", True),
    Column("client_cpu", "DOUBLE", "CPU s per s", "CPU that the client used", True),
    _count("request_count", "requests on record"),
    _count("event_count", "token events on record"),
    _count("sample_count", "server samples on record"),
)

CELLS = (
    _text("cell", "id of the cell", nullable=False),
    _text("lane", "name of the lane", nullable=False),
    Column("concurrency", "BIGINT", "requests", "requests in flight, or at once"),
    _tok("context_tok", "prompt tokens of the cell", nullable=False),
    _text("context_label", "how the plan names that context", nullable=False),
    _text("link", "network link in use"),
    Column("rate_rps", "DOUBLE", "requests per s", "offered rate of an open loop", True),
    _count("measured_rounds", "measured rounds that stand"),
)

_ROUND_ID = _text("round_id", "id of the round, the name of its folder", nullable=False)

TABLES: dict[str, tuple[Column, ...]] = {
    "requests": (_ROUND_ID, *REQUESTS),
    "events": (_ROUND_ID, *EVENTS),
    "samples": (_ROUND_ID, *SAMPLES),
    "lags": (_ROUND_ID, *LAGS),
    "rounds": (_ROUND_ID, *ROUNDS),
    "cells": CELLS,
}
"""Every table that `query` and `export` offer, column by column.

`rounds` joins the others by `round_id` and `cells` by `cell`, and shares no other name with them,
so that a query across them needs no qualified names."""

PARTS = ("requests", "events", "samples", "lags")
"""The tables that are Parquet files in a round's folder."""

Migration = Callable[[dict[str, Any]], dict[str, Any]]

MIGRATIONS: dict[int, Migration] = {}
"""`MIGRATIONS[n]` turns the `study.json` of format n into that of format n + 1, in memory:
what is on disk stays as it was written. Format 1 is the oldest, so there is none yet."""


def migrate(study: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the content of a `study.json` in the newest format.

    `where` names the file in the message. Raises StudyUnreadable when the format is unknown or
    newer than this program.
    """
    name, _, number = str(study.get("schema")).rpartition("/")
    if name != _SCHEMA_NAME or not number.isascii() or not number.isdigit():
        raise StudyUnreadable(f"{where} is not the record of a study: no schema {_SCHEMA_NAME}/N")
    version = int(number)
    if version > _SCHEMA_NUMBER:
        raise StudyUnreadable(
            f"{where} was written by a newer concbench (schema {study['schema']}); this one reads "
            f"up to {STUDY_SCHEMA}: upgrade concbench"
        )
    while version < _SCHEMA_NUMBER:
        if version not in MIGRATIONS:
            raise StudyUnreadable(f"{where} has schema {study['schema']}, which never was released")
        study = MIGRATIONS[version](study)
        version += 1
    return study


def data_dictionary() -> list[dict[str, str]]:
    """Return one row a column of every table: table, column, type, unit, null, meaning."""
    return [
        {
            "table": table,
            "column": column.name,
            "type": column.sql_type,
            "unit": column.unit,
            "null": "yes" if column.nullable else "no",
            "meaning": column.meaning,
        }
        for table, columns in TABLES.items()
        for column in columns
    ]

import math
from array import array

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from concbench.domain import Events, RequestRecord, RoundInstrument, ServerSample
from concbench.store import parts
from tests.store.build import make_round
from tests.store.test_text import ANY_TEXT

INT64 = st.integers(-(2**63), 2**63 - 1)
MAYBE_INT, MAYBE_TEXT = st.none() | INT64, st.none() | ANY_TEXT
OPTIONAL_INTS = [
    "connect_ns", "send_done_ns", "first_byte_ns", "first_token_ns", "first_visible_ns",
    "last_token_ns", "end_ns", "http_status", "asked_prompt_tok", "prompt_tok", "cached_tok",
    "reasoning_tok",
]  # fmt: skip
OPTIONAL_TEXTS = ["error", "error_detail", "finish_reason", "prompt_sha256", "text"]
FINITE = st.floats(allow_nan=False)

REQUESTS = st.builds(
    RequestRecord,
    index=INT64,
    worker=INT64,
    due_ns=INT64,
    sent_ns=MAYBE_INT,
    outcome=st.sampled_from(["ok", "failed", "incomplete"]),
    asked_output_tok=INT64,
    output_tok=INT64,
    token_source=st.none() | st.sampled_from(["usage", "chunks"]),
    events=INT64,
    first_event_tok=FINITE,
    reads=INT64,
    notes=st.lists(ANY_TEXT, max_size=3).map(tuple),
    **dict.fromkeys(OPTIONAL_INTS, MAYBE_INT),
    **dict.fromkeys(OPTIONAL_TEXTS, MAYBE_TEXT),
)
SAMPLES = st.builds(
    ServerSample,
    sent_ns=INT64,
    received_ns=INT64,
    source=ANY_TEXT,
    name=ANY_TEXT,
    labels=ANY_TEXT,
    value=st.none() | FINITE,
)
EVENT_ROWS = st.lists(
    st.tuples(
        st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**31 - 1), INT64, INT64,
        st.integers(-128, 127), st.floats(width=32, allow_nan=False),
    ),
    max_size=8,
)  # fmt: skip


def events_of(rows):
    columns = list(zip(*rows, strict=True)) or [[]] * 6
    return Events(*(array(code, column) for code, column in zip("iiqqbf", columns, strict=True)))


@pytest.fixture(scope="module")
def connection():
    with parts.connect() as connection:
        yield connection


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(REQUESTS, max_size=4), EVENT_ROWS, st.lists(SAMPLES, max_size=4), st.lists(INT64))
def test_tables_come_back_exactly(connection, tmp_path, requests, rows, samples, lags):
    instrument = RoundInstrument(stamp="user", read_lateness_ns=lags, loop_lag_ns=lags[:2])
    round_ = make_round(
        requests=requests, events=events_of(rows), samples=samples, instrument=instrument
    )
    parts.write_parts(connection, tmp_path, round_)
    assert parts.read_requests(connection, tmp_path) == requests
    assert parts.read_events(connection, tmp_path) == round_.events
    assert parts.read_samples(connection, tmp_path) == samples
    assert parts.read_lags(connection, tmp_path) == {"read": lags, "loop": lags[:2]}


def test_many_rows_keep_their_order(connection, tmp_path):
    n = 300_000
    events = events_of([(i % 7, i, 2**60 + i, i, 0, 1.0) for i in range(n)])
    parts.write_parts(connection, tmp_path, make_round(events=events))
    assert parts.read_events(connection, tmp_path) == events


def test_a_late_text_in_a_column_of_nulls(connection, tmp_path):
    requests = [
        RequestRecord(index=i, worker=0, due_ns=0, sent_ns=None, outcome="ok") for i in range(5000)
    ]
    requests[-1] = RequestRecord(
        index=9, worker=0, due_ns=0, sent_ns=None, outcome="failed", error="http_503"
    )
    parts.write_parts(connection, tmp_path, make_round(requests=requests))
    assert parts.read_requests(connection, tmp_path) == requests


def test_an_absurd_count_costs_no_round(connection, tmp_path):
    absurd = RequestRecord(
        index=0,
        worker=0,
        due_ns=0,
        sent_ns=1,
        outcome="ok",
        output_tok=10**30,
        prompt_tok=-(10**30),
    )
    parts.write_parts(connection, tmp_path, make_round(requests=[absurd]))
    (read,) = parts.read_requests(connection, tmp_path)
    assert (read.output_tok, read.prompt_tok) == (2**63 - 1, -(2**63))


def test_a_sample_that_is_no_number_is_null(connection, tmp_path):
    sample = ServerSample(sent_ns=1, received_ns=2, source="m", name="x", value=math.nan)
    parts.write_parts(connection, tmp_path, make_round(samples=[sample]))
    assert parts.read_samples(connection, tmp_path)[0].value is None


def test_ragged_events_are_refused(connection, tmp_path):
    ragged = Events(request=array("i", [1]))
    with pytest.raises(ValueError, match="differ in length"):
        parts.write_parts(connection, tmp_path, make_round(events=ragged))


@pytest.mark.parametrize("name", ["a b", "q'uote", "st*r", "br[ab]", "qu?", "{a,b}", "é", "\\bs"])
def test_any_folder_name(connection, tmp_path, name):
    for folder in (tmp_path / name, tmp_path / "stir", tmp_path / "bra"):
        folder.mkdir()
    parts.write_parts(connection, tmp_path / name, make_round())
    assert parts.read_requests(connection, tmp_path / name) == make_round().requests

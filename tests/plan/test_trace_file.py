import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.errors import UsageError
from concbench.plan.trace_file import TraceRow, load_trace


def test_seconds_and_json(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text(
        '# comment\n10\n\n{"at_s": 10.5, "output_tok": 7}\n'
        '{"timestamp": 11000, "input_length": 9, "output_length": 3, "hash_ids": [1]}\n'
    )
    assert load_trace(path) == [
        TraceRow(due_ns=0),
        TraceRow(due_ns=500_000_000, output_tok=7),
        TraceRow(due_ns=1_000_000_000, prompt_tok=9, output_tok=3),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"t: the trace holds no requests"),
        (b"1\nx\n", r"t:2: could not convert"),
        (b"1\n{}\n", r"t:2: no time; expected"),
        (b'{"at_s": "x"}', r"t:1: Expected `float"),
        (b'{"at_s": 1, "output_tok": 0}', r"t:1: lengths must be at least 1"),
        (b"2\n1\n", r"t: request 2 of the trace is due at 1 s, before"),
        (b"nan\n", r"t: request 1 of the trace has no finite time"),
        (b"\xff", r"t: not UTF-8"),
    ],
)
def test_bad_traces(tmp_path, content, message):
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load_trace(path)
    with pytest.raises(UsageError, match="cannot read the trace"):
        load_trace(tmp_path / "absent")


@given(st.binary(max_size=100))
def test_any_bytes_give_rows_or_one_line(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "t"
    path.write_bytes(content)
    message = ""
    try:
        assert load_trace(path)[0].due_ns == 0
    except UsageError as error:
        message = str(error)
    assert "\n" not in message

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.clock import now_ns
from concbench.engines.registry import ENGINES, parse_any_log
from concbench.observe.logs import PARTIAL_BYTES, CommandTail, FileTail, Lines, log_rows
from concbench.observe.spool import RawSample

from .server import FIXTURES, until

VLLM = (FIXTURES / "vllm" / "server.log").read_bytes()
LLAMACPP = (FIXTURES / "llamacpp" / "server.log").read_bytes()


def chunk(body: bytes, at: int = 0) -> RawSample:
    return RawSample("log", at, at + 10, 200, body)


def values(rows, name):
    return [row.value for row in rows if row.name == name]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "engine.log"
    path.write_bytes(b"before\n")
    return path


def add(path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_only_what_is_added_and_only_whole_lines(log):
    tail = FileTail(log, None)
    assert tail.read() == b""
    add(log, b"one\ntw")
    assert tail.read() == b"one\n"
    add(log, b"o\r\nthree\r")
    assert tail.read() == b"two\r\nthree\r"
    tail.close()


def test_from_an_offset_and_from_a_file_that_comes_later(log, tmp_path):
    assert FileTail(log, 0).read() == b"before\n"
    later = FileTail(tmp_path / "later.log", None)
    assert later.read() == b""
    add(tmp_path / "later.log", b"first\n")
    assert later.read() == b"first\n"


def test_truncation_starts_again(log):
    tail = FileTail(log, 0)
    tail.read()
    add(log, b"unfinished")
    tail.read()
    log.write_bytes(b"new\n")
    assert tail.read() == b"unfinished\nnew\n"


def test_rotation_reads_the_old_file_to_its_end(log, tmp_path):
    tail = FileTail(log, None)
    add(log, b"last of old")
    log.rename(tmp_path / "engine.log.1")
    log.write_bytes(b"first of new\n")
    assert tail.read() == b"last of old\nfirst of new\n"


def test_the_output_of_a_command():
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.stdout.write('half')"
    tail = CommandTail([sys.executable, "-c", script])
    found = bytearray()

    def done() -> bool:
        found.extend(tail.read())
        return tail.ended

    until(done, "the command's end")
    assert sorted(bytes(found).splitlines()) == [b"err", b"half", b"out"] or b"half" in found
    tail.close()


def test_a_command_that_goes_on_is_ended():
    tail = CommandTail(["cat", "/dev/zero"])
    until(lambda: len(tail.read()) > 0, "some output")
    tail.close()


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_lines_lose_nothing(parts):
    lines, found = Lines(), b""
    for part in parts:
        found += lines.feed(part)
        assert found.endswith((b"\n", b"\r")) or not found
    assert (found + lines.flush()).rstrip(b"\n") == b"".join(parts).rstrip(b"\n")


def test_an_endless_line_is_let_go():
    lines = Lines()
    assert lines.feed(b"x" * PARTIAL_BYTES) == b""
    assert len(lines.feed(b"x")) == PARTIAL_BYTES + 1


def test_vllms_windows():
    rows = list(log_rows([chunk(VLLM)], ENGINES["vllm"].parse_log))
    windows = VLLM.count(b"Avg generation throughput")
    assert len(values(rows, "log_output_tok_per_s")) == windows > 10
    assert len(values(rows, "log_running")) == windows
    assert max(values(rows, "log_running")) == 8
    assert max(values(rows, "log_waiting")) == 4
    assert max(values(rows, "log_kv_usage")) == pytest.approx(0.011)
    assert values(rows, "log_matched")[0] >= windows
    assert values(rows, "log_lines")[0] == sum(bool(line.strip()) for line in VLLM.splitlines())
    assert all(row.source == "log" for row in rows)


def test_llamacpps_requests_carry_their_task():
    rows = list(log_rows([chunk(LLAMACPP)], ENGINES["llamacpp"].parse_log))
    first = next(row for row in rows if row.name == "log_request_output_tok")
    assert (first.labels, first.value) == ("key=0", 8.0)


def test_lists_get_positions():
    line = (
        b"INFO SpecDecoding metrics: Mean acceptance length: 2.10, Accepted throughput: 1.00 "
        b"tokens/s, Drafted throughput: 2.00 tokens/s, Accepted: 11 tokens, Drafted: 20 tokens, "
        b"Per-position acceptance rate: 0.700, 0.400, Avg Draft acceptance rate: 55.0%\n"
    )
    rows = list(log_rows([chunk(line)], ENGINES["vllm"].parse_log))
    assert values(rows, "log_accept_len") == [2.1]
    at = {r.labels: r.value for r in rows if r.name == "log_accept_rate_per_position"}
    assert at == {"position=0": 0.7, "position=1": 0.4}


def test_a_log_that_nobody_understands_is_an_event():
    rows = list(log_rows([chunk(b"hello\n"), chunk(b"world\n", 20)], ENGINES["vllm"].parse_log))
    assert [(r.labels, r.value) for r in rows if r.name == "event"] == [("log_unparsed", 2.0)]
    silent = b'INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 200 OK\n\n'
    rows = list(log_rows([chunk(silent)], ENGINES["vllm"].parse_log))
    assert [r for r in rows if r.name == "event"] == []
    assert list(log_rows([], ENGINES["vllm"].parse_log)) == []


def test_a_start_in_the_middle_is_a_restart():
    line = b"INFO:     Application startup complete.\n"
    rows = list(log_rows([chunk(line)], ENGINES["vllm"].parse_log))
    assert [r.labels for r in rows if r.name == "event"] == ["restarted"]


@given(
    st.lists(
        st.sampled_from((VLLM + LLAMACPP).splitlines(keepends=True)) | st.binary(max_size=80),
        max_size=30,
    ).map(b"".join),
    st.sampled_from(sorted(ENGINES)),
)
def test_any_bytes_are_a_log(body, engine):
    parse = parse_any_log if engine == "llama-swap" else ENGINES[engine].parse_log
    for row in log_rows([chunk(body)], parse):
        assert row.value is None or row.value == row.value


def test_reading_is_linear_in_bytes():
    nasty = (b"Avg prompt throughput: " * 8000, b"a: 1, " * 40_000, b"\r" * 200_000, b"9" * 200_000)
    for engine in ("vllm", "sglang", "llamacpp", "trtllm", "tgi", "ollama"):
        for body in nasty:
            began_ns = now_ns()
            list(log_rows([chunk(body)], ENGINES[engine].parse_log))
            assert (now_ns() - began_ns) / 1e9 < 2.0, (engine, body[:20])


def test_the_position_is_told_for_a_restart(log):
    tail = FileTail(log, None)
    add(log, b"abc\n")
    tail.read()
    assert tail.position == os.stat(log).st_size  # noqa: PTH116

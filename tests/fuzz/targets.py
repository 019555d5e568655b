"""What is fuzzed: each target takes bytes and fails only where the code under test is wrong.

A target may meet the errors that its code promises; anything else that leaves it is a finding.
Where a second way to the same answer is cheap (another split of the bytes, reading twice), the
target compares the two.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from concbench.engines.failures import diagnose
from concbench.engines.registry import ENGINES, parse_any_log, recognise
from concbench.engines.spec import Answer, EngineSpec
from concbench.errors import StudyUnreadable, UsageError
from concbench.observe.logs import Lines
from concbench.observe.parse import samples
from concbench.observe.spool import Kind, RawSample
from concbench.plan.file import parse_plan
from concbench.plan.trace_file import load_trace
from concbench.store.importers.read import read_files
from concbench.store.importers.table import read_table
from concbench.store.query import query
from concbench.store.read import open_study
from concbench.wire.http import ResponseFramer, decompress
from concbench.wire.sse import SseEvent, SseParser
from concbench.wire.tokens import StreamReader, read_body
from tests.store.build import finished

CORPUS = Path(__file__).parent / "corpus"
BODY_LIMIT_BYTES = 1 << 22


@dataclass(frozen=True)
class Target:
    """One target: what runs, which modules it is about, and words that its format knows."""

    run: Callable[[bytes], None]
    modules: tuple[str, ...]
    words: tuple[bytes, ...]


def pieces(data: bytes) -> list[bytes]:
    """Cut the bytes where they say so themselves: each piece's first byte gives its length."""
    cuts, at = {0, len(data)}, 0
    while at < len(data):
        at += 1 + data[at] % 61
        cuts.add(min(at, len(data)))
    return [data[a:b] for a, b in pairwise(sorted(cuts))]


def sse(data: bytes) -> None:
    """Server-sent events, then tokens: the same for any split of the bytes."""
    whole, split = _events([data]), _events(pieces(data))
    assert whole == split, "the split of the bytes changed the events"
    for endpoint in ("chat", "completions"):
        reader = StreamReader(endpoint, 16, keep_text=True)
        for number, event in enumerate(whole[0]):
            reader.feed(event.data, event.event, number)
        outcome = reader.finish(clean_end=bool(data) and data[-1] % 2 == 0)
        assert outcome.output_tok is None or outcome.output_tok >= 0
        read_body(data, endpoint, 16, keep_text=False)


def _events(parts: list[bytes]) -> tuple[list[SseEvent], int]:
    parser = SseParser()
    found = [event for part in parts for event in parser.feed(part)]
    found += parser.close()
    return found, parser.unusable


def http(data: bytes) -> None:
    """HTTP responses: the same end and body for any split, and with or without the body kept."""
    one, body = _framed([data])
    other, split = _framed(pieces(data))
    assert _verdict(one) == _verdict(other), "the split of the bytes changed the verdict"
    assert body == split, "the split of the bytes changed the body"
    blind = ResponseFramer()
    for part in pieces(data):
        blind.feed(part, len(part))
    blind.eof()
    assert _verdict(blind) == _verdict(one), "keeping no body changed the verdict"
    for encoding in ("gzip", "deflate", one.headers.get("content-encoding", "")[:40]):
        unpacked = decompress(body, encoding, BODY_LIMIT_BYTES)
        assert unpacked is None or len(unpacked) <= BODY_LIMIT_BYTES


def _framed(parts: list[bytes]) -> tuple[ResponseFramer, bytes]:
    framer, body = ResponseFramer(), bytearray()
    for part in parts:
        framer.feed(part, len(part), body)
    framer.eof()
    return framer, bytes(body)


def _verdict(framer: ResponseFramer) -> tuple[object, ...]:
    # After a break the count of what follows depends on where the reads ended: it is not used.
    excess = None if framer.error else framer.excess
    return framer.status, framer.headers, framer.complete, framer.error, framer.interim, excess


def metrics(data: bytes) -> None:
    """Pages that an engine answers: polled ones to samples, any of them to facts about it.

    The first byte chooses the engine.
    """
    spec = _engine(data)
    page, half = data[1:], len(data) // 2
    kinds: tuple[Kind, ...] = ("metrics", "slots", "activity")
    records = [
        RawSample(kind, k * 10**9, k * 10**9 + 10**6, 200, body)
        for k, body in enumerate((page, data[half:], page))
        for kind in kinds
    ]
    for row in samples(records, spec):
        assert row.value is None or math.isfinite(row.value), f"{row.name} is {row.value}"
    answers = {path: Answer(200, {}, page) for path in spec.probes}
    recognise(answers)
    spec.describe(answers, None, ())


def _engine(data: bytes) -> EngineSpec:
    return list(ENGINES.values())[data[0] % len(ENGINES) if data else 0]


def logs(data: bytes) -> None:
    """An engine's log: lines cut from chunks, then every grammar.

    The first byte chooses the engine for the samples and facts that are made of them.
    """
    cutter = Lines()
    text = b"".join(cutter.feed(part) for part in pieces(data)) + cutter.flush()
    lines = text.decode("utf-8", "replace").splitlines()
    for line in lines:
        parse_any_log(line)
    engine = _engine(data)
    samples([RawSample("log", 10**9, 2 * 10**9, 200, text)], engine)
    engine.describe({}, None, lines)
    diagnose(engine.start_failures, lines)


def plan(data: bytes) -> None:
    """Plan files, traces and tables of figures: read, or refused in one line."""
    try:
        parse_plan(data.decode("utf-8", "replace"))
    except UsageError as error:
        _one_line(error)
    for name, read in (("t.jsonl", load_trace), ("t.toml", read_table)):
        try:
            read(_file(name, data))
        except UsageError as error:
            _one_line(error)


def imports(data: bytes) -> None:
    """Result files of other tools: read, or refused in one line."""
    for name in ("result.json", "result.jsonl"):
        try:
            read_files([_file(name, data)], None, "2026-01-01T00:00:00Z")
        except UsageError as error:
            _one_line(error)


STUDY_PARTS = (
    "study.json",
    "log.jsonl",
    "rounds/r0/round.json",
    "rounds/r0/requests.parquet",
    "rounds/r0/events.parquet",
    "rounds/r0/samples.parquet",
    "rounds/r0/lags.parquet",
)


def study(data: bytes) -> None:
    """A study of which one file was replaced (the first byte says which): read, or refused.

    The last byte says whether SQL is run on it too, which takes ten times as long.
    """
    if not data:
        return
    folder = _study_copy()
    part = folder / STUDY_PARTS[data[0] % len(STUDY_PARTS)]
    original = part.read_bytes()
    part.write_bytes(data[1:])
    try:
        _read_study(folder, with_sql=data[-1] % 8 == 0)
    finally:
        part.write_bytes(original)


def _read_study(folder: Path, *, with_sql: bool) -> None:
    try:
        reader = open_study(folder)
        infos = reader.rounds()
        reader.targets(), reader.notes("x"), reader.corrections(), reader.amendments()
    except StudyUnreadable as error:
        _one_line(error)
        return
    for info in infos:
        try:
            reader.load_round(info.round_id)
        except StudyUnreadable as error:
            _one_line(error)
    if not with_sql:
        return
    try:
        query(folder, "select count(*), max(sent_ns) from requests")
    except UsageError as error:
        _one_line(error)


def _one_line(error: Exception) -> None:
    text = str(error)
    assert text, "an error without a text"
    assert "\n" not in text.strip(), f"more than one line: {text!r}"


@cache
def _place() -> Path:
    memory = Path("/dev/shm")  # scratch files are written by the thousand
    return Path(tempfile.mkdtemp(prefix="concbench-fuzz-", dir=memory if memory.is_dir() else None))


def clean_up() -> None:
    """Remove the scratch folder."""
    shutil.rmtree(_place(), ignore_errors=True)
    _place.cache_clear()
    _study_copy.cache_clear()


def _file(name: str, data: bytes) -> Path:
    path = _place() / name
    path.write_bytes(data)
    return path


@cache
def _study_copy() -> Path:
    return finished(_place() / "study", rounds=2)


TARGETS: dict[str, Target] = {
    "sse": Target(
        sse,
        ("concbench.wire",),
        (b"data:", b"event: ", b"error", b"[DONE]", b"\n\n", b"\r\n", b"\r", b'{"choices":[', b"]}",
         b'"delta":', b'"content":', b'"usage":', b'"completion_tokens":', b'"finish_reason":',
         b'"reasoning_content":', b'"tool_calls":', b'"index":', b"null", b"1e999", b"\xef\xbb\xbf",
         b"\\ud835", b'"timings":', b'"text":', b"[[[[", b"-1", b"99999999999999999999"),
    ),
    "http": Target(
        http,
        ("concbench.wire",),
        (b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 ", b"HTTP/1.1 103 X\r\n\r\n", b"\r\n\r\n", b"\n\n",
         b"Content-Length: ", b"Transfer-Encoding: chunked", b"Connection: close", b"0\r\n\r\n",
         b"5\r\nhello\r\n", b"ffffffffffffffff\r\n", b";ext=1", b"\r\n", b"Content-Encoding: gzip",
         b"\x1f\x8b\x08", b"204", b"304", b"101", b"+5", b"0x5", b" 5", b","),
    ),
    "metrics": Target(
        metrics,
        ("concbench.engines", "concbench.observe"),
        (b"# TYPE ", b"# HELP ", b"vllm:generation_tokens_total", b"vllm:num_requests_running",
         b"{engine=\"0\"}", b"le=\"+Inf\"", b"_bucket", b"NaN", b"-nan", b"+Inf", b"1e308",
         b"sglang:gen_throughput", b"llamacpp:tokens_predicted_total", b"\n", b"\\\"", b"{", b"}",
         b'[{"id":0,"id_task":', b'"n_decoded":', b'"is_processing":true', b" 1700000000000"),
    ),
    "logs": Target(
        logs,
        ("concbench.engines", "concbench.observe"),
        (b"Avg generation throughput: ", b" tokens/s, Running: ", b" reqs, Waiting: ",
         b"Decode batch", b"#running-req: ", b"gen throughput (token/s): ", b"eval time = ",
         b"\x1b[36m", b"(EngineCore_DP0 pid=12)", b"INFO 11-29 15:20:00", b"GPU KV cache size: ",
         b"slot print_timing: id  0 | task 1 |", b"ms per token", b"\n", b"\r", b"{'a': [",
         b"SpecDecoding metrics", b"draft acceptance rate", b"99,999,999"),
    ),
    "plan": Target(
        plan,
        ("concbench.plan", "concbench.store.importers"),
        (b"[lanes.a]\n", b"[study]\n", b"[workload]\n", b"[sweep]\n", b"[sweep.vary.a]\n", b"[[",
         b"engine = \"vllm\"\n", b"url = \"http://x\"\n", b"model = ", b"flags = { ", b" }",
         b"command = [", b"]", b"\"\"\"", b"'''", b"\\u0000", b"nan", b"inf", b"0x", b"1979-05-27",
         b"concurrency = ", b"contexts = ", b"[links.b]\n", b"before = [[", b"[[readings]]\n",
         b"values = ", b"levels = ", b'{"timestamp": 0, "input_length": 1, "output_length": 1}'),
    ),
    "imports": Target(
        imports,
        ("concbench.store.importers",),
        (b'"total_output_tokens":', b'"output_throughput":', b'"model_id":', b'"ttfts":',
         b'"start_times":', b'"output_lens":', b'"benchmarks":', b'"metrics":', b'"requests":',
         b'"successful":', b'"mean":', b'"percentiles":', b'"p99":', b"NaN", b"Infinity", b"1e999",
         b"-1", b"null", b"[]", b"{}", b"true", b"[[", b'"completed":', b'"duration":', b"\n",
         b'"request_rate":"inf"', b'"input_config":', b'"records":', b'"max_concurrency":'),
    ),
    "study": Target(
        study,
        ("concbench.store",),
        (b'"study":', b'"schema":', b'"event":', b'"round":', b'"finished"', b'"retracted"',
         b"\n", b'"targets":{', b'"cell":{', b"PAR1", b"\x15\x00", b"-1", b"1e999", b"\\ud835",
         b"99999999999999999999", b"[[[[", b'"phase":"measured"', b'"instrument":'),
    ),
}  # fmt: skip
"""Every target by name."""

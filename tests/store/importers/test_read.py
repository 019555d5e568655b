"""Files of other tools, written from their documented keys, and files that are none."""

import json
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.domain import Cell
from concbench.errors import UsageError
from concbench.store.importers import safe
from concbench.store.importers.read import read_files
from concbench.store.importers.requests import RawRequest, plausible, round_of

SAMPLES = Path(__file__).parent / "samples"
NOW = "2026-11-29T15:20:00Z"


def read(*names, lane=None):
    return read_files([SAMPLES / name for name in names], lane, NOW)


@pytest.mark.parametrize(
    ("name", "tool", "requests"),
    [
        ("vllm_summary.json", "vllm bench", 0),
        ("vllm_detailed.json", "vllm bench", 16),
        ("sglang.jsonl", "sglang bench_serving", 16),
        ("guidellm.json", "guidellm", 18),
        ("profile_export_aiperf.json", "aiperf", 0),
        ("profile_export.jsonl", "aiperf", 17),
        ("profile_export_genai_perf.json", "genai-perf", 0),
        ("llama_benchy.json", "llama-benchy", 0),
    ],
)
def test_each_tool_is_known_by_its_keys(name, tool, requests):
    found = read(name)
    assert found.tool == tool
    assert sum(len(one.requests) for one in found.rounds) == requests
    assert all(cell.concurrency >= 1 and cell.lane == tool.split()[0] for cell in found.cells)
    assert all(record.notes == ("imported",) for r in found.rounds for record in r.requests)


def test_vllm_keeps_starts_so_that_workers_can_be_told_apart():
    (made,) = read("vllm_detailed.json", lane="box").rounds
    assert made.cell.cell == "box.128.c4"
    assert made.workload.arrival == "closed"
    workers = [record.worker for record in made.requests]
    assert sorted(set(workers)) == [0, 1, 2, 3]
    assert all(workers.count(one) == 4 for one in range(4))
    for one in range(4):
        mine = [record for record in made.requests if record.worker == one]
        assert all(a.end_ns <= b.sent_ns for a, b in pairwise(mine))
    first = made.requests[0]
    assert first.events == 32
    assert first.output_tok == 32
    assert first.token_source == "usage"
    assert len(made.events) == 16 * 32


def test_vllms_summary_is_kept_as_told():
    (cell,) = read("vllm_summary.json").cells
    assert cell.concurrency == 4
    assert cell.rate_rps is None  # "inf" is no rate
    assert (cell.sent, cell.ok, cell.failed) == (16, 16, 0)
    assert cell.figures["ttft_ms"]["mean"] == pytest.approx(135, abs=1)
    assert cell.figures["icl_ms"]["n"] == 16


def test_sglangs_requested_lengths_are_not_taken_for_tokens():
    found = read("sglang.jsonl")
    assert [cell.concurrency for cell in found.cells] == [2, 4]
    assert not found.timed
    (made,) = found.rounds
    assert {record.output_tok for record in made.requests} == {32}  # 64 were asked
    assert {record.token_source for record in made.requests} == {"chunks"}
    assert any("requested lengths" in remark for remark in found.remarks)


def test_guidellms_requests_have_first_and_last_token_and_a_due_time():
    found = read("guidellm.json")
    (cell,) = found.cells
    assert (cell.concurrency, cell.sent, cell.ok, cell.failed) == (4, 18, 16, 1)
    assert cell.figures["e2e_ms"]["mean"] == pytest.approx(754.8, abs=0.5)  # told in seconds
    (made,) = found.rounds
    outcomes = [record.outcome for record in made.requests]
    assert {one: outcomes.count(one) for one in outcomes} == {
        "ok": 16, "failed": 1, "incomplete": 1,
    }  # fmt: skip
    good = [record for record in made.requests if record.outcome == "ok"]
    assert all(record.sent_ns - record.due_ns == pytest.approx(2e6, abs=1e3) for record in good)
    assert all(record.last_token_ns > record.first_token_ns for record in good)
    assert len(made.events) == 0
    assert any("503" in (record.error_detail or "") for record in made.requests)


def test_aiperfs_summary_and_records_go_together():
    found = read("profile_export_aiperf.json", "profile_export.jsonl")
    (cell,) = found.cells
    assert cell.concurrency == 4
    assert cell.figures["tpot_ms"]["n"] == 16
    (made,) = found.rounds
    assert made.cell.cell == cell.cell
    assert sum(record.outcome == "failed" for record in made.requests) == 1
    assert found.version == "0.13.0"
    alone = read("profile_export.jsonl")
    assert alone.cells[0].concurrency == 4  # counted from the starts and ends
    assert alone.cells[0].figures == {}


def test_benchys_repetitions_are_kept():
    one, four = read("llama_benchy.json").cells
    assert (one.concurrency, four.concurrency) == (1, 4)
    assert four.figures["steady_output_tok_per_s"]["values"] == [208.0, 210.5, 209.1]
    assert four.context_tok == 2048


@pytest.mark.parametrize(
    ("names", "tool", "requests", "output_tok"),
    [
        (["aiperf-0.13.0.json", "aiperf-0.13.0.jsonl"], "aiperf", 4, 128),
        (["guidellm-0.8.1.json"], "guidellm", 4, 128),
        (["vllm-0.32.json"], "vllm bench", 4, 128),
        (["llama-benchy-0.4.0.json"], "llama-benchy", 0, None),
    ],
)
def test_what_the_tools_really_wrote(names, tool, requests, output_tok):
    """Two requests a stream, two streams, a server that is silent for 50 ms, then 20 ms a token.

    Kept as written, but for long texts and the names of folders.
    """
    found = read(*(f"real/{name}" for name in names))
    assert found.tool == tool
    (cell,) = found.cells
    assert cell.concurrency == 2
    assert 50 <= cell.figures["ttft_ms"]["mean"] <= 120
    records = [record for made in found.rounds for record in made.requests]
    assert len(records) == requests
    assert {record.output_tok for record in records} == ({output_tok} if requests else set())
    assert {record.token_source for record in records} <= {"usage"}
    for record in records:
        took_s = (record.last_token_ns - record.first_token_ns) / 1e9
        assert took_s == pytest.approx(127 * 0.020, abs=0.1)


def test_counts_of_two_sources_are_not_mixed(tmp_path):
    path = tmp_path / "profile_export.jsonl"
    first, *others = (SAMPLES / "real/aiperf-0.13.0.jsonl").read_text().splitlines()
    less = json.loads(first)
    for name in ("usage_completion_tokens", "usage_prompt_tokens"):
        del less["metrics"][name]
    told = [json.loads(line) for line in others]
    for one in told:
        one["metrics"]["output_sequence_length"]["value"] = 120
    path.write_text("\n".join(map(json.dumps, (less, *told))))
    (made,) = read_files([path], None, NOW).rounds
    assert {record.token_source for record in made.requests} == {"tokenizer"}
    assert sorted(record.output_tok for record in made.requests) == [120, 120, 120, 128]


def test_files_of_two_tools_are_not_put_into_one_study():
    with pytest.raises(UsageError, match="different tools"):
        read("guidellm.json", "llama_benchy.json")
    with pytest.raises(UsageError, match="by itself"):
        read("guidellm.json", "guidellm.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"  \n ", "is empty"),
        (b"not json", "not valid JSON"),
        (b"\xff\xfe\x00{", "not UTF-8"),
        (b"[" * 100_000, "JSON|deeply"),
        (b'{"a": ' * 5000 + b"1" + b"}" * 5000, "deeply|no result"),
        (b"42", "no result"),
        (b"[]", "no result"),
        (b"{}", "no result"),
        (b'{"x": ' + b"9" * 6000 + b"}", "JSON"),
        (b'{"output_throughput": NaN, "total_output_tokens": NaN, "model_id": "m"}', "no figure"),
        (b'{"metadata": {"guidellm_version": "1"}, "benchmarks": []}', "no figure"),
        (b'{"metadata": {"guidellm_version": "1"}, "benchmarks": 7}', "no figure"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        read_files([path], None, NOW)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))


def test_a_huge_file_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(safe, "MOST_BYTES", 100)
    with pytest.raises(UsageError, match="more than"):
        read("guidellm.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_files([tmp_path / "absent.json"], None, NOW)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_files([tmp_path], None, NOW)


def test_a_torn_last_line_costs_only_itself(tmp_path):
    lines = (SAMPLES / "profile_export.jsonl").read_text().splitlines()
    path = tmp_path / "profile_export.jsonl"
    path.write_text("\n".join([*lines[:5], lines[5][:40]]))
    assert len(read_files([path], None, NOW).rounds[0].requests) == 5
    path.write_text("\n".join([lines[0], lines[1][:40], lines[2]]))
    with pytest.raises(UsageError, match="line 2"):
        read_files([path], None, NOW)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, 1e30, "x", None, [], True])
def test_a_wrong_number_is_left_out_and_nothing_else(tmp_path, bad):
    value = json.loads((SAMPLES / "vllm_detailed.json").read_text())
    value["ttfts"][3] = bad
    value["mean_ttft_ms"] = bad
    path = tmp_path / "v.json"
    path.write_text(json.dumps(value))
    found = read_files([path], None, NOW)
    ok = [r for r in found.rounds[0].requests if r.outcome == "ok" and r.first_token_ns is not None]
    assert len(ok) == 15
    told = found.cells[0].figures.get("ttft_ms", {}).get("mean")
    assert told is None or told == -1.0


keys = st.sampled_from(
    ["metadata", "benchmarks", "guidellm_version", "metrics", "request_start_ns", "model_id",
     "output_throughput", "total_output_tokens", "ttfts", "itls", "output_lens", "latency_mode",
     "tg_throughput", "request_latency", "avg", "input_config", "requests", "successful", "info",
     "timings", "error", "mean_e2e_latency_ms", "config", "strategy", "completed"]
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=8),
    max_leaves=30,
)


@settings(max_examples=300)
@given(value=st.dictionaries(keys, json_values, max_size=10))
def test_no_json_value_breaks_the_readers(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_text(json.dumps(value))
    with suppress(UsageError):
        read_files([path], None, NOW)


CELL = Cell(cell="c", lane="l", concurrency=2, context_tok=10)
spans = st.none() | st.floats(-10, 1e9)


@given(
    st.lists(
        st.builds(
            RawRequest,
            start_s=spans,
            due_s=spans,
            ttft_s=spans,
            last_s=spans,
            end_s=spans,
            gaps_s=st.lists(st.floats(-1, 1e5), max_size=5),
            output_tok=st.none() | st.integers(0, 10**9),
            error=st.none() | st.just("x"),
        ),
        max_size=6,
    )
)
def test_any_requests_make_a_round_whose_stamps_can_be_true(raws):
    made, dropped = round_of(raws, CELL, arrival="closed", source="usage", began_utc=NOW, tool="t")
    assert len(made.requests) + dropped == len(raws)
    assert dropped == sum(not plausible(raw) for raw in raws)
    for record in made.requests:
        assert 0 <= record.due_ns <= record.sent_ns
        if record.first_token_ns is not None and record.last_token_ns is not None:
            assert record.sent_ns <= record.first_token_ns

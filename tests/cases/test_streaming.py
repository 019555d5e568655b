"""Cases S: what a stream says, and how it says it."""

from __future__ import annotations

import gzip
import re

import pytest

from concbench.analyse.cell import cell_result
from tests.analyse.simulate import Reply as Record
from tests.analyse.simulate import S, as_round, steady_stream
from tests.cases.play import DONE, MS, Bench, Line, delta, event, playing, stream, usage, within
from tests.load.server import SSE_HEAD


def test_s01_role_only_opener(bench: Bench) -> None:
    opener = delta("", role="assistant")

    def script(number: int) -> list[Line]:
        tokens = [(0.2, delta("A")), (0.25, delta("B")), (0.25, delta("", "stop"))]
        return [(0.02, opener), *(tokens if number == 0 else []), (0.25, DONE)]

    with playing(script) as play:
        run = bench.burst(play.url, n=2)
    assert run.cell["requests"] == {
        "sent": 2, "ok": 1, "failed": 1, "incomplete": 0,
        "errors": {"empty_response": 1}, "finish": {"stop": 1},
    }  # fmt: skip
    client = run.client
    assert client["ttft_ms"]["n"] == 1
    assert client["ttft_ms"]["min"] >= play.wait_ms(0, b'"A"') - 1
    assert client["itl_ms"]["n"] == client["icl_ms"]["n"] == 1
    assert within(client["itl_ms"]["mean"], play.gap_ms(0, b'"A"', b'"B"'))
    (silent,) = [record for record in run.requests() if record.outcome == "failed"]
    assert silent.first_token_ns is None


def test_s02_null_opener_and_two_events_in_one_read(bench: Bench) -> None:
    opener = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})

    def script(_number: int) -> list[Line]:
        joined = delta("A") + delta("B")
        return [(0.0, opener), (0.05, joined), (0.1, delta("C", "stop")), (0.1, usage(3) + DONE)]

    with playing(script) as play:
        run = bench.burst(play.url)
    (record,) = run.requests()
    assert (record.outcome, record.events, record.output_tok) == ("ok", 3, 3)
    assert run.client["ttft_ms"]["min"] >= play.wait_ms(0, b'"A"') - 1
    assert run.client["icl_ms"]["min"] == 0


FRAMINGS = {
    "one space": lambda data: data,
    "no space": lambda data: data.replace(b"data: ", b"data:"),
    "three spaces": lambda data: data.replace(b"data: ", b"data:   "),
}


def test_s03_data_without_the_space(bench: Bench) -> None:
    shapes = list(FRAMINGS.values())

    def script(number: int) -> list[Line]:
        return [(at, shapes[number](data)) for at, data in stream([0.01, 0.02, 0.03])]

    with playing(script) as play:
        run = bench.burst(play.url, n=3)
    seen = {(r.outcome, r.events, r.output_tok, r.prompt_tok) for r in run.requests()}
    assert seen == {("ok", 3, 3, 50)}
    assert run.cell["tokens"]["source"] == "usage"


def test_s04_line_ends_and_cuts_anywhere(bench: Bench) -> None:
    def script(number: int) -> list[Line]:
        data = b"".join(data for _, data in stream([0.0, 0.0, 0.0]))
        crlf = data.replace(b"\n", b"\r\n")
        if number == 0:
            return [(0.0, data)]
        if number == 1:
            return [(0.0, data.replace(b"\n", b"\r"))]
        if number == 2:
            # Each event ends in CR at the end of one write and LF CR LF in the next.
            head, *rest = crlf.split(b"\r\n\r\n")
            return [(0.0, head + b"\r"), *((0.01 * k, b"\n\r\n" + p + b"\r") for k, p in
                    enumerate(rest, 1))]  # fmt: skip
        pieces = data if number == 3 else crlf
        return [(0.0, pieces[i : i + 1]) for i in range(len(pieces))]

    with playing(script) as play:
        run = bench.burst(play.url, n=5)
    seen = {
        (r.outcome, r.error_detail, r.events, r.output_tok, r.prompt_tok, r.finish_reason)
        for r in run.requests()
    }
    assert seen == {("ok", None, 3, 3, 50, "length")}


def test_s06_comment_pings_in_a_long_prefill(bench: Bench) -> None:
    pings = [(0.03 * k, b":\n\n") for k in range(3)] + [(0.1, b": keep-alive\n\n")]

    def script(_number: int) -> list[Line]:
        return [*pings, *stream([0.2, 0.22, 0.24])[:2], (0.23, b": ping\n\n"), *stream([0.24])]

    with playing(script) as play:
        run = bench.burst(play.url)
    client = run.client
    assert run.cell["requests"]["ok"] == 1
    assert client["ttft_ms"]["min"] >= play.wait_ms(0, b" w0") - 1
    assert client["icl_ms"]["n"] == 2


def test_s07_empty_and_wrapped_pings(bench: Bench) -> None:
    def script(_number: int) -> list[Line]:
        odd = b"event: ping\ndata: \n\n", b"data: : PROCESSING\n\n"
        return [(0.0, odd[0]), (0.0, odd[1]), *stream([0.01, 0.02])]

    with playing(script) as play:
        run = bench.burst(play.url)
    (record,) = run.requests()
    assert (record.outcome, record.events, record.output_tok) == ("ok", 2, 2)
    assert "unparsed_events" in record.notes
    found = run.doubts["unparsed_events"]
    assert found["severity"] == "warning"
    assert found["evidence"] == {"requests": 1, "sent": 1, "token_source": "usage"}
    assert "1 of 1 answers" in found["message"]
    assert run.cell["requests"]["errors"] == {}

    # Empty data alone is nothing to speak of.
    with playing(lambda _: [(0.0, b"event: ping\ndata: \n\n"), *stream([0.01, 0.02])]) as play:
        plain = bench.burst(play.url)
    assert plain.requests()[0].events == 2
    assert "unparsed_events" not in plain.doubts


def test_s08_no_done(bench: Bench) -> None:
    def script(number: int) -> list[Line]:
        tokens = [(0.01, delta("A")), (0.02, delta("B"))]
        return [*tokens, (0.02, delta("", "stop"))] if number == 0 else tokens

    with playing(script) as play:
        run = bench.burst(play.url, n=2)
    assert run.cell["requests"]["ok"] == 1
    assert run.cell["requests"]["errors"] == {"truncated": 1}
    whole = next(record for record in run.requests() if record.outcome == "ok")
    assert "no_done" in whole.notes
    assert run.doubts["truncated_streams"]["severity"] == "fatal"


def test_s09_error_inside_a_200(bench: Bench) -> None:
    failed = event({"error": {"message": "engine loop died", "type": "Internal", "code": 500}})

    def script(number: int) -> list[Line]:
        if number == 1:
            return [(0.0, delta("A")), (0.01, delta("B")), (0.01, failed), (0.01, DONE)]
        return stream([0.1 + 0.01 * k for k in range(20)])

    with playing(script) as play:
        run = bench.burst(play.url, n=3, out=20)
    assert run.code == 4
    assert run.cell["requests"]["errors"] == {"in_stream_error": 1}
    assert run.cell["tokens"]["output"] == 40
    assert run.client["e2e_ms"]["n"] == 2
    assert run.client["e2e_ms"]["min"] >= 290
    broken = next(record for record in run.requests() if record.outcome == "failed")
    assert "500" in (broken.error_detail or "")
    assert "engine loop died" in (broken.error_detail or "")
    assert run.doubts["errors_in_stream"]["severity"] == "fatal"


def test_s11_usage_without_choices(bench: Bench) -> None:
    def script(_number: int) -> list[Line]:
        tokens = stream([0.01, 0.02, 0.03], end=[delta("", "stop")])
        return [*tokens, (0.1, usage(3, 57)), (0.1, DONE)]

    with playing(script) as play:
        run = bench.burst(play.url)
    (record,) = run.requests()
    assert (record.output_tok, record.prompt_tok, record.token_source) == (3, 57, "usage")
    assert record.events == 3
    assert record.last_token_ns is not None
    assert record.end_ns is not None
    assert (record.end_ns - record.last_token_ns) / MS >= play.gap_ms(0, b" w2", b'"usage"')[0] - 50
    assert run.client["icl_ms"]["n"] == 2


def test_s13_usage_does_not_stretch_latency(bench: Bench) -> None:
    times = [0.05 + 0.01 * k for k in range(20)]

    def script(_number: int) -> list[Line]:
        tokens = stream(times, end=[delta("", "length")])
        return [*tokens, (0.6, usage(20)), (0.6, DONE)]

    with playing(script) as play:
        run = bench.burst(play.url, out=20)
    decode = play.gap_ms(0, b" w0", b" w19")
    client = run.client
    assert within(client["tpot_ms"]["mean"] * 19, decode)
    assert client["itl_ms"]["n"] == 19
    assert within(client["itl_ms"]["mean"] * 19, decode)
    # One reading of the clock a chunk: the gaps add up to last − first exactly.
    (record,) = run.requests()
    assert client["itl_ms"]["mean"] * 19e6 == pytest.approx(
        (record.last_token_ns or 0) - (record.first_token_ns or 0), abs=2
    )
    assert (record.end_ns or 0) - (record.last_token_ns or 0) >= 200 * MS


def test_s14_reasoning_comes_first(bench: Bench) -> None:
    def script(number: int) -> list[Line]:
        key = "reasoning" if number % 2 else "reasoning_content"
        think = [(0.05 + 0.01 * k, delta(None, **{key: f"t{k}"})) for k in range(4)]
        say = [(0.3, delta("A")), (0.32, delta("B"))] if number < 2 else []
        count = len(think) + len(say)
        return [*think, *say, (0.32, delta("", "length")), (0.32, usage(count)), (0.32, DONE)]

    with playing(script) as play:
        run = bench.burst(play.url, n=4)
    assert run.cell["requests"]["ok"] == 4
    client = run.client
    assert client["ttft_ms"]["n"] == 4
    assert client["ttfo_ms"]["n"] == 2
    assert client["ttft_ms"]["max"] < client["ttfo_ms"]["min"]
    assert client["ttfo_ms"]["min"] >= play.wait_ms(0, b'"A"') - 1
    visible = [record.first_visible_ns for record in run.requests()]
    assert visible.count(None) == 2


def test_s15_tool_call_deltas(bench: Bench) -> None:
    def call(arguments: str, total: int) -> bytes:
        tool = [{"index": 0, "function": {"name": "look", "arguments": arguments}}]
        choice = {"index": 0, "delta": {"tool_calls": tool}, "finish_reason": None}
        return usage(total, choices=[choice])

    def script(_number: int) -> list[Line]:
        first = usage(1, choices=[{"index": 0, "delta": {"content": "A"}}])
        end = [(0.8018, delta("", "tool_calls")), (0.8018, usage(31)), (0.8018, DONE)]
        return [(0.4358, first), (0.6194, call("{", 17)), (0.8018, call("}", 31)), *end]

    with playing(script) as play:
        run = bench.burst(play.url, out=128)
    client = run.client
    assert run.cell["tokens"]["output"] == 31
    assert run.cell["tokens"]["source"] == "continuous_usage"
    assert client["itl_ms"]["n"] == 2
    assert within(client["tpot_ms"]["mean"] * 30, play.gap_ms(0, b'"A"', b'"}"'))


def test_s16_one_line_beyond_any_reader_limit(bench: Bench) -> None:
    def script(number: int) -> list[Line]:
        text = "x" * ((200 << 10) if number == 0 else (1 << 20) + 17)
        return [(0.0, delta(text)), (0.01, delta("B", "stop")), (0.01, usage(2)), (0.01, DONE)]

    with playing(script) as play:
        run = bench.burst(play.url, n=2)
    assert [(r.outcome, r.events) for r in run.requests()] == [("ok", 2), ("ok", 2)]


def test_s17_compressed_although_identity_was_asked(bench: Bench) -> None:
    head = SSE_HEAD.replace(b"Transfer", b"Content-Encoding: gzip\r\nTransfer")
    packed = gzip.compress(b"".join(data for _, data in stream([0.0] * 20)))

    with playing(lambda number: [(0.3, packed)], head=head) as play:
        run = bench.burst(play.url, out=20)
    assert b"Accept-Encoding: identity" in play.heads[0]
    assert run.cell["requests"]["ok"] == 1
    assert run.cell["tokens"]["output"] == 20
    assert {"compressed_response", "buffered_stream"} <= run.doubts.keys()
    assert run.client["itl_ms"]["n"] == run.client["tpot_ms"]["n"] == 0


def test_s19_body_cut_mid_stream(bench: Bench) -> None:
    tokens = stream([0.01, 0.02, 0.3], end=[])

    with playing(lambda number: tokens, cut=lambda number: number < 2) as play:
        run = bench.burst(play.url, n=2)
    assert run.code == 4
    assert run.cell["requests"]["errors"] == {"truncated": 2}
    assert run.cell["tokens"]["output"] == 0
    for record in run.requests():
        lasted = re.search(r"after (\d+\.\d) s", record.error_detail or "")
        assert lasted is not None
        assert 0.3 <= float(lasted[1]) < 30
    assert "time-out" in run.doubts["truncated_streams"]["message"]

    cut = {"error": "truncated", "finish_reason": None}
    at_300 = [
        Record(times=[k * S, (k + 1) * S], sent=0, end=int(300.1e9), outcome="failed", extra=cut)
        for k in (1, 2)
    ]
    _, doubts = cell_result([as_round([*at_300, steady_stream(0, S, 20)])])
    message = next(doubt.message for doubt in doubts if doubt.code == "truncated_streams")
    assert "after 300 s" in message
    assert "proxy" in message

"""Cases T: how many tokens there were, and who says so."""

from __future__ import annotations

import re

import pytest

from concbench.analyse.unlike import Measured, unlike_measured
from tests.cases.play import DONE, Bench, Line, delta, error_page, event, playing, usage, within


def lumps(chunks: int, tokens: int, gap_s: float) -> list[Line]:
    """Chunks of several tokens each; only a final usage tells how many."""
    lines = [(0.01 + gap_s * k, delta(f" c{k}.")) for k in range(chunks)]
    at = lines[-1][0]
    return [*lines, (at, delta("", "length")), (at, usage(tokens)), (at, DONE)]


def test_t01_chunks_are_not_tokens(bench: Bench) -> None:
    with playing(lambda number: lumps(100, 410, 0.006)) as play:
        run = bench.burst(play.url, out=410)
    assert run.cell["tokens"]["output"] == 410
    assert run.cell["tokens"]["per_chunk"] == 4.1
    peak = run.client["steady_output_tok_per_s"]["point"]
    mean = run.client["output_tok_per_s"]["point"]
    assert peak >= mean
    decode = play.gap_ms(0, b" c0.", b" c99.")
    assert within(99 * 4.1 / peak * 1e3, decode)


def test_t02_gap_between_chunks_and_between_tokens(bench: Bench) -> None:
    with playing(lambda number: lumps(40, 102, 0.00872)) as play:
        run = bench.burst(play.url, out=102)
    client, decode = run.client, play.gap_ms(0, b" c0.", b" c39.")
    assert within(client["icl_ms"]["mean"] * 39, decode)
    assert within(client["itl_ms"]["mean"] * 39 * 2.55, decode)
    assert within(client["tpot_ms"]["mean"] * 39 * 2.55, decode)
    note = run.doubts["chunks_not_tokens"]
    assert note["evidence"]["tokens_per_event"] == pytest.approx(2.55)
    assert "estimate" in note["message"]


def test_t03_tokens_divide_and_not_chunks(bench: Bench) -> None:
    def script(_number: int) -> list[Line]:
        lines = lumps(60, 150, 0.01)
        first = usage(1, choices=[{"index": 0, "delta": {"content": " c0."}}])
        return [(lines[0][0], first), *lines[1:]]

    with playing(script) as play:
        run = bench.burst(play.url, out=150)
    assert within(run.client["tpot_ms"]["mean"] * 149, play.gap_ms(0, b" c0.", b" c59."))
    assert run.cell["tokens"]["per_chunk"] == 2.5
    assert "chunks_not_tokens" in run.doubts


def test_t04_cumulative_usage_is_not_summed(bench: Bench) -> None:
    counts = [1, *range(4, 100)]

    def script(number: int) -> list[Line]:
        def said(choice: int, total: int) -> bytes:
            return usage(total, choices=[{"index": choice, "delta": {"content": " w"}}])

        both = (0, 1) if number == 1 else (0,)
        lines = [said(choice, total) for total in counts for choice in both]
        ends = [
            event({"choices": [{"index": choice, "delta": {}, "finish_reason": "length"}]})
            for choice in both
        ]
        return [(0.0, data) for data in [*lines, *ends, DONE]]

    with playing(script) as play:
        run = bench.burst(play.url, n=2, out=99)
    by_events = sorted((r.events, r.output_tok) for r in run.requests())
    assert by_events == [(97, 99), (194, 198)]


def test_t07_empty_text_and_usage(bench: Bench) -> None:
    def text(said: str, **fields: object) -> bytes:
        return event({"choices": [{"index": 0, "text": said, **fields}]})

    def script(number: int) -> list[Line]:
        last = {"index": 0, "text": "", "finish_reason": "stop"}
        end = usage(37, choices=[last]) if number == 0 else text("", finish_reason="stop")
        lines = [(0.02 * k, text(f" w{k}.")) for k in range(37)]
        return [*lines, (0.72, end), (0.72, DONE)]

    with playing(script) as play:
        run = bench.burst(play.url, "--endpoint", "completions", n=2, out=512)
    assert {r.token_source: r.output_tok for r in run.requests()} == {"usage": 37, "chunks": 37}
    bounds = sorted(play.gap_ms(number, b" w0.", b" w36.") for number in (0, 1))
    assert within(run.client["tpot_ms"]["min"] * 36, bounds[0])
    assert run.client["tpot_ms"]["max"] > 15
    assert run.doubts["token_count_estimated"]["evidence"]["estimated"] == 1
    assert "output_short" in run.doubts


def test_t08_text_that_another_encoding_collapses(bench: Bench) -> None:
    def script(number: int) -> list[Line]:
        lines = [(0.01 * k, delta(" ")) for k in range(15)]
        counted = [(0.15, usage(15))] if number == 0 else []
        return [*lines, (0.15, delta("", "stop")), *counted, (0.15, DONE)]

    with playing(script) as play:
        run = bench.burst(play.url, n=2, out=15)
    known = {r.token_source: r.output_tok for r in run.requests()}
    assert known == {"usage": 15, "chunks": 15}
    assert run.cell["tokens"]["source"] == "chunks"
    assert run.doubts["token_count_estimated"]["evidence"]["estimated"] == 1


def test_t11_prompt_longer_than_asked(bench: Bench) -> None:
    def script(_number: int) -> list[Line]:
        return [(0.0, delta("A")), (0.01, delta("B", "length")), (0.01, usage(2, 4106) + DONE)]

    with playing(script, model={"max_model_len": 4112}) as play:
        run = bench.burst(play.url, "--prompt-tokens", "4000", n=2, out=2)
        asked = len(play.bodies)
        code, error = bench.refused(
            "burst", play.url, "--prompt-tokens", "4000", "--output-tokens", "122", "--levels",
            "2", "--out", str(bench.folder / "refused"),
        )  # fmt: skip
    assert run.cell["tokens"]["prompt"] == 2 * 4106
    off = run.doubts["prompt_length_off"]
    assert off["evidence"]["got_over_asked"] == pytest.approx(1.0265)
    assert "2.6 % longer" in off["message"] or "2.7 % longer" in off["message"]
    assert code == 2
    assert "4112" in error
    assert len(play.bodies) == asked, "refused before a measured request is sent"

    said = "This model's maximum context length is 4096 tokens. However, you requested 4122"

    def reject(sock: object, _number: int) -> bool:
        error_page(sock, 400, said)  # type: ignore[arg-type]
        return True

    with playing(script, answer=reject) as play:
        rejected = bench.burst(play.url, n=2)
    assert rejected.code == 4
    assert rejected.cell["requests"]["errors"] == {"http_400": 2}
    assert "4122" in rejected.doubts["context_rejected"]["evidence"]["detail"]


def test_t12_prompt_too_short_to_exist(bench: Bench) -> None:
    with playing(lambda number: []) as play:
        code, error = bench.refused(
            "burst", play.url, "--prompt-tokens", "1", "--out", str(bench.folder / "none")
        )
    assert code == 2
    least = re.search(r"minimum is (\d+)", error)
    assert least is not None, error
    assert int(least[1]) > 1
    assert not play.bodies


def test_t13_end_of_text_ignored_or_not(bench: Bench) -> None:
    def script(number: int) -> list[Line]:
        length, reason = (20, "length") if number % 2 else (10, "stop")
        lines = [(0.002 * k, delta(" w")) for k in range(length)]
        return [*lines, (0.05, delta("", reason)), (0.05, usage(length)), (0.05, DONE)]

    with playing(script) as play:
        run = bench.burst(play.url, n=4, out=20)
    tokens = run.cell["tokens"]
    assert (tokens["output"], tokens["asked_output"]) == (60, 80)
    assert run.cell["requests"]["finish"] == {"stop": 2, "length": 2}
    assert "75.0 %" in run.doubts["output_short"]["message"]
    full = Measured(output_tok_median=1024, finish={"length": 160})
    part = Measured(output_tok_median=771, finish={"length": 40, "stop": 120})
    assert [one.name for one in unlike_measured(full, part)] == ["output_length"]

from msgspec.structs import replace

from concbench.domain import Doubt, TargetFacts
from concbench.report.build import build_view
from concbench.report.header import engine_line, instrument_line
from concbench.report.reproduce import command_lines
from tests.report.conftest import burst, cell, comparison, facts


def test_engine_line():
    assert " · ".join(engine_line(facts(), burst().cells)) == (
        "vLLM 0.32.0 · Qwen3.8-27B NVFP4 · KV fp8 · 8 running at most · 16,384 context · "
        "prefix cache on (0.0 % hit) · attached"
    )


def test_engine_line_leaves_out_what_is_not_known():
    bare = TargetFacts(lane="embedded", engine="llamacpp", base_url="http://127.0.0.1:1")
    one = cell(1)
    one.tokens.cached = None
    assert engine_line(bare, [one]) == ("llama.cpp", "embedded")
    assert engine_line(None, [one]) == ()
    assert "started here" in engine_line(facts(launch=["vllm"]), [one])
    assert "in a container" in engine_line(facts(container={"image": "x"}), [one])
    named = facts(model="SmolLM2-135M.Q8_0", quantization="q8_0")
    assert "SmolLM2-135M.Q8_0" in engine_line(named, [one])


def test_instrument_line_shows_the_worst_cell():
    cells = burst((1, 2)).cells
    cells[1].instrument.min_rtt_ms = 0.5
    cells[1].instrument.ceiling_tok_per_s = 20_000.0
    assert instrument_line(cells)[2:] == ("ceiling 20,000 tok/s", "min RTT 0.50 ms")
    cells[1].instrument.stamp = "user"
    assert instrument_line(cells)[0] == "kernel and user stamps"
    cells[1].rounds = 0
    assert instrument_line(cells)[0] == "kernel stamps"
    cells[0].rounds = 0
    assert instrument_line(cells) == ()


def test_doubts_are_grouped_and_fatal_ones_lead():
    result = burst()
    for one in result.cells[:2]:
        result.doubts.append(
            Doubt(code="client_bound", severity="fatal", message="same", cell=one.cell)
        )
    doubts = build_view(result).doubts
    assert [doubt.code for doubt in doubts] == [
        "client_bound", "prompt_length_off", "cold_first_request",
    ]  # fmt: skip
    assert doubts[0].messages == (("same", "N = 1, 2"),)
    assert doubts[1].evidence == ("asked_tok = 512, counted_tok = 528",)


def test_cells_of_several_lanes_are_named_with_their_lane():
    result = comparison()
    result.doubts = [
        Doubt(code="late_reads", severity="warning", message="m", cell="gguf-short-n1"),
        Doubt(code="late_reads", severity="warning", message="m", cell="nvfp4-short-n1"),
    ]
    assert build_view(result).doubts[0].messages == (("m", "gguf · N = 1; nvfp4 · N = 1"),)


def test_a_doubts_cells_are_told_apart_by_their_link():
    result = burst()
    cells = [
        replace(result.cells[0], cell=name, link=name if name != "x" else None)
        for name in ("bond", "x")
    ]
    doubts = [
        Doubt(code="stalled", severity="fatal", message="m", cell=each.cell) for each in cells
    ]
    view = build_view(replace(result, cells=cells, doubts=doubts))
    assert view.doubts[0].messages == (("m", "bond · N = 1; no link · N = 1"),)


def test_sentence():
    result = comparison()
    assert build_view(result).sentence.startswith("steady tok/s: nvfp4 is faster than gguf")
    result.doubts.append(
        Doubt(code="client_bound", severity="fatal", message="m", cell="gguf-short-n1")
    )
    assert build_view(result).sentence.endswith("a fatal doubt stands: client_bound")
    result.doubts.append(Doubt(code="clock_stepped", severity="fatal", message="m"))
    assert build_view(result).sentence == "do not use these numbers: clock_stepped"


def test_series_are_titled_by_what_varies():
    result = burst((1, 2))
    result.cells[1].context_label, result.cells[1].context_tok = "32000", 32_000
    assert [series.title for series in build_view(result).series] == [
        ("nvfp4", "short context (512 tokens)"),
        ("nvfp4", "32000 context (32,000 tokens)"),
    ]
    result.cells[1].link = "bond"
    assert build_view(result).series[1].title[1] == "link bond"


def test_machine_facts_are_flat():
    facts_of = {fact.name: fact.text for fact in build_view(burst()).machine}
    assert facts_of == {"cpu": "8 cores", "kernel": "6.1", "gpu.name": "none"}


def test_commands_to_reproduce():
    result = burst()
    assert command_lines(result) == (
        "concbench burst 'http://***@box:8000' --levels 1,2,4,8 --model Qwen3.8-27B "
        "--prompt-tokens 512 --output-tokens 256 --content prose --seed 1234 --temperature 0 "
        "--endpoint chat --rounds 4",
    )
    result.workload.arrival = "closed"
    assert [line.split()[3:5] for line in command_lines(result)] == [
        ["-c", "1"], ["-c", "2"], ["-c", "4"], ["-c", "8"],
    ]  # fmt: skip
    result.workload.arrival, result.workload.distinct_prompts = "poisson", False
    result.workload.extra_body, result.workload.stream = {"a": 1}, False
    for one in result.cells:
        one.rate_rps = 2.0
    (line,) = command_lines(result)
    assert "rate" in line
    assert "--rps 2 --poisson" in line
    assert "--no-stream --same-prompt --extra-body '{\"a\":1}'" in line
    result.command = "try"
    assert command_lines(result) == ("concbench try",)

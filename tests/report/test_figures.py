import csv
import io
import itertools
import json

import pytest

from concbench.analyse.exhibits import exhibit_of
from concbench.analyse.study import StudyFacts, judge
from concbench.domain import Doubt
from concbench.report.build import build_view
from concbench.report.figure import cell_text, plain
from concbench.report.figures import figures_of
from concbench.report.html import to_html
from tests.report.conftest import HOSTILE, burst, summary
from tests.report.synthetic import Engine, study_rounds

SMALL_POOL = Engine("a", slots=8, pool_tok=9_000)


def judged(engines, contexts, levels, rounds=3, output_tok=80):
    """The result of a made-up sweep and what its page draws of each cell."""
    exhibits = []
    facts = StudyFacts(
        tool_version="0.1.0",
        command="sweep",
        study="studies/made-up",
        began_utc="2026-11-29T15:20:00Z",
        machine={},
        targets={engine.name: engine.facts() for engine in engines},
    )
    result = judge(
        study_rounds(engines, contexts, levels, rounds, output_tok),
        facts,
        lambda seen: exhibits.append(exhibit_of(seen)),
    )
    return result, exhibits


@pytest.fixture(scope="module")
def swept():
    result, exhibits = judged([SMALL_POOL, Engine("b")], (256, 512, 1024), (1, 2, 4, 8, 16))
    return result, {figure.key: figure for figure in figures(result, exhibits)}


def figures(result, exhibits=()):
    return figures_of(build_view(result).series, result, exhibits)


def test_every_figure_has_table_csv_and_words(swept):
    _, found = swept
    assert list(found) == [
        "throughput",
        "per-user",
        "heat-map",
        "ttft",
        "e2e",
        "ttft-spread",
        "e2e-spread",
        "gap-spread",
        "timeline",
        "decode-context",
        "kv-queue",
        "agreement",
        "instrument",
    ]
    for figure in found.values():
        for panel in figure.panels:
            assert panel.data
            assert panel.rows
            assert all(len(row) == len(panel.header) for row in panel.rows)
            assert panel.alternative.endswith(".")
            rows = list(csv.reader(io.StringIO(panel.csv)))
            assert len(rows) > 1
            assert len({len(row) for row in rows}) == 1
        labels = [panel.label for panel in figure.panels]
        assert len(set(labels)) == len(labels), "choices can be told apart"
        assert len(labels) == 1 or all(labels)


def test_figures_are_strict_json(swept):
    _, found = swept
    for figure in found.values():
        json.dumps([[panel.data, panel.layout] for panel in figure.panels], allow_nan=False)


def test_many_series_are_chosen_by_context():
    lanes = [Engine(name) for name in "abcd"]
    result, _ = judged(lanes, (256, 512), (1, 2), rounds=1)
    throughput = figures(result)[0]
    assert [panel.label for panel in throughput.panels] == [
        "short · 256 tokens",
        "short · 512 tokens",
    ]
    names = [trace["name"] for trace in throughput.first.data]
    assert names == [f"{lane} {line}" for lane, line in
                     itertools.product("abcd", ("steady", "batch (classic)"))]  # fmt: skip


def test_the_heat_map_holds_every_cell(swept):
    result, found = swept
    squares = {}
    for panel in found["heat-map"].panels:
        for context, level, value, _ in csv_rows(panel):
            squares[panel.label, int(context), int(level)] = value
    for cell in result.cells:
        steady = cell.client.steady_output_tok_per_s or cell.client.output_tok_per_s
        value = squares[cell.lane, cell.context_tok, cell.concurrency]
        assert float(value) == pytest.approx(steady.point)
    assert len(squares) == len(result.cells) == 30


def test_the_heat_map_explains_the_signs_that_occur():
    result, _ = judged([Engine("a")], (256, 512), (1, 2, 4), rounds=3)
    for cell in result.cells:
        assert cell.client.steady_output_tok_per_s
    result.doubts = []
    panel = figure_named(result, "heat-map").first
    assert panel.note == ""
    result.doubts = [
        Doubt(code="odd", severity="warning", message="m", cell="a.256.c2"),
        Doubt(code="bad", severity="fatal", message="m", cell="a.512.c4"),
    ]
    panel = figure_named(result, "heat-map").first
    assert panel.note == "! is in doubt (odd); ✗ is a fatal doubt."
    squares = panel.data[0]["text"]
    assert [[text[-1] in "!✗" for text in line] for line in squares] == [
        [False, True, False],
        [False, False, True],
    ]


def test_the_timeline_adds_up_to_the_requests(swept):
    _result, found = swept
    timeline = found["timeline"]
    assert timeline.wide
    assert len(timeline.panels) == 30
    largest = timeline.first
    assert largest.label.endswith("N = 16")
    bars = [trace for trace in largest.data if trace["type"] == "bar"]
    assert [bar["name"] for bar in bars] == ["waiting (estimate)", "prefill (estimate)", "decode"]
    ends = dict.fromkeys(range(1, 17), 0.0)
    for bar in bars:
        for row, start, length in zip(bar["y"], bar["base"], bar["x"], strict=True):
            assert start >= ends[row] - 1e-4, "parts of a request follow one another"
            ends[row] = start + length
    parts = {bar["meta"]["colour"] for bar in bars}
    curves = {t["name"]: t["meta"]["colour"] for t in largest.data if t["type"] == "scatter"}
    shared = {name for name, colour in curves.items() if colour in parts}
    assert shared == {"waiting (server)"}, "a bar's colour means that bar's part"
    names = {trace["name"] for trace in largest.data}
    assert {"in flight (client)", "running (server)", "tok/s (client)", "tok/s (server)"} <= names
    running = next(trace for trace in largest.data if trace["name"] == "running (server)")
    assert max(running["y"]) == min(8, 9_000 // (256 + 80))
    assert "No steady window" in largest.note
    whole = next(panel for panel in timeline.panels if "N = 4" in panel.label)
    assert whole.layout["shapes"][0]["x0"] < whole.layout["shapes"][0]["x1"]


def test_beyond_the_pool_time_grows_as_the_number(swept):
    _, found = swept
    panel = next(panel for panel in found["kv-queue"].panels if "1,024" in panel.label)
    assert "holds 8 such requests" in panel.note or "such requests at once" in panel.note
    rows = {row[0]: row for row in csv_rows(panel)}
    header = list(panel.header)
    over = rows["16"]
    assert over[header.index("over KV")] == "true"
    assert float(over[header.index("N ratio")]) == 2.0
    assert float(over[header.index("elapsed ratio")]) == pytest.approx(2.0, rel=0.2)
    assert float(over[header.index("waiting, peak")]) >= 8
    assert rows["8"][header.index("elapsed ratio")] == ""


def test_decode_is_predicted_where_it_was_held_out(swept):
    _, found = swept
    panel = next(panel for panel in found["decode-context"].panels if panel.label == "b")
    assert "never saw 1,024 tokens" in panel.note
    dotted = [trace for trace in panel.data if trace["name"].endswith("predicted")]
    assert dotted
    for row in csv_rows(panel):
        assert float(row[5]) == pytest.approx(float(row[2]), rel=0.05)


def test_client_and_server_agree(swept):
    _, found = swept
    (panel,) = found["agreement"].panels
    known = [float(row[4]) for row in csv_rows(panel) if row[4]]
    assert known
    assert max(map(abs, known)) < 2


def csv_rows(panel):
    return list(csv.reader(io.StringIO(panel.csv)))[1:]


def test_a_page_of_a_sweep_stays_small():
    lanes = [Engine(name) for name in "abcde"]
    result, exhibits = judged(lanes, (256, 512, 1024, 2048, 4096), (1, 2, 3, 4, 5, 6, 7, 8), 1, 60)
    assert len(result.cells) == 200
    assert len(to_html(result, exhibits).encode()) < 8_000_000


def test_without_rounds_the_figures_of_rounds_are_left_out():
    keys = [figure.key for figure in figures(burst())]
    assert keys == ["throughput", "per-user", "ttft", "e2e", "agreement", "instrument"]


def test_a_level_of_an_open_loop_is_a_rate():
    result = burst((1, 2))
    for cell, rate in zip(result.cells, (0.5, 4.0), strict=True):
        cell.rate_rps = rate
    for figure in figures(result):
        assert figure.first.layout["xaxis"]["title"]["text"] == "requests asked for a second"
        assert "concurrency" not in figure.title + figure.first.alternative
    assert figures(result)[0].title == "Throughput against offered rate, tok/s"


def test_the_note_says_whose_markers_are_hollow():
    lanes = [Engine("a"), Engine("b")]
    result, _ = judged(lanes, (256,), (1, 2, 4, 16), rounds=1)
    for cell in ("a.256.c16", "a.256.c2", "b.256.c4"):
        result.doubts.append(Doubt(code="odd", severity="warning", message="m", cell=cell))
    note = figures(result)[0].first.note
    assert "odd (a · N = 2, 16; b · N = 4)" in note


def test_durations_over_decades_are_drawn_by_their_logarithm():
    result = burst((1, 2, 4))
    plain_axis = figure_named(result, "ttft").first.layout["yaxis"]
    assert "type" not in plain_axis
    slow = result.cells[2]
    slow.client.ttft_ms = summary([9_000.0 + k for k in range(40)])
    axis = figure_named(result, "ttft").first.layout["yaxis"]
    assert axis["type"] == "log"
    assert axis["title"]["text"].endswith("(logarithmic)")
    low, high = axis["range"]
    assert 10**low < 95 < 9_039 < 10**high
    assert "type" not in figure_named(result, "throughput").first.layout["yaxis"]


def figure_named(result, key):
    return next(figure for figure in figures(result) if figure.key == key)


def test_hostile_names_stay_text_in_figures():
    result, exhibits = judged([Engine(HOSTILE), Engine("b")], (256, 512), (1, 2), rounds=2)
    for figure in figures(result, exhibits):
        for panel in figure.panels:
            for trace in panel.data:
                assert "<" not in trace.get("name", "")
                assert all("<" not in text for text in flat(trace.get("text", [])))
            title = panel.layout.get("yaxis", {}).get("title", {}).get("text", "")
            assert "<" not in title
            assert len(panel.label) < 400


def flat(texts):
    for text in texts:
        if isinstance(text, list):
            yield from flat(text)
        else:
            yield text


def test_texts_of_cells():
    assert [cell_text(v) for v in (None, True, 1234, 0.5, "x")] == [
        "–",
        "yes",
        "1,234",
        "0.500",
        "x",
    ]
    assert plain("<b>" + "x" * 100) == "&lt;b&gt;" + "x" * 36 + "…"

import re
from xml.etree import ElementTree as ET

from concbench.analyse.gate import gate
from concbench.report.comparison import comparison_markdown, render_comparison
from concbench.report.comparisontables import crossover_line, crossover_tables, tables, word
from concbench.report.html import to_html
from concbench.report.junit import to_junit
from concbench.report.markdown import to_markdown
from concbench.report.terminal import render
from concbench.report.verdicts import metric_label, verdict_sentences
from tests.report.conftest import HOSTILE, comparison, console, estimate, text_of, verdict

NOTHING = {"unlike": [], "accepted": []}


def corrected():
    result = comparison()
    result.corrections = [
        {"round": "r7", "why": "a backup ran", "by": "r9", "at_utc": "2026-11-29T16:00:00Z",
         "was": ["steady tok/s: undecided at N = 8."]},
        {"round": None, "why": "a newer driver", "by": None, "at_utc": None, "supersedes": "old",
         "superseded_by": None},
    ]  # fmt: skip
    return result


def test_a_table_for_each_metric_and_one_sentence_first():
    target = console(120)
    render_comparison(comparison(), target)
    shown = text_of(target)
    lines = shown.splitlines()
    assert lines[0] == "steady tok/s: nvfp4 against gguf"
    assert lines[1].split() == ["N", "gguf", "nvfp4", "nvfp4", "÷", "gguf", "pairs", "verdict"]
    assert lines[2].split()[-2:] == ["gguf", "faster"]
    assert "1.92 × [1.88, 1.96]" in lines[4]
    assert "nvfp4 is faster than gguf from N = 4" in shown


def test_the_old_sentence_is_struck_through_in_every_format():
    result = corrected()
    target = console(100)
    render_comparison(result, target)
    shown = text_of(target)
    assert shown.startswith("CORRECTION  round r7 is retracted: a backup ran (replaced by r9)")
    assert "  was  steady tok/s: undecided at N = 8." in shown
    assert "AMENDED  supersedes old: a newer driver" in shown
    assert "> was: ~~steady tok/s: undecided at N = 8.~~" in comparison_markdown(result)
    page = to_html(result)
    assert "<del><bdi>steady tok/s: undecided" in page
    assert "Amended" in page


def test_several_contexts_at_one_level_are_one_table_and_one_sentence():
    rows = [
        verdict(4, kind, point, context_tok=context, **NOTHING)
        for context, kind, point in [(50, "inconclusive", 1.01), (5000, "b_faster", 1.1),
                                     (32000, "b_faster", 1.3)]
    ]  # fmt: skip
    result = comparison()
    result.verdicts, result.crossovers = rows, []
    (table,) = tables(result)
    assert table.header[0] == "context"
    assert [row[0] for row in table.rows] == ["50", "5,000", "32,000"]
    (sentence,) = verdict_sentences(rows, [])
    assert sentence.startswith(
        "steady tok/s at N = 4: nvfp4 is faster than gguf from context 5,000"
    )
    assert "undecided at 50" in sentence


def test_sides_are_those_of_the_ratio_with_their_spread():
    result = comparison()
    result.verdicts = [
        verdict(2, "equivalent", 0.97, metric="ttft_ms.worst_quarter", better="lower",
                value_a=estimate(22.0, 0.1), value_b=estimate(21.3, 0.1), **NOTHING)
    ]  # fmt: skip
    table = tables(result)[-1]
    assert table.rows[0][1:3] == ("22.0 ± 10 %", "21.3 ± 10 %")
    told = "sides and ratio: geometric means over the pairs of runs"
    assert table.notes[0].startswith(told)
    target = console(120)
    render_comparison(result, target)
    assert told in text_of(target)
    assert told in comparison_markdown(result)
    assert all(not each.notes for each in tables(comparison()))


def test_words():
    assert word(verdict(1, "b_faster", 1.5)) == "nvfp4 faster"
    assert word(verdict(1, "a_faster", 0.99, beyond_delta=False)) == "gguf faster (slightly)"
    assert word(verdict(1, "drifted", 1.0)) == "control drifted"
    assert word(verdict(1, "new_kind", 1.0)) == "new_kind"
    assert metric_label("ttft_ms.worst_quarter") == "TTFT worst quarter"


def test_a_difference_that_is_not_surely_large_says_so():
    (sentence,) = verdict_sentences(
        [verdict(1, "b_faster", 1.04, beyond_delta=False, **NOTHING)], []
    )
    assert "not surely over 3.0 %" in sentence


def test_the_bracket_of_other_lanes_is_not_taken():
    result = comparison()
    result.crossovers[0]["lanes"] = ["gguf", "third"]
    assert "crossover" not in verdict_sentences(result.verdicts, result.crossovers)[0]
    result.crossovers[0] |= {"lanes": ["nvfp4", "gguf"], "bracket": None,
                             "note": "no single crossover"}  # fmt: skip
    assert "; no single crossover" in verdict_sentences(result.verdicts, result.crossovers)[0]


def test_several_lanes_are_told_by_level():
    entry = {"metric": "output_tok_per_s", "axis": "concurrency", "basis": "intervals",
             "lanes": ["a", "b", "c"], "bracket": [2, 4], "note": None, "concurrency": None,
             "ranges": [{"from": 1, "to": 2, "winner": "tie", "within": ["a", "b"]},
                        {"from": 4, "to": 4, "winner": "c", "within": []}]}  # fmt: skip
    assert verdict_sentences([], [entry]) == (
        "batch tok/s by concurrency: tie (a, b within noise) at 1–2, c at 4; crossover in (2, 4).",
    )


def test_junit_tells_failures_errors_and_skips():
    result = comparison()
    result.verdicts += [verdict(16, "drifted", 1.0), verdict(32, "inconclusive", 0.96)]
    result.verdicts[0].a = HOSTILE
    suite = ET.fromstring(to_junit(result, gate(result.verdicts, 0.05)).split("?>", 1)[1])
    counts = [int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == [6, 0, 1, 2]
    assert len(suite.findall("testcase/system-out")) == 6
    free = ET.fromstring(to_junit(result, []).split("?>", 1)[1])
    assert [int(free.get(name)) for name in ("failures", "errors", "skipped")] == [0, 0, 1]


def test_hostile_names_stay_text():
    result = corrected()
    for row in result.verdicts:
        row.a = HOSTILE
    result.corrections[0]["was"] = [HOSTILE]
    target = console(80)
    render_comparison(result, target)
    assert "\x1b" not in text_of(target)
    assert "<script>alert" not in to_html(result)
    written = comparison_markdown(result)
    assert not re.search(r"(?<!\\)<", written)


def _entry(*ranges, **changes):
    parts = [
        {"from": low, "to": high, "winner": winner, "within": list(within)}
        for low, high, winner, within in ranges
    ]
    fields = {"metric": "steady_output_tok_per_s", "axis": "concurrency", "ranges": parts}
    return {**fields, "bracket": None, "lanes": ["gguf", "nvfp4"], "note": None, **changes}


def test_who_is_best_at_each_level():
    result = comparison()
    tie = ("gguf", "nvfp4")
    entry = _entry((1, 2, "gguf", ()), (4, 4, "tie", tie), (8, 16, "nvfp4", ()))
    result.crossovers = [entry, _entry((1, 2, "gguf", ()), metric="ttft_ms.p50")]
    (table,) = crossover_tables(result)
    assert table.title == "crossover of steady tok/s: gguf up to 2, tie at 4, nvfp4 from 8"
    assert table.rows == (
        ("1 to 2", "gguf", ""),
        ("4", "tie", "gguf, nvfp4"),
        ("8 to 16", "nvfp4", ""),
    )
    for shown in (comparison_markdown(result), to_markdown(result)):
        assert "crossover of steady tok/s: gguf up to 2, tie at 4, nvfp4 from 8" in shown
        assert "| 8 to 16 | nvfp4 |  |" in shown
    target = console(100)
    render(result, target)
    assert "8 to 16   nvfp4" in text_of(target)


def test_a_crossover_in_one_clause():
    assert crossover_line(_entry((1, 8, "tie", ()))) == "tie at every level measured"
    many = _entry(
        (1, 1, "a", ()), (2, 4, "b", ()), (8, 8, "a", ()), note="no single crossover",
        basis="points",
    )  # fmt: skip
    assert crossover_line(many) == (
        "a up to 1, b from 2 to 4, a from 8 (no single crossover) (single readings)"
    )


def test_the_markdown_report_has_a_section_on_the_comparison():
    shown = to_markdown(comparison())
    assert "### Comparison\n\n- " in shown
    assert "#### steady tok/s: nvfp4 against gguf" in shown


def test_names_of_lanes_are_inert_in_a_crossover():
    result = comparison()
    result.crossovers = [_entry((1, 1, HOSTILE, ()), (2, 2, "b", (HOSTILE,)))]
    assert "<script>" not in comparison_markdown(result)

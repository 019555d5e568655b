from concbench.report.verdicts import metric_label, verdict_sentences
from tests.report.conftest import HOSTILE, comparison, verdict

NOTHING = {"unlike": [], "accepted": []}


def one(*rows):
    (sentence,) = verdict_sentences(rows, [])
    return sentence


def test_the_whole_sentence():
    result = comparison()
    assert verdict_sentences(result.verdicts, result.crossovers) == (
        "steady tok/s: nvfp4 is faster than gguf from N = 4 (1.92 × [1.88, 1.96] at 4, "
        "2.52 × [2.47, 2.57] at 8), a tie at 2 (1.00 × [0.98, 1.02]), slower at 1 "
        "(0.94 × [0.92, 0.96]); crossover in (1, 4). Unlike: quantization (accepted).",
    )


def test_the_headline_metric_comes_first_where_it_has_a_verdict():
    refused = {"why": "fatal doubt: late_reads", **NOTHING}
    rows = [
        verdict(1, "invalid", 1.0, metric="output_tok_per_s", **refused),
        verdict(1, "b_faster", 0.9, metric="ttft_ms.p50", better="lower", **NOTHING),
        verdict(1, "b_faster", 1.5, **NOTHING),
    ]
    told = verdict_sentences(rows, [])
    assert [text.partition(":")[0] for text in told] == ["steady tok/s", "TTFT p50", "batch tok/s"]
    rows[2] = verdict(1, "invalid", 1.5, **refused)
    told = verdict_sentences(rows, [])
    assert [text.partition(":")[0] for text in told] == ["TTFT p50", "steady tok/s", "batch tok/s"]


def test_the_programs_own_reasons_are_whole():
    why = "bimodal: b " + "runs fall in two groups, 11 near 20.7 and 4 near 129; " * 4 + "the end"
    assert "the end" in one(verdict(1, "invalid", 1.0, why=why, **NOTHING))


def test_equal_everywhere():
    rows = [verdict(n, "equivalent", 1.0, **NOTHING) for n in (1, 2)]
    assert one(*rows) == ("steady tok/s: nvfp4 and gguf are equal within ±3.0 % at every N (1, 2).")


def test_a_single_level_that_is_slower_and_small():
    sentence = one(verdict(8, "a_faster", 0.98, **NOTHING))
    assert "nvfp4 is slower than gguf at N = 8 (0.98 × [0.96, 1.00], under 3.0 %)" in sentence


def test_undecided_names_the_pairs_needed():
    sentence = one(verdict(2, "inconclusive", 1.01, pairs_needed=14, **NOTHING))
    assert "undecided at N = 2" in sentence
    assert "about 14 pairs would settle it" in sentence


def test_what_stands_in_the_way_is_named():
    sentence = one(
        verdict(1, "drifted", 1.0, drift_pct=3.1, **NOTHING),
        verdict(2, "not_comparable", 1.0, unlike=["slots", "context"], accepted=["context"]),
        verdict(4, "invalid", 1.0, why="2 % of the answers were cut", **NOTHING),
    )
    assert "no verdict at N = 1: the control drifted by +3.1 %" in sentence
    assert "no verdict at 2: not comparable (slots)" in sentence
    assert "no verdict at 4: 2 % of the answers were cut" in sentence
    assert "Unlike: slots, context (accepted)." in sentence


def test_qualifiers():
    sentence = one(
        verdict(
            1, "b_faster", 1.5, provisional=True, adjusted="holm", corrected="round r1", **NOTHING
        )
    )
    assert "Provisional: one start of a server." in sentence
    assert "(Holm)" in sentence
    assert "Corrected: round r1." in sentence


def test_a_crossover_by_context_has_its_own_sentence():
    entry = {
        "metric": "ttft_ms_p95",
        "axis": "context",
        "bracket": None,
        "ranges": [
            {"from": 512, "to": 4096, "winner": "gguf"},
            {"from": 8192, "to": 8192, "winner": "tie"},
        ],
    }
    assert verdict_sentences([], [entry]) == (
        "TTFT p95 by context: gguf at 512–4096, tie at 8192.",
    )


def test_hostile_lanes_stay_short():
    assert len(one(verdict(1, "b_faster", 1.5, a=HOSTILE, b=HOSTILE, metric=HOSTILE))) < 400
    assert metric_label("e2e_ms.p50") == "E2E p50"

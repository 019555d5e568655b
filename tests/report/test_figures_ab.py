"""The figure of a comparison: what it opens with, and which of its points are in doubt."""

from concbench.domain import Doubt
from concbench.report.figures_ab import ratio_figure
from tests.report.conftest import comparison, verdict


def test_the_steady_rate_comes_first_where_it_has_a_verdict():
    result = comparison()
    steady = result.verdicts
    others = [
        verdict(8, kind, 1.2, metric=metric)
        for metric, kind in (("output_tok_per_s", "b_faster"), ("ttft_ms", "inconclusive"))
    ]
    result.verdicts = [*others, *steady]
    labels = [panel.label.split(":")[0] for panel in ratio_figure(result).panels]
    assert labels == ["steady tok/s", "batch tok/s", "TTFT"]
    result.verdicts = [*steady[:1], *others]
    result.verdicts[0].verdict = "invalid"
    labels = [panel.label.split(":")[0] for panel in ratio_figure(result).panels]
    assert labels == ["batch tok/s", "TTFT", "steady tok/s"]


def test_points_in_doubt_are_hollow_and_the_note_names_the_doubt():
    result = comparison()
    result.verdicts[0].verdict = "drifted"
    result.doubts.append(
        Doubt(code="client_late", severity="fatal", message="m", cell="gguf-short-n8")
    )
    panel = ratio_figure(result).first
    circle, hollow = "circle", "circle-open"
    assert panel.data[0]["marker"]["symbol"] == [hollow, circle, circle, hollow]
    assert panel.note.endswith(
        "Hollow markers are in doubt: control drifted (N = 1); client_late (gguf · N = 8)."
    )


def test_without_doubts_no_marker_is_hollow():
    panel = ratio_figure(comparison()).first
    assert set(panel.data[0]["marker"]["symbol"]) == {"circle"}
    assert "ollow" not in panel.note

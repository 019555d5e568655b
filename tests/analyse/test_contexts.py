import pytest

from concbench.analyse.contexts import Point, predict


def decode(n, context, a=0.01, b=0.0004, c=3e-8):
    return Point(n, context, 200, n / (a + b * n + c * n * (context + 100)))


def test_a_planted_law_is_found_and_the_longest_context_predicted():
    points = [decode(n, context) for context in (1000, 2000, 4000) for n in (1, 4, 16)]
    found = predict(points, "decode")
    assert found is not None
    assert found.held_out_tok == 4000
    assert found.error < 1e-6
    assert found.tok_per_s == pytest.approx([point.tok_per_s for point in points])


def test_the_error_is_that_of_the_context_that_was_not_seen():
    points = [decode(n, context) for context in (1000, 2000, 4000) for n in (1, 4, 16)]
    bent = [
        Point(p.n, p.context_tok, p.output_tok, p.tok_per_s * (0.8 if p.context_tok == 4000 else 1))
        for p in points
    ]
    found = predict(bent, "decode")
    assert found is not None
    assert found.error == pytest.approx(0.25, abs=0.01)


def test_prefill_slows_with_the_prompt():
    def prefill(context):
        return Point(1, context, 0, 1 / (1e-4 + 2e-9 * 0.75 * context))

    found = predict([prefill(context) for context in (1000, 2000, 4000)], "prefill")
    assert found is not None
    assert found.error < 1e-6


@pytest.mark.parametrize("contexts", [(1000, 2000), (1000, 2000, 5000), ()])
def test_no_prediction_beyond_what_was_measured(contexts):
    assert predict([decode(n, c) for c in contexts for n in (1, 4, 16)], "decode") is None

import pytest

from concbench.errors import UsageError
from concbench.plan.calibration import (
    CALIBRATION_WORDS,
    calibration_prompts,
    fit_calibration,
    word_count,
)
from concbench.plan.content import KINDS
from concbench.plan.prompts import make_prompts
from tests.plan.fake_tokenizers import bpe_like


@pytest.mark.parametrize("kind", KINDS)
def test_calibration_predicts_the_server(kind):
    texts = calibration_prompts(kind, 1)
    counts = [word_count(text) for text in texts]
    assert counts == list(CALIBRATION_WORDS)
    calibration = fit_calibration(counts, [bpe_like(text) + 30 for text in texts])
    for prompt in make_prompts(4, 1000, kind, 1, calibration=calibration):
        assert bpe_like(prompt.text) + 30 == pytest.approx(
            1000, rel=0.1 if kind == "repetition" else 0.05
        )


def test_calibration_recovers_a_line():
    calibration = fit_calibration([10, 20, 40], [37, 52, 82])
    assert calibration.template_tok == pytest.approx(22)
    assert calibration.tok_per_word == pytest.approx(1.5)


def test_points_at_which_a_server_cuts_prompts_are_left_out():
    cut = fit_calibration([48, 192, 384], [60 + 22, 200 + 22, 200 + 22])
    assert cut == fit_calibration([48, 192], [60 + 22, 200 + 22])
    assert fit_calibration([10, 20, 40], [37, 52, 80]).tok_per_word == pytest.approx(1.43, abs=0.01)


@pytest.mark.parametrize(
    ("words", "tokens"), [([], []), ([5], [9]), ([5, 9], [7, 7]), ([5, 5], [1, 2])]
)
def test_calibration_refused(words, tokens):
    with pytest.raises(UsageError, match="--prompts FILE"):
        fit_calibration(words, tokens)

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.errors import PromptTooLong
from concbench.plan.output import WINDOW_STEPS, auto_output_tokens


def test_one_stream_needs_the_window_and_little_more():
    assert auto_output_tokens(1, 0.02) == 208
    assert (
        auto_output_tokens(1, 0.02, first_spread_s=5, prompt_tok=10**6, prefill_tok_per_s=1) == 208
    )


def test_the_spread_of_first_tokens_is_added():
    assert auto_output_tokens(8, 0.02, first_spread_s=1.0) == 200 + 63 + 8
    estimated = auto_output_tokens(8, 0.02, prompt_tok=1000, prefill_tok_per_s=7000)
    assert estimated == auto_output_tokens(8, 0.02, first_spread_s=1.0)
    assert auto_output_tokens(8, 0.02, first_spread_s=1.0, tok_per_step=2.5) == math.ceil(
        270.5 * 2.5
    )


def test_clamped_to_the_context():
    assert auto_output_tokens(1, 0.02, prompt_tok=900, context_tok=1000) == 100
    assert auto_output_tokens(1, 0.02, prompt_tok=100, context_tok=1000) == 208
    with pytest.raises(
        PromptTooLong, match="1000 tokens leaves no room for an answer in a context of 1000"
    ):
        auto_output_tokens(1, 0.02, prompt_tok=1000, context_tok=1000)


@pytest.mark.parametrize("step_s", [0, -1, math.nan, math.inf])
def test_bad_step(step_s):
    with pytest.raises(ValueError, match="more than 0 s"):
        auto_output_tokens(1, step_s)


@given(st.integers(1, 64), st.floats(0.001, 0.2), st.integers(1, 5000), st.floats(500, 50_000))
def test_serial_prefill_leaves_the_window(n, step_s, prompt_tok, prefill_tok_per_s):
    """Stream i starts i prefills late and then decodes a token a step: min l − max f is enough."""
    tokens = auto_output_tokens(
        n, step_s, prompt_tok=prompt_tok, prefill_tok_per_s=prefill_tok_per_s
    )
    firsts_s = [i * prompt_tok / prefill_tok_per_s for i in range(n)]
    lasts_s = [first_s + (tokens - 1) * step_s for first_s in firsts_s]
    assert (min(lasts_s) - max(firsts_s)) / step_s >= WINDOW_STEPS

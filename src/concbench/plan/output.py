"""How many output tokens a burst needs for a window in which all of its streams decode."""

from __future__ import annotations

import math

from concbench.errors import PromptTooLong

WINDOW_STEPS = 200
"""Decode steps wanted inside the window: its edges then weigh 1 ÷ 200 = 0.5 %."""

_SPREAD_MARGIN = 1.25
_SPARE_STEPS = 8


def auto_output_tokens(
    n: int,
    step_s: float,
    *,
    first_spread_s: float | None = None,
    prompt_tok: int = 0,
    prefill_tok_per_s: float | None = None,
    tok_per_step: float = 1.0,
    context_tok: int | None = None,
    window_steps: int = WINDOW_STEPS,
) -> int:
    """Return the output tokens that leave `window_steps` steps in (max f, min l] of a burst of n.

    The stream that starts first ends first: it must still be decoding `window_steps` steps
    after the last one started. So its length is the window plus the spread of first tokens
    (max f − min f) in steps of `step_s`, a quarter more of that spread and 8 steps, times the
    tokens a step yields (1 without speculation).

    The spread is `first_spread_s` where a warm-up wave measured it; otherwise it is taken as
    n − 1 prompts of `prompt_tok` prefilled one after another at `prefill_tok_per_s`, which is
    the most it can be below saturation; 0 where neither is known.

    The result is clamped to what `context_tok` leaves after the prompt; a clamped burst may have
    no window. Raises PromptTooLong where that leaves nothing, ValueError for step_s ≤ 0.
    """
    if not (step_s > 0 and math.isfinite(step_s)):
        raise ValueError(f"a decode step takes more than 0 s, not {step_s}")
    spread_s = 0.0
    if n > 1 and first_spread_s is not None:
        spread_s = max(0.0, first_spread_s)
    elif n > 1 and prefill_tok_per_s:
        spread_s = (n - 1) * prompt_tok / prefill_tok_per_s
    spread_steps = _SPREAD_MARGIN * spread_s / step_s
    wanted_tok = math.ceil((window_steps + spread_steps + _SPARE_STEPS) * max(1.0, tok_per_step))
    if context_tok is None:
        return wanted_tok
    room_tok = context_tok - prompt_tok
    if room_tok < 1:
        raise PromptTooLong(
            f"a prompt of {prompt_tok} tokens leaves no room for an answer in a context of "
            f"{context_tok}; lower --prompt-tokens or raise the context"
        )
    return min(wanted_tok, room_tok)

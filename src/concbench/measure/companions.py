"""Rounds of one request that stand beside a cell: half the prompt, and after a silence.

They are stored like any round, in a cell of their own whose label is `half` or `idle`; the
judgement of the study puts what they say beside the cell that they belong to.
"""

from __future__ import annotations

from concbench.analyse.prefill import MIN_UNCACHED_TOK
from concbench.clock import now_ns, sleep_s
from concbench.domain import Cell, Round
from concbench.measure.campaign import WARMUP_OUTPUT_TOK, Recorder, companion

HALF_OUTPUT_TOK = 16
"""Only the time to the first token counts there."""

WARM_ROUNDS = 3
POLL_S = 0.05


def half_cell(cell: Cell) -> Cell:
    """Return the companion whose prompts are half as long."""
    return companion(cell, "half", cell.context_tok // 2)


def half_round(recorder: Recorder, cell: Cell) -> Round | None:
    """Run one request with half the prompt beside the N = 1 round just measured.

    The slope of TTFT between the two lengths is the prefill rate. None where it would say nothing:
    more than one request at once, prompts under 256 tokens or not of our making, no streaming.
    """
    asking, campaign = recorder.asking, recorder.campaign
    if (
        cell.concurrency != 1
        or asking.prompt_tok < MIN_UNCACHED_TOK
        or asking.same_prompt
        or asking.file_prompts
        or not recorder.session.ask.stream
    ):
        return None
    half = half_cell(cell)
    campaign.rounds.setdefault(half.cell, [])
    return recorder.burst(
        half,
        "measured",
        min(HALF_OUTPUT_TOK, campaign.output_tok or HALF_OUTPUT_TOK),
        prompt_tok=half.context_tok,
        index=len(campaign.rounds[cell.cell]) - 1,
    )


def after_idle(recorder: Recorder, cell: Cell, idle_s: float) -> None:
    """Leave the server alone for so long, then send one request, and three more while it is warm.

    A signal during the wait raises KeyboardInterrupt.
    """
    idle = companion(cell, "idle")
    recorder.campaign.rounds.setdefault(idle.cell, [])
    output_tok = min(WARMUP_OUTPUT_TOK, recorder.campaign.output_tok or WARMUP_OUTPUT_TOK)
    until_ns = now_ns() + int(idle_s * 1e9)
    while (left_s := (until_ns - now_ns()) / 1e9) > 0:
        sleep_s(min(POLL_S, left_s))
    for _ in range(1 + WARM_ROUNDS):
        recorder.burst(idle, "measured", output_tok)
        if recorder.campaign.interrupted:
            return

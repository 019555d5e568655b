"""The measured context ceiling of a lane: the longest prompt that was answered in full."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from concbench.domain import Round
from concbench.measure.ceiling import Ceiling, find_ceiling
from concbench.measure.sweep_cells import Bench
from concbench.measure.sweep_rig import Rig
from concbench.measure.sweep_state import CEILING_NOTE
from concbench.plan.matrix import MatrixCell, file_name

BEYOND = 8
"""Where an engine tells no limit, prompts up to so many times the longest context are tried."""

WHOLE_PROMPT = 0.98
"""A server that counts fewer prompt tokens than this share of what was sent has cut it."""


def measure_ceiling(
    bench: Bench, rig: Rig, link: str | None, cells: Sequence[MatrixCell]
) -> Ceiling | None:
    """Bisect the longest prompt that leaves room for the whole answer; put it on record.

    None where it is on record already, or nothing was served at all.
    """
    if (rig.name, link) in bench.state.ceilings or not cells:
        return None
    shortest = min(cells, key=lambda each: each.cell.context_tok)
    longest = max(each.cell.context_tok for each in cells)
    facts, output_tok = bench.facts(rig.variant), bench.options.output_tok
    declared = None
    if facts is not None and facts.max_context_tok is not None:
        declared = max(1, facts.max_context_tok - output_tok)
    tries: list[dict[str, object]] = []

    def accepts(tokens: int) -> bool:
        done = bench.probe(rig, _probe_cell(shortest, tokens, link), link)
        served = done is not None and answered_in_full(done, tokens, output_tok)
        tries.append({"prompt_tok": tokens, "accepted": served})
        bench.watching.say(f"{rig.name}: {tokens} tokens {'accepted' if served else 'rejected'}")
        return served

    found = find_ceiling(
        accepts,
        low=shortest.cell.context_tok,
        declared=declared,
        most=2 * declared if declared else BEYOND * longest,
    )
    told = {"variant": rig.name, "link": link, "output_tok": output_tok, "declared_tok": declared}
    bench.writer.note(CEILING_NOTE, {**told, **msgspec.to_builtins(found), "tried": tries})
    bench.state.ceilings.add((rig.name, link))
    return found


def _probe_cell(like: MatrixCell, tokens: int, link: str | None) -> MatrixCell:
    parts = (file_name(like.variant.name), link, "ceiling")
    cell = msgspec.structs.replace(
        like.cell,
        cell=".".join(part for part in parts if part),
        context_label="ceiling",
        context_tok=tokens,
        concurrency=1,
    )
    return msgspec.structs.replace(like, cell=cell)


def answered_in_full(done: Round, prompt_tok: int, output_tok: int) -> bool:
    """Whether prompt and answer both fitted: neither was refused nor cut."""
    if done.outcome != "measured" or done.requests[0].outcome != "ok":
        return False
    record = done.requests[0]
    whole = record.prompt_tok is None or record.prompt_tok >= WHOLE_PROMPT * prompt_tok
    return whole and record.output_tok >= output_tok

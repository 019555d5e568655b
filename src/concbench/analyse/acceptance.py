"""Speculation: how many drafted tokens the server accepted, and whether it only pretended to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from concbench.analyse.counters import GENERATED, growth, growth_by_label
from concbench.analyse.windows import NoWindow, Window
from concbench.domain import Round, TargetFacts
from concbench.engines.registry import ENGINES
from concbench.engines.spec import Trap

DRAFTS, DRAFTED, ACCEPTED = "spec_drafts", "spec_draft_tok", "spec_accepted_tok"
PER_POSITION: Final = "spec_accepted_per_pos"
SIMULATED: Final = "simulated_acceptance"
NOTE: Final = "acceptance depends on what is generated: compare at equal content and acceptance"

Span = tuple[int, int] | None


def acceptance(
    rounds: Sequence[Round], windows: Sequence[Window | NoWindow]
) -> dict[str, Any] | None:
    """Return `mean_len` (1 + accepted ÷ drafts), `rate`, `per_position`, `content` and a note.

    `tokens_per_step` is generated ÷ (generated − accepted): steps that drafted nothing count too.
    From the counters over the windows; over whole rounds where they do not move inside them. An
    engine that only has gauges, or a log, gives their means. None where nothing was drafted.
    """
    spans: list[Span] = [
        (window.start_ns, window.end_ns) if isinstance(window, Window) else None
        for window in windows
    ]
    if not _sum(rounds, spans, DRAFTS):
        spans = [None] * len(rounds)
    drafts, accepted = _sum(rounds, spans, DRAFTS), _sum(rounds, spans, ACCEPTED)
    if drafts and accepted is not None:
        drafted = _sum(rounds, spans, DRAFTED)
        found = {
            "mean_len": 1 + accepted / drafts,
            "rate": accepted / drafted if drafted else None,
            "per_position": _per_position(rounds, spans, drafts),
            "tokens_per_step": _per_step(_sum(rounds, spans, GENERATED), accepted),
        }
    else:
        mean_len = _mean(rounds, "spec_accept_len", "log_accept_len")
        if mean_len is None:
            return None
        rate = _mean(rounds, "spec_accept_rate", "log_accept_rate")
        found = {"mean_len": mean_len, "rate": rate, "per_position": None}
        found["tokens_per_step"] = mean_len
    content = {each.workload.content for each in rounds}
    return {**found, "content": content.pop() if len(content) == 1 else "mixed", "note": NOTE}


def simulated(facts: TargetFacts | None, traps: Sequence[Trap]) -> str | None:
    """Return what says that tokens are accepted unseen: a trap's message, None where nothing does.

    `traps` are those known of the lane; the command line is looked at besides.
    """
    known = list(traps)
    if facts is not None and facts.launch and facts.engine in ENGINES:
        engine = ENGINES[facts.engine]
        known += engine.traps(engine.describe({}, facts.launch, ()), facts.launch, {}, None)
    return next((trap.message for trap in known if trap.code == SIMULATED), None)


def _sum(rounds: Sequence[Round], spans: Sequence[Span], name: str) -> float | None:
    grown = [growth(r.samples, name, span) for r, span in zip(rounds, spans, strict=True)]
    known = [value for value in grown if value is not None]
    return sum(known) if known and len(known) == len(grown) else None


def _per_step(generated: float | None, accepted: float) -> float | None:
    """Return tokens a step: each step yields one of the model's own, the rest was accepted."""
    if generated is None or generated <= accepted:
        return None
    return generated / (generated - accepted)


def _per_position(
    rounds: Sequence[Round], spans: Sequence[Span], drafts: float
) -> list[float] | None:
    """Accepted tokens at each place of a draft ÷ drafts."""
    accepted: dict[int, float] = {}
    for each, span in zip(rounds, spans, strict=True):
        for labels, grown in growth_by_label(each.samples, PER_POSITION, span).items():
            place = labels.removeprefix("position=")
            if place.isdigit():
                accepted[int(place)] = accepted.get(int(place), 0.0) + grown
    return [accepted[place] / drafts for place in sorted(accepted)] or None


def _mean(rounds: Sequence[Round], *names: str) -> float | None:
    for name in names:
        values = [
            sample.value
            for each in rounds
            for sample in each.samples
            if sample.name == name
            and sample.value
            and each.start_ns <= sample.received_ns <= each.end_ns
        ]
        if values:
            return sum(values) / len(values)
    return None

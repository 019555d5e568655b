"""The predicted throughput of a lane as lines and as Markdown: always with its error beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from concbench.analyse.steptime import PredictedLevel, StepPrediction
from concbench.report.comparisontables import ComparisonTable, table_lines
from concbench.report.inert import inert
from concbench.report.markdown import escaped
from concbench.report.numbers import MISSING

HEADER = ("context", "N", "decode tok/s", "a user's", "sustained", "measured", "error", "what")


def prediction_lines(found: StepPrediction) -> Iterator[str]:
    """Yield one lane's prediction as lines: the model, its error, then a line a level."""
    yield from _said(found)
    if found.levels:
        yield from table_lines(_table(found))


def prediction_markdown(found: StepPrediction) -> str:
    """Return one lane's prediction as Markdown."""
    blocks = [escaped(line) for line in _said(found)]
    if found.levels:
        table = _table(found)
        rows = [table.header, ("---",) * len(table.header), *table.rows]
        blocks.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(blocks)


def _said(found: StepPrediction) -> Iterator[str]:
    """Yield the model in a sentence and what it is worth."""
    # A label that is no length is a kind of content.
    kinds = [inert(e, 40) for e in found.labels if e != "short" and not e.isdigit()]
    kind = kinds[0] if len(found.labels) == len(kinds) == 1 else ""
    name = " · ".join(filter(None, (inert(found.lane, 40), inert(found.link or "", 40), kind)))
    model = found.model
    if model is None:
        yield f"{name}: no prediction: {found.why or 'the levels do not give a step its time'}"
        return
    step = f"{model.a_ms:.3g} ms + {model.b_ms:.3g} ms a sequence"
    if model.context_tok is None:
        step += f" + {model.c_ms_per_1000_tok:.3g} ms each 1,000 tokens of KV"
    else:
        step += f" (at {model.context_tok:,} tokens of context alone)"
    yield f"{name}: predicted from a decode step of {step}{_prefill(found)}"
    yield _worth(found)


def _prefill(found: StepPrediction) -> str:
    if found.prefill_tok_per_s is None:
        return "; no prefill rate is known, so no sustained rate is predicted"
    return f", prefill {found.prefill_tok_per_s:,.0f} tok/s ({found.prefill_method})"


def _worth(found: StepPrediction) -> str:
    """Return how wrong the prediction was where it could be tried."""
    if found.error_mean_pct is None or found.error_max_pct is None:
        return "its error is unknown: no level could be left out"
    parts = [
        f"error {found.error_mean_pct:.1f} % on average, {found.error_max_pct:.1f} % at most, each "
        "level left out in turn"
    ]
    for one in found.held_out:
        what = f"N = {one.value}" if one.axis == "concurrency" else f"{one.value:,} tokens"
        parts.append(f"{one.error_pct:.1f} % at {what}, the largest, held out")
    return "; ".join(parts)


def _table(found: StepPrediction) -> ComparisonTable:
    return ComparisonTable("", HEADER, tuple(tuple(_texts(level)) for level in found.levels))


def _texts(level: PredictedLevel) -> Sequence[str]:
    error = MISSING if level.error_pct is None else f"{level.error_pct:+.1f} %".replace("-", "−")
    return (
        f"{level.context_tok:,}",
        f"{level.concurrency:,}",
        f"{level.decode_tok_per_s:,.4g}",
        f"{level.user_tok_per_s:,.3g}",
        _rate(level.sustained_tok_per_s),
        _rate(level.measured_decode_tok_per_s),
        error,
        "forecast" if level.forecast else "fitted; error without it",
    )


def _rate(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.4g}"

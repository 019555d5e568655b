"""Throughput predicted from a fitted decode step, with the error of that prediction. Pure.

One decode step of B sequences that hold K tokens of KV cache together takes

    t(B, K) = a + b·B + c·K        a, b, c ≥ 0, in seconds

fitted by `timefit.relative_nnls`. Speculation yields L tokens a step. Beside it
stands the prefill rate P, from the level of one request. Then, with G output tokens and a prompt
of C tokens,

    D(N) = L·N ÷ t(N, N·(C + G/2))       decode@N, tok/s of all sequences together
    S(N) = G ÷ (C/P + G/D(N))            sustained: prefill and decode take turns

With one context K is proportional to B and c cannot be told from b: c is 0 then, and the
prediction is of that context alone. Every level is predicted by a fit that never saw it (leave one
out); since that flatters beyond the measured levels, the largest N and the longest context are held
out as well, with all that is as large. Nothing is predicted beyond twice the largest level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from concbench.analyse.single import single_of
from concbench.analyse.timefit import relative_nnls, resident_tok
from concbench.domain import Doubt, TargetFacts
from concbench.result import CellResult

LEAST_LEVELS = 3
BEYOND = 2
"""A prediction goes so many times beyond the largest level that was measured."""

PLACE = tuple[str, str | None]


class StepRow(Struct, frozen=True, kw_only=True):
    """One measured level as the fit sees it: `step_s` seconds a step of `sequences` (B) that hold
    `resident_tok` (K). `method` is where the step's time comes from: `decode@N`, or `tpot`.
    """

    cell: str
    concurrency: int
    context_tok: int
    output_tok: float
    tokens_per_step: float
    sequences: float
    resident_tok: float
    step_s: float
    method: str


class StepModel(Struct, frozen=True, kw_only=True):
    """t = a + b·B + c·K, in ms: `a_ms` a step, `b_ms` a sequence, `c_ms_per_1000_tok` 1,000 tokens.

    `context_tok` is the only context that it holds for, None where several were fitted.
    """

    a_ms: float
    b_ms: float
    c_ms_per_1000_tok: float
    context_tok: int | None

    def step_s(self, sequences: float, resident_tok: float) -> float:
        """Return the time of one step, in seconds."""
        step_ms = self.a_ms + self.b_ms * sequences + self.c_ms_per_1000_tok * resident_tok / 1e3
        return step_ms / 1e3


class PredictedLevel(Struct, frozen=True, kw_only=True):
    """One level, predicted. `measured` is None where nobody was there: then it is a forecast.

    Rates are output tok/s: `decode` while all decode, `sustained` with their prefills between, None
    without a prefill rate. `error_pct` is 100 · (predicted ÷ measured − 1) of decode by a fit that
    did not see this level.
    """

    context_tok: int
    concurrency: int
    forecast: bool
    user_tok_per_s: float
    decode_tok_per_s: float
    sustained_tok_per_s: float | None
    measured_decode_tok_per_s: float | None
    error_pct: float | None


class HeldOut(Struct, frozen=True, kw_only=True):
    """The largest error where all levels of the largest `axis` value were left out of the fit."""

    axis: str
    value: int
    error_pct: float


class StepPrediction(Struct, frozen=True, kw_only=True):
    """The model of one lane and link with its error; `why` says why there is no `model`.

    `labels` are those of the contexts (or the content) that it is of.

    Errors are of decode rates, in percent: `error_mean_pct` and `error_max_pct` by leaving out one
    level at a time, `held_out` beyond what was fitted.
    """

    lane: str
    link: str | None
    labels: list[str]
    model: StepModel | None
    why: str | None
    prefill_tok_per_s: float | None
    prefill_method: str | None
    error_mean_pct: float | None
    error_max_pct: float | None
    held_out: list[HeldOut]
    levels: list[PredictedLevel]
    rows: list[StepRow]


def predictions(
    cells: Iterable[CellResult], doubts: Sequence[Doubt], targets: Mapping[str, TargetFacts]
) -> list[StepPrediction]:
    """Return the prediction of each lane and link of a study; open loops are left out."""
    groups: dict[PLACE, list[CellResult]] = {}
    for cell in cells:
        if cell.rate_rps is None and cell.concurrency > 0:
            groups.setdefault((cell.lane, cell.link), []).append(cell)
    fatal = {doubt.cell for doubt in doubts if doubt.severity == "fatal"}
    return [
        _prediction(place, part, fatal, targets.get(place[0]))
        for place, group in groups.items()
        for part in _apart(group)
    ]


def _apart(cells: Sequence[CellResult]) -> list[list[CellResult]]:
    """Return the cells in one part, or by label where a level was measured with several contents:

    what is accepted, and so what a step yields, depends on the content.
    """
    places = [(cell.context_tok, cell.concurrency) for cell in cells]
    if len(set(places)) == len(places):
        return [list(cells)]
    labels = dict.fromkeys(cell.context_label for cell in cells)
    return [[cell for cell in cells if cell.context_label == label] for label in labels]


def _prediction(
    place: PLACE, cells: Sequence[CellResult], fatal: set[str | None], facts: TargetFacts | None
) -> StepPrediction:
    sound = [cell for cell in cells if cell.cell not in fatal and None not in fatal]
    found = [row for cell in sound if (row := step_row(cell, facts)) is not None]
    rows = sorted(found, key=lambda row: (row.context_tok, row.concurrency))
    why = _missing(rows)
    model = None if why else fit(rows)
    prefill, method = _prefill(sound)
    levels: list[PredictedLevel] = []
    if model is not None:
        levels = _levels(rows, model, prefill, facts)
    errors = [abs(level.error_pct) for level in levels if level.error_pct is not None]
    return StepPrediction(
        lane=place[0],
        link=place[1],
        labels=list(dict.fromkeys(cell.context_label for cell in cells)),
        model=model,
        why=why,
        prefill_tok_per_s=prefill,
        prefill_method=method,
        error_mean_pct=sum(errors) / len(errors) if errors else None,
        error_max_pct=max(errors, default=None),
        held_out=[] if model is None else _held_out(rows),
        levels=levels,
        rows=rows,
    )


def step_row(cell: CellResult, facts: TargetFacts | None) -> StepRow | None:
    """Return a level as the fit sees it; None where its step is unknown, or some only waited.

    decode@N is the time while exactly N generate; TPOT, where there is none, has the prefills of
    others in it.
    """
    ok = cell.requests.ok
    if cell.outcome != "measured" or not ok or _waits(cell, facts):
        return None
    n, output_tok = cell.concurrency, cell.tokens.output / ok
    per_step = float((cell.server.acceptance or {}).get("tokens_per_step") or 1.0)
    together = _decode_tok_per_s(cell)
    tpot_ms = cell.client.tpot_ms.mean
    if together:
        step_s, method = n * per_step / together, "decode@N"
    elif tpot_ms:
        step_s, method = per_step * tpot_ms / 1e3, "tpot"
    else:
        return None
    return StepRow(
        cell=cell.cell,
        concurrency=n,
        context_tok=cell.context_tok,
        output_tok=output_tok,
        tokens_per_step=per_step,
        sequences=float(n),
        resident_tok=resident_tok(n, cell.context_tok, output_tok),
        step_s=step_s,
        method=method,
    )


def _waits(cell: CellResult, facts: TargetFacts | None) -> bool:
    """Return whether the engine cannot run so many at once: then a step is not one of N."""
    ok = cell.requests.ok
    return bool(ok) and _too_many(
        cell.concurrency, cell.context_tok + cell.tokens.output / ok, facts
    )


def _too_many(n: int, request_tok: float, facts: TargetFacts | None) -> bool:
    """Return whether n requests of that length are more than slots or KV pool hold at once."""
    if facts is None:
        return False
    over_slots = facts.slots is not None and n > facts.slots
    pool_tok = facts.kv_capacity_tok
    return over_slots or (pool_tok is not None and n * request_tok > pool_tok)


def _decode_tok_per_s(cell: CellResult) -> float | None:
    if cell.decode_at_n is not None:
        return cell.decode_at_n.tok_per_s.point
    steady = cell.client.steady_output_tok_per_s
    return steady.point if steady is not None and cell.steady.estimand == "decode" else None


def _missing(rows: Sequence[StepRow]) -> str | None:
    """Return what a fit that can be tried on a level it did not see would need more of."""
    levels = {row.concurrency for row in rows}
    if len(levels) < LEAST_LEVELS:
        return (
            f"a step's time needs {LEAST_LEVELS} levels that ran without waiting; there "
            f"{'is' if len(levels) == 1 else 'are'} {len(levels)}"
        )
    if len({row.method for row in rows}) > 1:
        return "some levels have decode@N and some TPOT alone, which has others' prefills in it"
    return None


def fit(rows: Sequence[StepRow]) -> StepModel | None:
    """Return the model of these rows; None with fewer rows than factors."""
    contexts = {row.context_tok for row in rows}
    several = len(contexts) > 1
    columns: NDArray[np.float64] = np.array(
        [[1.0, row.sequences, *([row.resident_tok] if several else [])] for row in rows]
    )
    times = np.array([row.step_s for row in rows])
    if len(rows) < columns.shape[1]:
        return None
    a, b, *c = (1e3 * float(factor) for factor in relative_nnls(columns, times))
    return StepModel(
        a_ms=a,
        b_ms=b,
        c_ms_per_1000_tok=1e3 * c[0] if c else 0.0,
        context_tok=None if several else contexts.pop(),
    )


def _decode(model: StepModel, row: StepRow, n: int) -> float:
    """Return decode@n of requests such as the row's, tok/s of all together; 0 where t is 0."""
    step_s = model.step_s(n, resident_tok(n, row.context_tok, row.output_tok))
    return row.tokens_per_step * n / step_s if step_s > 0 else 0.0


def _error_pct(model: StepModel | None, row: StepRow) -> float | None:
    if model is None or (model.context_tok not in (None, row.context_tok)):
        return None
    predicted_s = model.step_s(row.sequences, row.resident_tok)
    return 100 * (row.step_s / predicted_s - 1) if predicted_s > 0 else None


def _levels(
    rows: Sequence[StepRow], model: StepModel, prefill: float | None, facts: TargetFacts | None
) -> list[PredictedLevel]:
    """Return the measured levels, and forecasts between and above them, by context.

    Nothing is forecast that the engine's slots or its KV pool cannot run at once.
    """
    found: list[PredictedLevel] = []
    for context in dict.fromkeys(row.context_tok for row in rows):
        mine = {row.concurrency: row for row in rows if row.context_tok == context}
        for n in sorted({*mine, *_more(sorted(mine))}):
            row = mine.get(n)
            like = row or mine[max(level for level in mine if level < n)]
            if row is None and _too_many(n, like.context_tok + like.output_tok, facts):
                continue
            decode = _decode(model, like, n)
            if decode <= 0:
                continue
            without = [one for one in rows if one is not row]
            found.append(
                PredictedLevel(
                    context_tok=context,
                    concurrency=n,
                    forecast=row is None,
                    user_tok_per_s=decode / n,
                    decode_tok_per_s=decode,
                    sustained_tok_per_s=_sustained(like, decode, prefill),
                    measured_decode_tok_per_s=None
                    if row is None
                    else row.tokens_per_step * n / row.step_s,
                    error_pct=None if row is None else _error_pct(fit(without), row),
                )
            )
    return found


def _more(levels: Sequence[int]) -> list[int]:
    """Return the levels to forecast: doublings between those measured, and up to twice the last."""
    found, n = [], levels[0]
    while n <= BEYOND * levels[-1]:
        found.append(n)
        n *= 2
    return [*(n for n in found if n not in levels), BEYOND * levels[-1]]


def _sustained(row: StepRow, decode: float, prefill: float | None) -> float | None:
    """Return S = G ÷ (C/P + G/D)."""
    if prefill is None:
        return None
    return row.output_tok / (row.context_tok / prefill + row.output_tok / decode)


def _held_out(rows: Sequence[StepRow]) -> list[HeldOut]:
    """Return the errors at the largest N and at the longest context, neither of them fitted."""
    found: list[HeldOut] = []
    axes = {
        "concurrency": [row.concurrency for row in rows],
        "context": [row.context_tok for row in rows],
    }
    for axis, places in axes.items():
        values = sorted(set(places))
        if len(values) < LEAST_LEVELS or values[-1] > BEYOND * values[-2]:
            continue
        placed = list(zip(places, rows, strict=True))
        model = fit([row for place, row in placed if place != values[-1]])
        errors = [_error_pct(model, row) for place, row in placed if place == values[-1]]
        known = [abs(error) for error in errors if error is not None]
        if known:
            found.append(HeldOut(axis=axis, value=values[-1], error_pct=max(known)))
    return found


def _prefill(cells: Sequence[CellResult]) -> tuple[float | None, str | None]:
    """Return the prefill rate of one request, tok/s, at the longest context, and its method."""
    for cell in sorted(cells, key=lambda one: -one.context_tok):
        alone = single_of([cell])
        if alone is not None and alone.prefill is not None:
            return alone.prefill.point, alone.prefill_method
    return None, None

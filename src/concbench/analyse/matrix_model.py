"""The tables of a matrix as data: what a result's `payload.matrix` holds.

Every rate is output tokens a second unless its name says prefill. `aggregate` is the batch figure
(all output tokens ÷ wall), the one figure that every cell has, also beyond the KV pool.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from concbench.domain import Estimate

Reading = Literal["beyond", "within", "unknown", "drifted", "invalid"]


class Change(Struct, frozen=True, kw_only=True):
    """One figure against another: 100 · (b − a) ÷ a, with its interval where there is one.

    `exceeds_noise` is whether that interval leaves out 0, None where there is none: a side has
    fewer than 3 rounds, or is a median of too few requests. `basis` says what it rests on.
    `spreads_overlap` is about the two intervals (or ranges) as they are printed, which is no test.
    """

    relative_pct: float
    low_pct: float | None = None
    high_pct: float | None = None
    exceeds_noise: bool | None
    spreads_overlap: bool | None
    basis: str


class SingleRow(Struct, frozen=True, kw_only=True):
    """One stream alone at one context; the changes are against `against`, the first lane there.

    `prefill_method` is `slope` (two prompt lengths) or `prompt ÷ TTFT`, which charges the first
    step and the network to prefill. `fatal` names the fatal doubts of the cell: where it or that of
    the first lane has any, there are no changes.
    """

    lane: str
    link: str | None
    context_label: str
    context_tok: int
    prefill_tok_per_s: Estimate | None
    prefill_method: str | None
    decode_tok_per_s: Estimate | None
    ttft_ms: Estimate | None
    against: str | None = None
    prefill_change: Change | None = None
    decode_change: Change | None = None
    ttft_change: Change | None = None
    fatal: list[str] = []


class ConcurrencyRow(Struct, frozen=True, kw_only=True):
    """One cell. `scaling` is against N = 1; both ratios are against the cell of `relative_to`.

    That is the level below, and for a cell over the KV pool the largest that is not. There equal
    ratios mean that what does not fit only waits. `throughput_constant`: within 3 % of that cell's;
    None where it is not, and the noise is as large. `elapsed_s` is the wall of one batch.
    `over_slots`: more than the engine runs at once. `fatal`
    names the cell's fatal doubts: such a cell is in no peak and no other cell is set against it.
    """

    cell: str
    lane: str
    link: str | None
    context_label: str
    context_tok: int
    concurrency: int
    outcome: str
    aggregate_tok_per_s: Estimate | None
    per_stream_tok_per_s: float | None
    scaling: float | None
    overlap: float | None
    elapsed_s: float | None
    relative_to: int | None
    elapsed_ratio: float | None
    concurrency_ratio: float | None
    throughput_constant: bool | None
    over_kv: bool = False
    over_slots: bool = False
    kv_demand_tok: int | None = None
    kv_pool_tok: int | None = None
    failures: int
    preemptions: int | None
    waiting_max: float | None
    queue_mean_ms: float | None
    fatal: list[str] = []


class GainRow(Struct, frozen=True, kw_only=True):
    """From one stream to saturation at one context.

    `saturation_concurrency` is the smallest N that reaches 97 % of the peak; `saturated` tells
    whether a larger one was measured, so that the peak is the engine's and not the plan's. Cells
    with a fatal doubt are left out.
    """

    lane: str
    link: str | None
    context_label: str
    context_tok: int
    single_tok_per_s: float
    peak_tok_per_s: float
    peak_concurrency: int
    saturation_concurrency: int
    gain: float
    saturated: bool


class PredictedRow(Struct, frozen=True, kw_only=True):
    """The measured peak against prefill × G ÷ (context + G), G output tokens a request.

    The formula leaves decode out, so it holds at long context only (`long_context`: the prompt is
    at least 16 times the answer). `measured_to_predicted` above 1 tells how far prefill and
    decode overlap.
    """

    lane: str
    link: str | None
    context_label: str
    context_tok: int
    output_tok: float
    prefill_tok_per_s: float
    prefill_method: str
    predicted_tok_per_s: float
    measured_tok_per_s: float
    measured_concurrency: int
    measured_to_predicted: float
    long_context: bool


class MaxRow(Struct, frozen=True, kw_only=True):
    """How many at once at one context: by the KV pool, as measured, and beyond.

    `kv_limit` is ⌊pool ÷ (context + G)⌋. `max_clean` is the largest N inside pool and slots of
    which no request failed. `over_*` is the largest N beyond the pool; `first_bad` and
    `first_bad_outcome` the smallest N that did not end well.
    """

    lane: str
    link: str | None
    context_label: str
    context_tok: int
    kv_pool_tok: int | None
    kv_limit: int | None
    max_clean: int | None
    over_concurrency: int | None
    over_ratio: float | None
    over_failures: int | None
    over_preemptions: int | None
    over_outcome: str | None
    first_bad: int | None
    first_bad_outcome: str | None


class AgainstRow(Struct, frozen=True, kw_only=True):
    """One cell of `a` against the same cell of `b`, which differ in one axis alone.

    `axis` is `link`, `lane`, `flag` or `control` (the first value of a flag measured again at the
    end: a change there is drift). `shared` is what both have: the lane for links, else the link.
    `fatal` has the fatal doubts of either cell with its side. `drift_pct` is by how much the lanes'
    controls moved over the sweep, the larger of both; None where there is none. `reading` is what
    may be said: `invalid` with a fatal doubt, `drifted` where the control moved by more than half
    of the change, else `beyond` the noise; `within` it, which is not told apart and not the same as
    equal; or `unknown`, without an interval. Each stands for itself, at 95 %: of figures that do
    not differ about 1 in 20 is `beyond` by chance.
    """

    axis: str
    a: str
    b: str
    shared: str | None
    context_label: str
    context_tok: int
    concurrency: int
    metric: str
    a_value: Estimate
    b_value: Estimate
    change: Change
    reading: Reading = "unknown"
    fatal: list[str] = []
    drift_pct: float | None = None


class Unlike(Struct, frozen=True, kw_only=True):
    """What makes two lanes (or flag values) unlike, by the names that `--accept` takes."""

    axis: str
    a: str
    b: str
    names: list[str]


class Matrix(Struct, frozen=True, kw_only=True):
    """All tables, rows in order of lane, link, context and concurrency."""

    single_stream: list[SingleRow] = []
    concurrency: list[ConcurrencyRow] = []
    gain: list[GainRow] = []
    predicted: list[PredictedRow] = []
    max_concurrency: list[MaxRow] = []
    against: list[AgainstRow] = []
    unlike: list[Unlike] = []

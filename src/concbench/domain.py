"""The nouns: frozen records that every stage passes on.

Units are in the names (`_ns`, `_s`, `_ms`, `_tok`, `_tok_per_s`, `_bytes`). Records hold stamps;
intervals are derived in `concbench.analyse`. All stamps are monotonic nanoseconds of the
client's clock.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import Struct

Severity = Literal["fatal", "warning", "note"]
TokenSource = Literal["usage", "continuous_usage", "timings", "tokenizer", "chunks"]
StampKind = Literal["kernel", "user"]
Arrival = Literal["burst", "closed", "constant", "poisson", "trace"]
RequestOutcome = Literal["ok", "failed", "incomplete"]
RoundPhase = Literal["warmup", "measured", "discarded"]
CellOutcome = Literal[
    "measured", "context_rejected", "oom", "crashed", "hung", "skipped", "interrupted"
]

KIND_CONTENT, KIND_REASONING, KIND_TOOL = 0, 1, 2
"""What a token event carried; the codes of the events table's `kind` column."""


class Doubt(Struct, frozen=True, kw_only=True):
    """A reason to distrust a number: values that travel with the result and are shown last."""

    code: str
    severity: Severity
    message: str
    cell: str | None = None
    evidence: dict[str, Any] = {}


class Estimate(Struct, frozen=True, kw_only=True):
    """A number with its interval, in the unit that its key names.

    With fewer than 3 rounds `low` and `high` are None and `range` is `(min, max)` of the rounds.
    """

    point: float
    low: float | None
    high: float | None
    confidence: float = 0.95
    n: int
    method: str
    range: tuple[float, float] | None = None

    @property
    def relative_half_width(self) -> float | None:
        """Half the interval's width as a share of the point; None without an interval."""
        if self.low is None or self.high is None or self.point == 0:
            return None
        return (self.high - self.low) / 2 / abs(self.point)

    @property
    def spread(self) -> tuple[float, float] | None:
        """The interval, or the range where there is none; None for a single observation."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        return self.range if self.n > 1 else None


class Summary(Struct, frozen=True, kw_only=True):
    """A distribution: nearest-rank points and order-statistic intervals, None where n is small."""

    n: int
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    ci: dict[str, tuple[float, float] | None] = {}


class Workload(Struct, frozen=True, kw_only=True):
    """What is asked of the server. `prompts_sha256` identifies the prompts that were sent."""

    prompt_tokens: int
    output_tokens: int
    seed: int
    arrival: Arrival
    distinct_prompts: bool = True
    content: str = "prose"
    endpoint: Literal["chat", "completions"] = "chat"
    stream: bool = True
    temperature: float = 0.0
    ignore_eos: bool = True
    extra_body: dict[str, Any] = {}
    prompts_sha256: str | None = None


class Lane(Struct, frozen=True, kw_only=True):
    """An engine, a model and a recipe; launched by us (`argv`) or attached to (`base_url`)."""

    name: str
    engine: str
    base_url: str
    model: str | None = None
    argv: tuple[str, ...] | None = None
    env: dict[str, str] = {}
    flags: dict[str, Any] = {}
    notes: str | None = None


class TargetFacts(Struct, frozen=True, kw_only=True):
    """What is known of the server behind a lane. Unknown is None, never a guess.

    `facts_from` says for each known key whether an endpoint, a log line or the argv told it, also
    for those that only some engines have (`LaneResult.extra`).
    """

    lane: str
    engine: str
    engine_version: str | None = None
    base_url: str
    model: str | None = None
    launch: list[str] | None = None
    container: dict[str, Any] | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    max_context_tok: int | None = None
    slots: int | None = None
    kv_capacity_tok: int | None = None
    memory_bytes: int | None = None
    speculation: str | None = None
    prefix_caching: bool | None = None
    eager: bool | None = None
    cold_start_s: float | None = None
    first_request_s: float | None = None
    teardown: dict[str, Any] | None = None
    facts_from: dict[str, str] = {}


class Cell(Struct, frozen=True, kw_only=True):
    """One point of the matrix. `cell` is its id, unique within a study and fit for a file name."""

    cell: str
    lane: str
    concurrency: int
    context_tok: int
    context_label: str = "short"
    link: str | None = None
    rate_rps: float | None = None


class RequestRecord(Struct, frozen=True, kw_only=True):
    """One request as the client saw it. Stamps that never came are None.

    `first_token_ns`, `first_visible_ns` and `last_token_ns` are event times (see `Events`).
    `first_event_tok` is the tokens of the first event, which TPOT leaves out of its denominator.
    `error` is a kind (`http_503`, `timeout`, `truncated`, …), None for `ok`.
    """

    index: int
    worker: int
    due_ns: int
    sent_ns: int | None
    outcome: RequestOutcome
    connect_ns: int | None = None
    send_done_ns: int | None = None
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    first_visible_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int | None = None
    http_status: int | None = None
    error: str | None = None
    error_detail: str | None = None
    finish_reason: str | None = None
    asked_output_tok: int = 0
    asked_prompt_tok: int | None = None
    prompt_tok: int | None = None
    cached_tok: int | None = None
    output_tok: int = 0
    reasoning_tok: int | None = None
    token_source: TokenSource | None = None
    events: int = 0
    first_event_tok: float = 0.0
    reads: int = 0
    notes: tuple[str, ...] = ()
    prompt_sha256: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """One row a token event, in columns of equal length; 29 bytes a row.

    `request` is the record's index, `read` the number of the read (within its stream) that
    completed the event, `kernel_ns` the kernel's stamp of that read as monotonic time or 0 where
    there was none, `user_ns` ours, `kind` one of KIND_*, `tokens` how many tokens it carried
    (fractional where a total was spread over chunks).
    """

    request: array[int] = field(default_factory=lambda: array("i"))
    read: array[int] = field(default_factory=lambda: array("i"))
    kernel_ns: array[int] = field(default_factory=lambda: array("q"))
    user_ns: array[int] = field(default_factory=lambda: array("q"))
    kind: array[int] = field(default_factory=lambda: array("b"))
    tokens: array[float] = field(default_factory=lambda: array("f"))

    def __len__(self) -> int:
        return len(self.request)


class ServerSample(Struct, frozen=True, kw_only=True):
    """One reading of the server's own accounting; the truth lies in [sent_ns, received_ns]."""

    sent_ns: int
    received_ns: int
    source: str
    name: str
    labels: str = ""
    value: float | None = None


class RoundInstrument(Struct, frozen=True, kw_only=True):
    """How well the client itself did during one round.

    `read_lateness_ns` holds user stamp − kernel stamp for every stamped read, thinned to at most
    100,000; `loop_lag_ns` the event loop's lateness at each tick. `client_cpu` is CPU seconds per
    second of the round. `offset_steps_ns` is the largest step of realtime − monotonic. Where
    several machines carried the load, their clocks agree within `clock_bound_ns`.
    """

    stamp: StampKind
    reads: int = 0
    stamped_reads: int = 0
    read_lateness_ns: list[int] = []
    loop_lag_ns: list[int] = []
    min_rtt_ns: int | None = None
    client_cpu: float | None = None
    offset_step_ns: int = 0
    received_bytes: int = 0
    clock_bound_ns: int | None = None


class Round(Struct, frozen=True, kw_only=True):
    """One repetition of a cell: the unit of replication.

    `start_ns` is when the schedule began (due times count from it), `end_ns` when the last
    response ended or the round was stopped. `workload_seed` differs from round to round so that
    prompts are fresh. `interrupted` marks a round cut short by a signal.
    """

    round_id: str
    cell: Cell
    index: int
    phase: RoundPhase
    workload: Workload
    began_utc: str
    start_ns: int
    end_ns: int
    requests: list[RequestRecord]
    events: Events
    samples: list[ServerSample] = []
    instrument: RoundInstrument
    outcome: CellOutcome = "measured"
    outcome_detail: str | None = None
    interrupted: bool = False


def to_builtins(value: object) -> Any:  # noqa: ANN401 - JSON has no narrower type
    """Return a Struct as dicts, lists and scalars, ready for a JSON encoder."""
    return msgspec.to_builtins(value)

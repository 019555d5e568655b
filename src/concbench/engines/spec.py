"""What every engine module offers: plain data and pure functions, described once.

An engine module is a file `engines/<name>.py` with one public constant, `ENGINE`, an
`EngineSpec`. Nothing here performs I/O: `serve` and `observe` ask the questions and hand the
answers in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

TrapGroup = Literal["unfair", "lane_incomplete", "cap", "fatal"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer to a probe. `status` 0 means that no answer came; header names lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Fact:
    """A value and where it came from: `endpoint:/props`, `log`, `argv`, `file` or `default`."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Metric:
    """Where a quantity is found in a metrics page: the first alias present counts.

    `labels` restricts to samples that carry these label values. `combine` says how samples of
    several engines or ranks are put together: counters add up, usage takes the maximum.
    `moves` says when a counter moves: at every decode step, or only when a request ends.
    """

    aliases: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    combine: Literal["sum", "max", "min", "first"] = "sum"
    moves: Literal["step", "request"] = "step"
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One understood log line. `kind`: `window`, `prefill`, `request`, `spec`, `startup`.

    `values` uses canonical names: `output_tok_per_s`, `prompt_tok_per_s`, `running`, `waiting`,
    `kv_usage` (0..1), `prefix_hit_rate` (0..1), `output_tok`, `output_ms`, `prompt_tok`,
    `prompt_ms`, `accept_len`, `accept_rate`, `cuda_graph`, `kv_capacity_tok`, …
    `key` tells apart what shares a line's kind: the engine's rank, or the task's number.
    """

    kind: str
    values: Mapping[str, Any]
    key: str = ""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """A known cause of a start that fails. `pattern` is a regular expression on one log line."""

    pattern: str
    cause: str
    advice: str
    outcome: Literal["oom", "port_taken", "unknown_flag", "model_missing", "unsupported", "other"]


@dataclass(frozen=True, slots=True)
class Trap:
    """Something about a lane that is known to mislead, with what to do about it."""

    code: str
    group: TrapGroup
    message: str


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine.

    recognise(answers): 0 = no, 1 = could be, 2 = surely, from answers keyed by the paths of
    `probes`. describe(answers, argv, log_lines): facts keyed like `TargetFacts` (and more: see the
    module), unknown ones absent. to_argv(flags): the engine's own spelling. parse_log(line): a
    record or None. request_fields(ignore_eos, stream): JSON fields added to every
    chat or completions body. traps(facts, argv, env, concurrency): what to warn of.
    """

    name: str
    label: str
    default_port: int
    probes: tuple[str, ...]
    recognise: Callable[[Mapping[str, Answer]], int]
    describe: Callable[[Mapping[str, Answer], Sequence[str] | None, Sequence[str]], dict[str, Fact]]
    to_argv: Callable[[Mapping[str, Any]], list[str]]
    parse_log: Callable[[str], LogRecord | None]
    request_fields: Callable[[bool, bool], dict[str, Any]]
    traps: Callable[
        [Mapping[str, Any], Sequence[str] | None, Mapping[str, str], int | None], list[Trap]
    ]
    metrics_path: str | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    tokenize: Literal["llamacpp", "vllm", "none"] = "none"
    ignores_eos: bool = False
    reset_cache: tuple[str, str] | None = None
    start_failures: tuple[StartFailure, ...] = ()
    loading: Callable[[Answer], bool] = lambda answer: answer.status in (0, 502, 503, 504)

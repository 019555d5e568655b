"""What the server is told on its command line, checked and in base units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from concbench.reference.faults import Named
from concbench.reference.schedule import Pace

UsagePolicy = Literal["final", "continuous", "none", "as-asked"]


@dataclass(frozen=True, slots=True)
class Options:
    """All settings. Times called `*_at_ns` count from the first request for tokens.

    `more_models`, `swap_load_ns` and `ttl_ns` are of the persona llama-swap. `max_inflight` −1
    means: as the persona does; 0 switches its limit off.
    """

    pace: Pace = field(default_factory=Pace)
    persona: str = "vllm"
    model: str = "reference"
    more_models: tuple[str, ...] = ()
    swap_load_ns: int = 0
    ttl_ns: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    cached_tok: int = 0
    prefix_cache: bool = False
    context_tok: int = 8192
    eos_at_tok: int = 0
    usage: UsagePolicy = "as-asked"
    api_key: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    keep_alive: bool = True
    load_ns: int = 0
    coalesce_ns: int = 0
    stall_at_ns: int | None = None
    stall_ns: int = 0
    gzip: bool = False
    faults: tuple[Named, ...] = ()
    counter_reset_at_ns: int | None = None
    preempt_at_ns: int | None = None
    two_workers: bool = False
    draft_tok: int = 0
    simulated_acceptance: bool = False
    foreign_tok_per_s: float = 0.0
    max_inflight: int = -1
    keep_token_times: bool = False
    tick_ns: int = -1
    until_stdin_closes: bool = False
    chaos_seed: int | None = None
    die_at_ns: int | None = None
    reborn_after_ns: int = 0
    reborn_model: str | None = None

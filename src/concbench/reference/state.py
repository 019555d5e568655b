"""All that the running server knows, in one place for its pages to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from concbench.reference.counters import Counters
from concbench.reference.schedule import Job, Scheduler
from concbench.reference.swap import Swap
from concbench.reference.tokens import PrefixCache, Tokenizer
from concbench.reference.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from concbench.reference.options import Options
    from concbench.reference.personas import Persona

UNLIMITED_KV_TOK = 1 << 20
"""The pool that the pages speak of when there is no limit."""

UNLIMITED_SLOTS = 1024


@dataclass(slots=True)
class State:
    """Options, engine and books. `workers` has two sets of counters with `--two-workers`."""

    options: Options
    persona: Persona
    began_ns: int
    created_s: int
    scheduler: Scheduler
    workers: list[Counters]
    truth: Truth = field(default_factory=Truth)
    swap: Swap = field(init=False)
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    prefixes: PrefixCache = field(default_factory=lambda: PrefixCache(16))
    first_request_ns: int | None = None
    scrapes: int = 0

    def __post_init__(self) -> None:
        options = self.options
        self.swap = _swap(options)
        self.swap.used_ns = self.began_ns

    def serve(self, options: Options) -> None:
        """Serve what other options say from now on, as after a start."""
        self.options, self.swap = options, _swap(options)

    @property
    def model(self) -> str:
        """The model that is loaded, or was at the start where llama-swap holds none now."""
        return self.swap.held or self.options.model

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs that have begun and not ended."""
        yield from self.scheduler.running
        yield from (job for job in self.scheduler.waiting if job.sent_tok)

    def running_tok(self, worker: int | None = None) -> int:
        """Return the tokens that unfinished requests wrote, of one worker or of all."""
        return sum(
            job.sent_tok for job in self.jobs() if worker is None or job.owner.worker == worker
        )

    def kv_pool_tok(self) -> int:
        """Return the size of the KV pool in tokens."""
        return self.options.pace.kv_tok or UNLIMITED_KV_TOK

    def kv_used_tok(self) -> int:
        """Return the tokens that running requests hold in the pool."""
        return sum(job.prompt_tok + job.sent_tok for job in self.scheduler.running)

    def slots(self) -> int:
        """Return the number of slots that the pages speak of."""
        return self.options.pace.slots or UNLIMITED_SLOTS

    def foreign_tok(self, now_ns: int) -> float:
        """Return the tokens that the counters show and no request of ours caused."""
        if not self.options.foreign_tok_per_s or self.first_request_ns is None:
            return 0.0
        elapsed_s = (now_ns - self.first_request_ns) / 1e9
        return float(int(self.options.foreign_tok_per_s * elapsed_s))


def _swap(options: Options) -> Swap:
    models = (options.model, *options.more_models)
    return Swap(models, options.swap_load_ns, options.ttl_ns, held=options.model)

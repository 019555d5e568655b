"""How a request's life moves the engine's counters."""

from __future__ import annotations

from concbench.reference.schedule import Job
from concbench.reference.state import State


def count_first(state: State, worker: int, job: Job) -> None:
    """Enter a request that got its first token."""
    books = state.workers[worker]
    books.sums["prompt"] += job.prompt_tok
    books.sums["cached"] += job.cached_tok
    books.histograms["ttft_s"].observe((job.first_due_ns - job.arrived_ns) / 1e9)
    books.histograms["queue_s"].observe((job.started_ns - job.arrived_ns) / 1e9)


def count_end(state: State, worker: int, job: Job, reason: str) -> None:
    """Enter a request that ended, by itself or by `abort`."""
    books = state.workers[worker]
    sums = books.sums
    state.truth.generated_tok += job.sent_tok
    sums["generated"] += job.sent_tok
    sums["requests"] += 1
    sums[f"finish_{reason}"] += 1
    if job.first_due_ns < 0:
        return
    sums["prompt_ended"] += job.prompt_tok
    sums["cached_ended"] += job.cached_tok
    sums["longest"] = max(sums["longest"], job.prompt_tok + job.sent_tok)
    sums["prompt_s"] += (job.first_due_ns - job.started_ns) / 1e9
    decode_s = (job.last_due_ns - job.first_due_ns) / 1e9
    sums["predicted_s"] += decode_s
    books.histograms["prompt_tok"].observe(job.prompt_tok)
    books.histograms["output_tok"].observe(job.sent_tok)
    books.histograms["e2e_s"].observe((job.last_due_ns - job.arrived_ns) / 1e9)
    if job.sent_tok > 1:
        books.histograms["tpot_s"].observe(decode_s / (job.sent_tok - 1))


def reset(state: State, now_ns: int) -> None:
    """Set all counters to zero, as a restart of the engine would; running requests go on."""
    for index, books in enumerate(state.workers):
        books.clear(now_ns - state.began_ns)
        # The page adds what running requests wrote so far: that was before the reset.
        books.sums["generated"] = -float(state.running_tok(index))
        books.sums["preemptions_base"] = state.scheduler.preemptions

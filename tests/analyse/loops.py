"""Many closed loops at once in virtual time: a step-level engine, one row a loop.

A prefill blocks its loop's batch and brings one token; a decode step serves every running stream.
The engine is that of `simulate.Engine`, written for arrays so that thousands of loops take
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from concbench.analyse.estimate import mean_estimate
from concbench.analyse.stopping import LoopSoFar, Stop, StopRule, decide, spread_until

Floats = NDArray[np.float64]
NS = 1e9


@dataclass(frozen=True, slots=True)
class Model:
    """N workers against an engine. Seconds; `jitter` is the relative s.d. of each step.

    Later answers are uniform on `output_tok` · (1 ± `spread`), stratified in blocks as the
    planned schedules are. `drift` is the s.d. of a slow factor on all times, which forgets
    itself over `drift_s`.
    """

    n: int = 8
    output_tok: int = 100
    slots: int = 1_000
    prefill_s: float = 0.060
    step_s: float = 0.020
    per_stream_s: float = 0.00025
    jitter: float = 0.10
    spread: float = 0.0
    drift: float = 0.0
    drift_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Loops:
    """Token arrivals: `times_s` and `tokens` are (steps, loops), `low_s` and `high_s` the windows.

    `low_s` is when every worker had finished twice, `high_s` the last issue, `request_s` the mean
    time of a request; `issues_s` holds each loop's times of issue.
    """

    times_s: Floats
    tokens: NDArray[np.int64]
    low_s: Floats
    high_s: Floats
    request_s: Floats
    issues_s: list[list[float]]


def run(model: Model, loops: int, length_s: float, seed: int = 0) -> Loops:
    """Return `loops` independent loops of `length_s` each."""
    rng = np.random.default_rng(seed)
    row, n = np.arange(loops), model.n
    lengths = _lengths(model, loops, length_s, rng)
    issued = np.full(loops, n)
    remaining = np.zeros((loops, n), dtype=np.int64)
    wanted = lengths[:, :n].copy()
    due = np.tile(np.arange(n) * 1e-9, (loops, 1))
    sent, second_end = due.copy(), np.full((loops, n), np.inf)
    finished = np.zeros((loops, n), dtype=np.int64)
    clock, factor = np.zeros(loops), np.ones(loops)
    spent, ended = np.zeros(loops), np.zeros(loops)
    high = np.zeros(loops)
    issues: list[list[float]] = [[] for _ in range(loops)]
    times: list[Floats] = []
    tokens: list[NDArray[np.int64]] = []
    while clock.min() < length_s:
        running = remaining > 0
        batch = running.sum(1)
        admit = np.isfinite(due).any(1) & (batch < model.slots)
        took = np.where(admit, model.prefill_s, model.step_s + model.per_stream_s * batch)
        took = took * factor * (1 + model.jitter * rng.standard_normal(loops)).clip(0.1)
        clock = clock + took
        if model.drift:
            kept = np.exp(-took / model.drift_s)
            noise = model.drift * np.sqrt(1 - kept**2) * rng.standard_normal(loops)
            factor = 1 + (factor - 1) * kept + noise
        first = due.argmin(1)
        chosen = np.zeros_like(running)
        chosen[row[admit], first[admit]] = True
        remaining -= running & ~admit[:, None]
        remaining[chosen] = wanted[chosen] - 1
        due[chosen] = np.inf
        done = (running & ~admit[:, None] | chosen) & (remaining == 0)
        times.append(clock)
        tokens.append(np.where(admit, 1, batch))
        for at, worker in zip(*done.nonzero(), strict=True):
            now = clock[at]
            spent[at] += now - sent[at, worker]
            ended[at] += 1
            finished[at, worker] += 1
            if finished[at, worker] == 2:
                second_end[at, worker] = now
            wanted[at, worker] = lengths[at, issued[at]]
            issued[at] += 1
            due[at, worker] = sent[at, worker] = now
            if now <= length_s:
                high[at] = now
                issues[at].append(float(now))
    return Loops(
        np.array(times),
        np.array(tokens),
        second_end.max(1),
        high,
        spent / np.maximum(ended, 1),
        issues,
    )


def true_rate(model: Model, seed: int = 99) -> float:
    """Return the long-run rate in tok/s, good to about 0.02 %."""
    loops, from_s, until_s = 100, 50.0, 300.0
    found = run(model, loops, until_s, seed)
    inside = (found.times_s > from_s) & (found.times_s <= until_s)
    return float(found.tokens[inside].sum() / loops / (until_s - from_s))


def seen_at(found: Loops, model: Model, number: int) -> LoopSoFar:
    """Return one of the loops as the generator would tell of it."""
    times_ns = (found.times_s[:, number] * NS).astype(np.int64)
    return LoopSoFar(
        workers=model.n,
        began_ns=0,
        steady_ns=int(found.low_s[number] * NS),
        request_s=float(found.request_s[number]),
        times_ns=times_ns,
        tokens=found.tokens[:, number].cumsum().astype(np.float64),
        issues_ns=(np.array(found.issues_s[number]) * NS).astype(np.int64),
    )


def window_rate(loop: LoopSoFar, until_ns: int) -> float:
    """Return tok/s from when the loop was steady to its last issue until a time."""
    assert loop.steady_ns is not None
    last = loop.issues_ns[np.searchsorted(loop.issues_ns, until_ns, side="right") - 1]
    first_tok, last_tok = np.searchsorted(loop.times_ns, (loop.steady_ns, last), side="right") - 1
    tokens = loop.tokens[last_tok] - loop.tokens[first_tok]
    return float(tokens / (last - loop.steady_ns) * NS)


def rates_of(found: Loops, model: Model) -> Floats:
    """Return every loop's steady rate, tok/s."""
    loops = (seen_at(found, model, number) for number in range(found.low_s.size))
    return np.array([window_rate(loop, int(loop.issues_ns[-1])) for loop in loops])


def covered_by_batches(found: Loops, model: Model, truth: float) -> tuple[float, float]:
    """Return the share of loops whose interval from batches holds the truth, and its half-width."""
    hits, widths = [], []
    for number in range(found.low_s.size):
        loop = seen_at(found, model, number)
        until_ns = int(loop.issues_ns[-1])
        spread = spread_until(loop, until_ns)
        assert spread is not None
        widths.append(spread.half_width())
        rate = window_rate(loop, until_ns)
        hits.append(abs(rate - truth) <= rate * widths[-1])
    return float(np.mean(hits)), float(np.mean(widths))


def covered_by_rounds(rates: Floats, truth: float, rounds: int = 4) -> float:
    """Return the share of studies of some rounds whose t interval holds the truth."""
    hits = []
    for group in rates.reshape(-1, rounds):
        estimate = mean_estimate(group)
        assert estimate is not None
        assert estimate.low is not None
        assert estimate.high is not None
        hits.append(estimate.low <= truth <= estimate.high)
    return float(np.mean(hits))


def stopped(loop: LoopSoFar, rule: StopRule) -> tuple[Stop, float]:
    """Run the rule as the generator would; return its answer and when it came, s."""
    at_s = 0.0
    while True:
        answer = decide(loop, rule, int(at_s * NS))
        if isinstance(answer, Stop):
            return answer, at_s
        assert answer.next_look_s > at_s or at_s == 0
        at_s = answer.next_look_s + 1e-6


def covered_when_stopped(
    found: Loops, model: Model, truth: float, rule: StopRule
) -> tuple[float, float, float]:
    """Return the share of stopped loops that hold the truth, mean length (s), share by interval."""
    hits, lengths, by_interval = [], [], []
    for number in range(found.low_s.size):
        loop = seen_at(found, model, number)
        answer, at_s = stopped(loop, rule)
        spread = spread_until(loop, int(at_s * NS))
        assert spread is not None
        rate = window_rate(loop, int(at_s * NS))
        hits.append(abs(rate - truth) <= rate * spread.half_width())
        lengths.append(at_s)
        by_interval.append(answer.ended_by == "interval")
    return float(np.mean(hits)), float(np.mean(lengths)), float(np.mean(by_interval))


def _lengths(
    model: Model, loops: int, length_s: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """First residual lengths, then stratified ones: (loops, requests)."""
    fastest = model.n / (model.output_tok * (1 - model.spread) * model.step_s / 2)
    block = max(8, model.n)
    blocks = int(length_s * fastest / block) + 3
    first = _stratified(rng, loops, 1, model.n) * model.output_tok
    later = model.output_tok * (1 + model.spread * (2 * _stratified(rng, loops, blocks, block) - 1))
    return np.maximum(1, np.ceil(np.concatenate((first, later), axis=1))).astype(np.int64)


def _stratified(rng: np.random.Generator, loops: int, blocks: int, size: int) -> Floats:
    order = rng.random((loops, blocks, size)).argsort(axis=2)
    return ((order + rng.random((loops, blocks, size))) / size).reshape(loops, blocks * size)

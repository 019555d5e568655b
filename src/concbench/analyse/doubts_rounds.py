"""Doubts about repetition and steadiness: rounds, windows, intervals, slots, a cold start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from concbench.analyse.counters import series
from concbench.analyse.estimate import relative_half_width
from concbench.analyse.evidence import Evidence
from concbench.analyse.pauses import longest_pause
from concbench.analyse.rates import batch_tok_per_s
from concbench.analyse.severity import doubt
from concbench.analyse.windows import Window
from concbench.domain import Doubt
from concbench.result import CellResult

BIMODAL_SHARE = 0.10
BIMODAL_GAP = 3.0
COLD_FACTOR = 2.0
RATE_KEPT = 0.02
NEARLY_ALL = 0.9
MIN_QUEUE_READINGS = 3


def steadiness(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """No steady window, or an interval wider than wanted."""
    if not result.steady.found and result.requests.ok:
        yield doubt(
            "no_steady_state",
            result.cell,
            f"no steady window: {result.steady.reason}. The batch figure stands in, with its "
            f"ramp and drain, and is not comparable with steady figures.{_remedy(result)}",
            {"reason": result.steady.reason, "decoding_mean": result.steady.decoding_mean},
        )
    target, ended_by = seen.target_half_width, seen.ended_by
    if target is None or ended_by == "interval" or not seen.rounds:
        return
    width = relative_half_width(
        result.client.steady_output_tok_per_s or result.client.output_tok_per_s
    )
    unmet = width > target if width is not None else ended_by is not None
    if not unmet:
        return
    # Not "as wanted": of most commands nobody asked for a width.
    reached = "no interval: how far off it may be is not known"
    if width is not None:
        reached = (
            f"± {100 * width:.2g} %, wider than ± {100 * target:.2g} %: smaller differences "
            "cannot be seen"
        )
    pause_s, told = _pause(seen)
    yield doubt(
        "wide_interval",
        result.cell,
        f"the cell was ended by {ended_by or 'the number of rounds'} with {reached}. "
        f"{told or 'Allow more rounds or time.'}",
        {
            "half_width_pct": None if width is None else 100 * width,
            "target_pct": 100 * target,
            "ended_by": ended_by,
            "pause_s": pause_s,
        },
    )


_REMEDIES = (
    ("not streamed", "Leave out --no-stream to have one."),
    ("requests failed", "See why requests failed."),
    ("produced no token", "See what these requests were answered."),
    ("above capacity", "Ask for a lower rate."),
    ("run longer", ""),
    ("more output tokens", ""),
    ("no token arrived after", "Run longer (--duration)."),
    ("fewer than two arrivals", "Run longer (--duration)."),
    ("generating at once", "Choose a level that the engine runs at once, or read it as a queue."),
    ("tokens of KV cache", "Choose a level inside the KV cache, or read it as a queue."),
    ("at least two rounds", "Use more --rounds."),
    ("the loop ", "Run longer (--max-s), or ask for shorter answers."),
    ("never finished a request", "Run longer (--max-s), or see what held these requests."),
)
"""What would give a window, by words of the reason that there is none."""


def _remedy(result: CellResult) -> str:
    reason = result.steady.reason or ""
    told = next((said for words, said in _REMEDIES if words in reason), "")
    return f" {told}" if told else ""


def _pause(seen: Evidence) -> tuple[float | None, str]:
    """Return the longest pause of the whole server in seconds, and the words for it."""
    found = [
        (pause.length_s, (pause.start_ns - each.start_ns) / 1e9)
        for each, part in zip(seen.rounds, seen.streams, strict=True)
        if (pause := longest_pause(part)) is not None
    ]
    if not found:
        return None, ""
    length_s, at_s = max(found)
    return length_s, (
        f"No stream got a token for {length_s:.1f} s, {at_s:.1f} s into its round, and the rate "
        "holds that pause: look at the engine's log and the host, then measure again."
    )


def oversubscribed(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """More at once than the engine's slots or KV pool can hold, by its facts or its counts."""
    facts, n = seen.facts, seen.cell.concurrency
    ok = seen.ok
    need = n * (
        median((r.prompt_tok or r.asked_prompt_tok or 0) + r.output_tok for r in ok)
        if ok
        else seen.cell.context_tok
    )
    slots = None if facts is None else facts.slots
    pool = None if facts is None else facts.kv_capacity_tok
    ran = ran_at_most(seen)
    if slots is not None and n > slots:
        what = f"{slots} slots"
    elif pool is not None and need > pool:
        what = f"{pool:,} tokens of KV cache"
    elif ran is not None:
        what = f"own limit: it ran {ran:.0f} at most and let the others wait"
    else:
        return
    yield doubt(
        "oversubscribed",
        result.cell,
        f"N = {n} is more than the engine's {what}: the surplus waits, which shows as TTFT and "
        "not as speed. Read the rate as that of a full engine with a queue.",
        {
            "concurrency": n,
            "ran_at_most": ran,
            "slots": slots,
            "kv_capacity_tok": pool,
            "needed_tok": need,
        },
    )


def ran_at_most(seen: Evidence) -> float | None:
    """Return how many requests the engine ran at most, where it kept the surplus of N waiting.

    None where it ran (nearly) all, where nothing was seen waiting, and for open loops, which have
    no N. Both are judged over several readings: a queue at the start alone is none.
    """
    if seen.cell.rate_rps is not None:
        return None
    samples = [sample for each in seen.rounds for sample in each.samples]
    running = [value for _, value in series(samples, "running")]
    queued = [value for _, value in series(samples, "waiting") if value > 0]
    most = max(running, default=0.0)
    surplus = (1 - NEARLY_ALL) * seen.cell.concurrency
    if len(queued) < MIN_QUEUE_READINGS or most >= NEARLY_ALL * seen.cell.concurrency:
        return None
    return most if most > 0 and max(queued) >= surplus else None


def replication(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Too few rounds for an interval, and rounds that fall in two groups."""
    rounds = len(seen.rounds)
    if rounds == 1:
        rate = result.client.steady_output_tok_per_s
        within = rate is not None and rate.low is not None
        yield doubt(
            "single_round",
            result.cell,
            "one round only: "
            + ("its interval tells how steady it was, and " if within else "")
            + "nothing tells how much the next one would differ. No comparison can rest on it; "
            "measure it again (more --rounds).",
            {"rounds": 1},
        )
    elif 2 <= rounds <= 3:
        yield doubt(
            "few_rounds",
            result.cell,
            f"{rounds} rounds: {_of_few(result)}. Use --rounds 4 or more.",
            {"rounds": rounds},
        )
    groups = two_groups(_round_rates(seen))
    if groups is not None:
        slow, fast = groups
        yield doubt(
            "bimodal",
            result.cell,
            f"rounds fall in two groups, {len(slow)} near {np.mean(slow):.1f} and {len(fast)} near "
            f"{np.mean(fast):.1f} tok/s: the mean describes neither. Look for a hidden state "
            "(clocks, other users, cache) and interleave comparisons.",
            {"slow_tok_per_s": slow, "fast_tok_per_s": fast},
        )
    if any(each.interrupted for each in seen.rounds):
        yield doubt(
            "interrupted",
            result.cell,
            "a signal ended the measurement: what was measured until then is used. "
            "Run it again for the full number of rounds.",
            {"rounds": rounds},
        )


def _of_few(result: CellResult) -> str:
    """Return what two or three rounds give."""
    rate = result.client.steady_output_tok_per_s or result.client.output_tok_per_s
    if rate is None:
        return "too few to tell how much the next one would differ"
    if rate.low is None:
        return "no interval can be given (the range is shown, which understates the spread)"
    return "the interval rests on few, and may be much too narrow or too wide"


def cold(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """A first request, or a first round, that was far slower than the others."""
    typical = result.client.e2e_ms.mean
    first = None if seen.facts is None else seen.facts.first_request_s
    alone = seen.cell.concurrency == 1
    if alone and first is not None and typical is not None and first * 1e3 > COLD_FACTOR * typical:
        yield doubt(
            "cold_first_request",
            result.cell,
            f"the first request took {first:.1f} s where {typical / 1e3:.1f} s is usual: it "
            "is not in the figures. Users who come after a start or a pause will feel it.",
            {"first_request_s": first, "usual_s": typical / 1e3},
        )
        return
    waits = [float(np.median(part.ttft_ms)) for part in seen.felt if part.ttft_ms.size]
    if len(waits) >= 3 and waits[0] > COLD_FACTOR * median(waits[1:]):
        yield doubt(
            "cold_first_request",
            result.cell,
            f"the first round's median TTFT was {waits[0]:.0f} ms against {median(waits[1:]):.0f} "
            "ms later: something was still being compiled or loaded, and it is in the figures. "
            "Use a longer --warmup.",
            {"first_ttft_ms": waits[0], "later_ttft_ms": median(waits[1:])},
        )


def rate_kept(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """An open loop that sent more slowly than asked."""
    asked = seen.cell.rate_rps
    if asked is None or not asked > 0:
        return
    kept = []
    for each in seen.rounds:
        sent = sorted(r.sent_ns for r in each.requests if r.sent_ns is not None)
        due = sorted(r.due_ns for r in each.requests)
        if len(sent) >= 2 and due[-1] > due[0] and sent[-1] > sent[0]:
            kept.append((len(sent) / len(due)) * (due[-1] - due[0]) / (sent[-1] - sent[0]))
    if not kept or abs(np.mean(kept) - 1) <= RATE_KEPT:
        return
    share = float(np.mean(kept))
    yield doubt(
        "rate_not_kept",
        result.cell,
        f"requests left at {100 * share:.1f} % of the scheduled rate: the load was not the one "
        "asked for. Use a faster client or a lower rate.",
        {"rate_rps": asked, "kept_pct": 100 * share},
    )


CHECKS = (steadiness, oversubscribed, replication, cold, rate_kept)


def two_groups(values: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """Return the two groups that the values fall in, or None when they are one.

    The sorted values are split at their widest gap. Two groups need two members each, a gap of at
    least 10 % of the mean, and a gap three times the wider group's range. Four rounds of one
    normal group meet this by chance in under 0.1 % of cells at a spread (s.d.) of 3 %, in 1 % at
    5 % and in 5 % at 10 % (simulated).
    """
    ordered = sorted(values)
    if len(ordered) < 4:
        return None
    gaps = np.diff(ordered)
    place = int(np.argmax(gaps)) + 1
    low, high = ordered[:place], ordered[place:]
    if min(len(low), len(high)) < 2:
        return None
    spread = max(low[-1] - low[0], high[-1] - high[0])
    if gaps[place - 1] < BIMODAL_SHARE * float(np.mean(ordered)):
        return None
    return (low, high) if gaps[place - 1] >= BIMODAL_GAP * spread else None


def _round_rates(seen: Evidence) -> list[float]:
    """Steady rates where every round has one, batch rates otherwise; never a mixture."""
    steady = [window.tok_per_s for window in seen.windows if isinstance(window, Window)]
    if len(steady) == len(seen.rounds):
        return steady
    rates = [batch_tok_per_s(each) for each in seen.rounds]
    return [rate for rate in rates if rate is not None]

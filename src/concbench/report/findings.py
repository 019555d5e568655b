"""The finding of a series in one sentence: what each doubling of the concurrency still brings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from concbench.analyse.scaling import LEAST_STEP
from concbench.domain import Doubt, TargetFacts
from concbench.report.headline import Gain, fatal_codes, headline, like_for_like
from concbench.report.inert import inert
from concbench.report.numbers import estimate_text, fixed, number, percent
from concbench.result import CellResult

STRONG_GAIN = 1.5
FLAT_GAIN = 1.1
TOO_FEW_ROUNDS = 3
ABOUT_A_DOUBLING = 0.9


def finding(cells: Sequence[CellResult], doubts: Sequence[Doubt], facts: TargetFacts | None) -> str:
    """Return one sentence on a series; it begins in lower case and has no full stop.

    Cells with a fatal doubt give no finding; those without a number are left out.
    """
    spoiled = {cell.cell: codes for cell in cells if (codes := fatal_codes(cell, doubts))}
    usable = [cell for cell in cells if cell.cell not in spoiled and _has_rate(cell, doubts)]
    if not usable:
        return _of_none(cells, spoiled)
    if any(cell.rate_rps is not None for cell in usable):
        text = _of_rates(usable)
    else:
        ordered = sorted(usable, key=lambda cell: cell.concurrency)
        text = _few_rounds(ordered) + _of_levels(ordered, doubts) + _cap(ordered, facts)
    if spoiled:
        text += f"; left out for fatal doubts: {_spoiled_text(cells, spoiled)}"
    return text


def _has_rate(cell: CellResult, doubts: Sequence[Doubt]) -> bool:
    """Return whether a cell has any rate to speak of."""
    rates = (headline(cell, doubts).estimate, cell.client.output_tok_per_s)
    return any(rate is not None and rate.point > 0 for rate in rates)


def _few_rounds(cells: Sequence[CellResult]) -> str:
    """Return the reservation that belongs before a finding without intervals."""
    least = min((cell.rounds for cell in cells), default=0)
    if least >= TOO_FEW_ROUNDS:
        return ""
    return f"as far as {least} round{'s' if least != 1 else ''} can tell, "


def _of_none(cells: Sequence[CellResult], spoiled: dict[str, list[str]]) -> str:
    """Return what to say when no cell has a usable number."""
    if spoiled:
        return f"do not use these numbers: {_spoiled_text(cells, spoiled)}"
    return "nothing was measured" if not cells else "no cell has a rate to judge by"


def _spoiled_text(cells: Sequence[CellResult], spoiled: dict[str, list[str]]) -> str:
    """Return the levels with fatal doubts and their codes: `client_bound at N = 4, 8`."""
    levels: dict[tuple[str, bool], list[str]] = {}
    for cell in cells:
        for code in spoiled.get(cell.cell, ()):
            by_rate = cell.rate_rps is not None
            levels.setdefault((code, by_rate), []).append(_rate(cell) if by_rate else _level(cell))
    return ", ".join(
        f"{inert(code, 60)} at {', '.join(found)} requests/s"
        if by_rate
        else f"{inert(code, 60)} at N = {', '.join(found)}"
        for (code, by_rate), found in levels.items()
    )


def _of_rates(cells: Sequence[CellResult]) -> str:
    """Return the sentence for an open loop: latency and failures, as throughput is the load.

    Above capacity a latency is as long as the run was: there the queue is told first, and then the
    largest rate that was held.
    """
    ordered = sorted(cells, key=lambda cell: cell.rate_rps or 0.0)
    held = [cell for cell in ordered if _load_state(cell) != "saturated"]
    parts = [] if ordered[-1] in held else [_growing_queue(ordered[-1])]
    parts += [_served(held[-1])] if held else []
    return "; ".join(parts)


def _load_state(cell: CellResult) -> str | None:
    return (cell.saturation or {}).get("state")


def _growing_queue(cell: CellResult) -> str:
    """Return what is to be said of a rate above capacity."""
    load = cell.saturation or {}
    slope = number(load["queue_slope_per_s"])
    ended = percent(100 * load["completions_per_arrival"])
    return (
        f"at {_rate(cell)} requests/s the server is saturated: in flight grew by {slope} a second, "
        f"{ended} of arrivals ended, and latency is as long as the run"
    )


def _served(cell: CellResult) -> str:
    ttft, slow = cell.client.ttft_ms.p50, cell.client.ttft_ms.p95
    tail = "" if ttft is None else f": TTFT p50 {fixed(ttft, 0)} ms"
    tail += "" if slow is None else f", p95 {fixed(slow, 0)} ms"
    served = 100 * cell.requests.ok / cell.requests.sent if cell.requests.sent else 0.0
    tail += (
        " (too short to tell whether the queue grows)"
        if _load_state(cell) == "undetermined"
        else ""
    )
    return f"at {_rate(cell)} requests/s {percent(served)} of requests were served{tail}"


def _rate(cell: CellResult) -> str:
    """Return an offered rate as text."""
    return f"{cell.rate_rps:g}"


def _of_levels(cells: Sequence[CellResult], doubts: Sequence[Doubt]) -> str:
    """Return the sentence on the shape of throughput against concurrency."""
    cells = _apart(cells, doubts)
    last = cells[-1]
    known = [like_for_like(low, high, doubts) for low, high in pairwise(cells)]
    steps = [step for step in known if step is not None]
    if not steps or len(steps) < len(known):
        rate = headline(last, doubts).estimate
        return f"{estimate_text(rate or last.client.output_tok_per_s)} tok/s at N = {_level(last)}"
    basis = _basis([(step.high, by_batch) for step, by_batch in steps])
    gains = [step for step, _ in steps]
    growing = [_grows(step) for step in gains]
    if all(growing):
        return _still_growing(gains) + basis
    first_flat = growing.index(False)
    flat = gains[first_flat]
    if any(growing[first_flat:]):
        return (
            f"throughput stalls from N = {flat.low} to {flat.high} and grows again after: "
            f"no ceiling to be named; measure the levels between{basis}"
        )
    change = like_for_like(cells[first_flat], last, doubts)
    return _from_there(flat if change is None else change[0]) + basis


def _apart(cells: Sequence[CellResult], doubts: Sequence[Doubt]) -> list[CellResult]:
    """Return cells that are at least half a doubling apart, and the last: noise decides the rest.

    A last one that is nearer takes the place of the one before it, unless intervals show that it
    brings nothing.
    """
    found = [cells[0]]
    for cell in cells[1:]:
        if math.log2(cell.concurrency / found[-1].concurrency) >= LEAST_STEP:
            found.append(cell)
    if found[-1] is cells[-1]:
        return found
    step = like_for_like(found[-1], cells[-1], doubts)
    if step is not None and _surely_flat(step[0]):
        return [*found, cells[-1]]
    return [*found[:-1], cells[-1]]


def _surely_flat(step: Gain) -> bool:
    return step.error > 0 and step.ratio * (1 + step.error) < FLAT_GAIN**step.doublings


def _level(cell: CellResult) -> str:
    """Return a cell's concurrency as text."""
    return f"{cell.concurrency:,}"


def _basis(steps: Sequence[tuple[int, bool]]) -> str:
    """Return which levels could be compared by the batch figure only."""
    levels = [str(level) for level, by_batch in steps if by_batch]
    if not levels:
        return ""
    return f" (N = {', '.join(levels)} by the batch figure)"


def _grows(step: Gain) -> bool:
    """Return whether a step brings a gain worth the name that its error does not explain."""
    return step.per_doubling >= FLAT_GAIN and step.ratio * (1 - step.error) > 1


def _whole_doublings(gains: Sequence[Gain]) -> list[Gain]:
    """Return the steps, one well below a doubling joined with the next (or the former)."""
    found: list[Gain] = []
    for step in gains:
        short = step is gains[-1] and step.doublings < ABOUT_A_DOUBLING
        if found and (short or found[-1].doublings < ABOUT_A_DOUBLING):
            below = found.pop()
            error = math.hypot(below.error, step.error)
            found.append(Gain(below.low, step.high, below.ratio * step.ratio, error))
        else:
            found.append(step)
    return found


def _still_growing(gains: Sequence[Gain]) -> str:
    """Return the sentence for a curve that has not flattened inside the levels measured."""
    gains = _whole_doublings(gains)
    last_level = gains[-1].high
    if len(gains) == 1 and gains[0].doublings < ABOUT_A_DOUBLING:
        more = percent(100 * (gains[0].ratio - 1))
        span, end = f"{gains[0].low} to {last_level}", f"the ceiling is beyond N = {last_level}"
        return f"throughput grows by {more} from N = {span}: {end}"
    factors = [step.per_doubling for step in gains]
    low, high = fixed(min(factors), 1), fixed(max(factors), 1)
    if min(factors) >= STRONG_GAIN:
        adds = f"{low} ×" if low == high else f"{low} to {high} ×"
        return f"every doubling still adds {adds}: the ceiling is beyond N = {last_level}"
    if len(gains) == 1:
        adds = f"the doubling up to N = {last_level} adds {low} ×"
    elif factors == sorted(factors, reverse=True):
        first, last = gains[0], gains[-1]
        adds = (
            f"each doubling adds less: {fixed(first.per_doubling, 1)} × up to N = {first.high}, "
            f"{fixed(last.per_doubling, 1)} × up to N = {last.high}"
        )
    else:
        adds = f"a doubling adds {low} to {high} ×, unevenly"
    return f"{adds}; the ceiling is beyond N = {last_level}"


def _from_there(change: Gain) -> str:
    """Return the sentence for a curve whose single steps bring nothing that their error allows.

    It is flat only where that error leaves no room for a gain worth the name: a noisy rise is none.
    """
    if _grows(change):
        return (
            f"throughput grows by {percent(100 * (change.ratio - 1))} from N = {change.low} to "
            f"{change.high}, though each step is within its error: no ceiling to be named; "
            "run more rounds"
        )
    at_most = change.ratio * (1 + change.error)
    if at_most >= FLAT_GAIN**change.doublings:
        return (
            f"whether throughput still grows from N = {change.low} on cannot be told: N = "
            f"{change.high} changes it by {percent(100 * (change.ratio - 1), signed=True)}, "
            f"± {percent(100 * change.ratio * change.error)}; run more rounds"
        )
    if change.ratio * (1 + change.error) < 1:
        lost = percent(100 * (1 - change.ratio))
        return f"throughput peaks at N = {change.low} and is {lost} lower at N = {change.high}"
    more = percent(100 * (change.ratio - 1), signed=True)
    return f"throughput flattens at N = {change.low}: N = {change.high} changes it by {more}"


def _cap(cells: Sequence[CellResult], facts: TargetFacts | None) -> str:
    """Return the engine's own limit in brackets, and which levels lie above it."""
    if facts is None or facts.slots is None:
        return ""
    over = [cell.concurrency for cell in cells if cell.concurrency > facts.slots]
    queued = f"; N = {', '.join(map(str, sorted(over)))} queues above it" if over else ""
    return f" (the engine's own cap is {facts.slots:,}{queued})"

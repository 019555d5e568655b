"""The matrix of a sweep: axes to cells, and concurrencies from the KV pool. Pure.

`auto` concurrency doubles from 1 up to what the pool holds, floor(pool ÷ (context + output)), and
then goes once beyond it, by `oversubscribe`: the cells that show what an engine does when its
memory is full.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from concbench.domain import Cell
from concbench.errors import PlanError
from concbench.plan.model import Plan, context_tok

DEFAULT_LADDER = (1, 2, 4, 8)
"""Concurrencies where an engine does not tell its pool."""

MOST_CELLS = 20_000


class Variant(Struct, frozen=True, kw_only=True):
    """A lane with one combination of varied flags. `is_control` marks the repeated first one."""

    lane: str
    flags: dict[str, Any] = {}
    is_control: bool = False

    @property
    def name(self) -> str:
        """The lane's name, with the varied flags behind it."""
        varied = ",".join(f"{flag}={_short(value)}" for flag, value in self.flags.items())
        mark = "~control" if self.is_control else ""
        return f"{self.lane}[{varied}]{mark}" if varied else f"{self.lane}{mark}"


class Rung(Struct, frozen=True, kw_only=True):
    """One concurrency. `capped` tells that the engine runs fewer at once, `over_kv` that the pool
    does not hold so many.
    """

    concurrency: int
    over_kv: bool = False
    capped: bool = False


class MatrixCell(Struct, frozen=True, kw_only=True):
    """A cell of the matrix with what it asks of the engine: `demand_tok` = N × (context + output).

    `cell` is what rounds carry; its lane is the variant's name.
    """

    cell: Cell
    variant: Variant
    output_tok: int
    over_kv: bool = False
    capped: bool = False

    @property
    def demand_tok(self) -> int:
        """Resident tokens when all N are at their longest."""
        return self.cell.concurrency * (self.cell.context_tok + self.output_tok)


def variants(plan: Plan) -> list[Variant]:
    """Return the lanes of the sweep with each combination of their varied flags.

    A lane that varies has its first combination once more at the end: the control that tells a
    change of the flag from a change of the machine.
    """
    found: list[Variant] = []
    for lane in plan.sweep.lanes or list(plan.lanes):
        axes = plan.sweep.vary.get(lane, {})
        combinations = [
            dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
        ]
        found += [Variant(lane=lane, flags=flags) for flags in combinations]
        if len(combinations) > 1:
            found.append(Variant(lane=lane, flags=combinations[0], is_control=True))
    return found


def ladder(
    pool_tok: int | None,
    context: int,
    output: int,
    *,
    oversubscribe: float = 1.5,
    cap: int | None = None,
) -> list[Rung]:
    """Return the automatic concurrencies of one context.

    1, 2, 4, … and floor(pool ÷ (context + output)) itself, then that times `oversubscribe`,
    rounded up and marked over-KV. `cap` is the engine's own limit of requests at once: where it is
    met before the pool is full it takes the pool's place, and the one rung beyond it is marked
    capped, because the engine never admits enough to fill its pool. Without a known pool or cap:
    1, 2, 4, 8.
    """
    per_request = context + output
    held = None if pool_tok is None else pool_tok // per_request
    if held is not None and held < 1:
        return [Rung(concurrency=1, over_kv=True, capped=False)]
    limits = [limit for limit in (held, cap) if limit is not None]
    top = min(limits, default=DEFAULT_LADDER[-1])
    beyond = math.ceil(top * oversubscribe) if limits else top
    return [
        _rung(n, per_request, pool_tok, cap)
        for n in [*_doublings(top), *([beyond] if beyond > top else [])]
    ]


def cells_of(
    plan: Plan,
    variant: Variant,
    output_tok: int,
    *,
    pool_tok: int | None = None,
    max_context_tok: int | None = None,
    cap: int | None = None,
    link: str | None = None,
) -> list[MatrixCell]:
    """Return the cells of one variant over one link, shortest context first.

    Contexts that do not fit the engine's limit are among them: whether it rejects them is an
    outcome. Raises PlanError for a matrix that nobody wants to run.
    """
    found: list[MatrixCell] = []
    for named in sorted(plan.sweep.contexts, key=context_tok):
        tokens = context_tok(named)
        if plan.sweep.concurrency == "auto":
            rungs = ladder(
                pool_tok, tokens, output_tok, oversubscribe=plan.sweep.oversubscribe, cap=cap
            )
        else:
            rungs = [_rung(n, tokens + output_tok, pool_tok, cap) for n in plan.sweep.concurrency]
        if max_context_tok is not None and tokens + output_tok > max_context_tok:
            rungs = rungs[:1]  # one request is enough to see the rejection
        found += [_cell(variant, named, rung, output_tok, link) for rung in rungs]
    if len(found) > MOST_CELLS:
        raise PlanError(f"{plan.path}: {len(found):,} cells for {variant.name}: use fewer values")
    return found


def _rung(n: int, per_request: int, pool_tok: int | None, cap: int | None) -> Rung:
    over = pool_tok is not None and n * per_request > pool_tok
    return Rung(concurrency=n, over_kv=over, capped=cap is not None and n > cap)


def _cell(
    variant: Variant, context: int | str, rung: Rung, output_tok: int, link: str | None
) -> MatrixCell:
    tokens = context_tok(context)
    label = str(context)
    parts = (file_name(variant.name), link, label, f"c{rung.concurrency}")
    cell = Cell(
        cell=".".join(part for part in parts if part),
        lane=variant.name,
        concurrency=rung.concurrency,
        context_tok=tokens,
        context_label=label,
        link=link,
    )
    return MatrixCell(
        cell=cell,
        variant=variant,
        output_tok=output_tok,
        over_kv=rung.over_kv,
        capped=rung.capped,
    )


def _doublings(top: int) -> Iterable[int]:
    """Yield 1, 2, 4, … below `top`, then `top`."""
    n = 1
    while n < top:
        yield n
        n *= 2
    yield top


def file_name(text: str) -> str:
    """Return text fit for a round's id: plain characters, different texts staying different."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in text)[:80]
    if plain == text:
        return plain
    return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _short(value: object) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, (dict, list)) else str(value)


def estimate_s(
    cells: Sequence[MatrixCell],
    rounds: int,
    *,
    step_s: float = 0.02,
    prefill_tok_per_s: float = 1000.0,
    measured_s: Mapping[str, float] | None = None,
) -> float:
    """Return how long the cells will take, warm-ups included, in seconds.

    A cell that was measured before counts with the time of its own rounds; another with the
    longer of its prefill, N × context ÷ rate, and its decode, output × step, times what the pool
    forces to wait.
    """
    known = measured_s or {}
    total = 0.0
    for each in cells:
        one = known.get(each.cell.cell)
        if one is None:
            one = guess_s(each, step_s=step_s, prefill_tok_per_s=prefill_tok_per_s)
        total += one * rounds + min(one, 30.0)
    return total


def guess_s(cell: MatrixCell, *, step_s: float = 0.02, prefill_tok_per_s: float = 1000.0) -> float:
    """Return how long one round of a cell may take, in seconds: its prefills, then its decode."""
    prefill = cell.cell.concurrency * cell.cell.context_tok / prefill_tok_per_s
    return prefill + cell.output_tok * step_s * (1.5 if cell.over_kv else 1.0)


def pace(cells: Sequence[MatrixCell], measured_s: Mapping[str, float]) -> float:
    """Return how much longer than guessed the measured cells took; 1 where none was measured."""
    known = [each for each in cells if each.cell.cell in measured_s]
    guessed = sum(guess_s(each) for each in known)
    return sum(measured_s[each.cell.cell] for each in known) / guessed if guessed else 1.0


def identity(*parts: object) -> str:
    """Return a hash over what must not have changed for a finished cell to be kept."""
    encoded = msgspec.json.encode([msgspec.to_builtins(part) for part in parts], order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:16]

"""Faults of a matrix's axes that types cannot tell: values listed twice, numbers nobody means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from concbench.plan.model import SHORT_TOK, Plan
from concbench.plan.toml_lines import Path as KeyPath

MOST_ROUNDS = 10_000
MOST_SEED = (1 << 53) - 1
"""Every JSON reader keeps a number up to here whole."""


def axis_faults(plan: Plan) -> Iterator[tuple[KeyPath, str]]:
    """Yield (key path, what is wrong with it) of each fault."""
    numbers = [SHORT_TOK if isinstance(value, str) else value for value in plan.sweep.contexts]
    alike = ' ("short" is as long)' if "short" in plan.sweep.contexts else ""
    for index in _repeated(numbers):
        why = alike if numbers[index] == SHORT_TOK else ""
        yield ("sweep", "contexts", index), f"{numbers[index]} is listed twice{why}; keep one"
    levels = [] if isinstance(plan.sweep.concurrency, str) else plan.sweep.concurrency
    for index in _repeated(levels):
        yield ("sweep", "concurrency", index), f"{levels[index]} is listed twice; keep one"
    for lane, flags in plan.sweep.vary.items():
        for flag, values in flags.items():
            # They go onto a command line, where 1 and "1" are the same.
            for index in _repeated([str(value) for value in values]):
                path: KeyPath = ("sweep", "vary", lane, flag, index)
                yield path, f"{values[index]} is listed twice; keep one"
    limits = {"rounds": MOST_ROUNDS, "rounds_max": MOST_ROUNDS, "seed": MOST_SEED}
    for name, limit in limits.items():
        given = getattr(plan.study, name)
        if given is not None and given > limit:
            yield ("study", name), f"expected at most {limit:,}, got {given:,}"


def _repeated(values: Sequence[object]) -> list[int]:
    """Return the places at which a value stands that came before."""
    return [index for index, value in enumerate(values) if value in values[:index]]

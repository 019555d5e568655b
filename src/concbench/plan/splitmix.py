"""A small seeded generator whose numbers are the same on every machine and Python version.

SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014):
a counter stepped by an odd constant, put through a bijective mixer. The standard library's
`random` may change what its shuffles and choices return; a benchmark's workload may not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def mix64(value: int) -> int:
    """Return the SplitMix64 finalizer of `value` modulo 2^64: a bijection on 64 bits."""
    z = value & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def derive(*parts: int) -> int:
    """Return one 64-bit seed made of several integers; their order counts."""
    state = 0
    for part in parts:
        state = mix64((state + _GAMMA) ^ mix64(part + _GAMMA))
    return state


class SplitMix64:
    """A stream of numbers from one 64-bit seed."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next_u64(self) -> int:
        """Return the next integer in [0, 2^64)."""
        self._state = (self._state + _GAMMA) & _MASK
        return mix64(self._state)

    def below(self, n: int) -> int:
        """Return an integer in [0, n), n < 2^32; its bias is under n ÷ 2^64."""
        return (self.next_u64() * n) >> 64

    def unit(self) -> float:
        """Return a float in [0, 1), a multiple of 2^-53."""
        return (self.next_u64() >> 11) * 2.0**-53

    def permutation(self, n: int) -> list[int]:
        """Return 0 … n − 1 in random order (Fisher and Yates, from the end)."""
        order = list(range(n))
        for last in range(n - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order


def uint16s(seed: int) -> Iterator[int]:
    """Yield integers in [0, 2^16) without end, four to a step of the generator, low bits first."""
    state = seed & _MASK
    while True:
        state = (state + _GAMMA) & _MASK
        z = mix64(state)
        yield z & 0xFFFF
        yield (z >> 16) & 0xFFFF
        yield (z >> 32) & 0xFFFF
        yield z >> 48

"""Mutations of known inputs, the same for a seed on any machine. The engine where atheris is not.

No coverage guides it; it draws from the corpus, the format's words and its own earlier mutants.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

MOST_BYTES = 1 << 16
_POOL = 256
_NUMBERS = (b"0", b"-1", b"1e308", b"-0", b"9223372036854775808", b"0.1", b"00", b"NaN")


def mutants(corpus: Sequence[bytes], words: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """Yield inputs without end: each a known one with one to eight changes."""
    rng = random.Random(seed)
    pool = list(corpus) or [b""]
    while True:
        data = bytearray(rng.choice(pool))
        for _ in range(rng.choice((1, 1, 2, 3, 8))):
            _change(rng, data, pool, words)
        made = bytes(data[:MOST_BYTES])
        if rng.random() < 0.05:
            pool.append(made) if len(pool) < len(corpus) + _POOL else pool.__setitem__(
                len(corpus) + rng.randrange(_POOL), made
            )
        yield made


def _change(
    rng: random.Random, data: bytearray, pool: Sequence[bytes], words: Sequence[bytes]
) -> None:
    at = rng.randint(0, len(data))
    span = min(rng.choice((1, 2, 4, 8, 64, 512)), len(data) - at)
    kind = rng.randrange(9)
    if kind == 0:
        del data[at : at + span]
    elif kind == 1:
        data[at:at] = data[at : at + span] * rng.choice((1, 2, 50))
    elif kind == 2:
        data[at:at] = rng.choice(words)
    elif kind == 3:
        data[at : at + span] = rng.choice(words)
    elif kind == 4:
        data[at : at + span] = rng.randbytes(span)
    elif kind == 5 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 6:
        other = rng.choice(pool)
        start = rng.randint(0, len(other))
        data[at:] = other[start:]
    elif kind == 7:
        data[at:at] = rng.choice(_NUMBERS)
    else:
        other = rng.choice(pool)
        start = rng.randint(0, len(other))
        data[at:at] = other[start : start + rng.choice((4, 32, 256))]

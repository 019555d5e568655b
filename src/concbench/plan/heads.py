"""How a prompt begins: words that no other prompt begins with, then an instruction.

Prompt caches match from the front, so the front is where prompts must differ: the first word
within a run as long as the vocabulary allows, the first two words always, and the first four
from the prompts of any run with another seed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from concbench.plan.splitmix import SplitMix64, derive
from concbench.plan.vocabulary import ADJECTIVES, NOUNS, VERBS

if TYPE_CHECKING:
    from concbench.plan.content import ContentKind

NONCE_WORDS = tuple(dict.fromkeys(NOUNS + ADJECTIVES + VERBS))
_SIZE = len(NONCE_WORDS)
_SALT_TAG, _FIRST_TAG, _SECOND_TAG, _SHIFT_TAG = range(4)

INSTRUCTIONS: dict[ContentKind, tuple[str, ...]] = {
    "prose": (": write a very long and detailed continuation of this story", ": go on", ""),
    "code": (": write many more functions that continue this program", ": go on", ""),
    "json": (": write many more records that continue this list", ": go on", ""),
    "repetition": (": repeat this text word for word, again and again", ": go on", ""),
    "words": (": write a very long story that uses these words", ": go on", ""),
}
"""What asks for a long answer, longest first; a short prompt takes one that fits."""


@lru_cache(maxsize=32)
def _permutation(tag: int, seed: int) -> tuple[int, ...]:
    """Return the permutation of the nonce vocabulary that belongs to a seed and a purpose."""
    return tuple(SplitMix64(derive(tag, seed)).permutation(_SIZE))


def _salt(seed: int) -> tuple[int, int]:
    """Return two words' numbers; seeds that differ modulo the vocabulary squared never share them.

    A seed beyond that range is hashed into it first.
    """
    folded = seed if 0 <= seed < _SIZE**2 else derive(seed) % _SIZE**2
    order = _permutation(_SALT_TAG, 0)
    return order[folded % _SIZE], order[folded // _SIZE]


def nonce(seed: int, index: int) -> str:
    """Return the first words of prompt `index` (counted over the whole run, from 0).

    Two words number the prompt, two are the run's salt. The second word is shifted by a hash of
    the first, so that two runs do not walk the same pairs. Prompts beyond the vocabulary
    squared get a third number word in front of the salt.
    """
    rest, first = divmod(index, _SIZE)
    numbers = [_permutation(_FIRST_TAG, seed)[first]]
    rest, second = divmod(rest, _SIZE)
    shift = derive(_SHIFT_TAG, seed, numbers[0])
    numbers.append(_permutation(_SECOND_TAG, seed)[(second + shift) % _SIZE])
    while rest:
        rest, digit = divmod(rest, _SIZE)
        numbers.append(digit)
    words = [NONCE_WORDS[number] for number in (*numbers, *_salt(seed))]
    return " ".join(words).capitalize()

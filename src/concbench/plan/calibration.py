"""How long a prompt will come out where no tokenizer can be asked: a line through two points."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from concbench.errors import UsageError
from concbench.plan.content import PIECE, ContentKind, pieces
from concbench.plan.heads import INSTRUCTIONS, nonce
from concbench.plan.splitmix import derive

if TYPE_CHECKING:
    from collections.abc import Sequence

TOK_PER_WORD: dict[ContentKind, float] = {
    "prose": 1.15,
    "code": 1.9,
    "json": 2.8,
    "repetition": 1.15,
    "words": 1.0,
}
"""Tokens per piece where nothing was measured: usual vocabularies of 30,000 to 150,000 entries."""


CALIBRATION_WORDS = (48, 192, 384)
"""Pieces of the texts that are sent. The slope between the last two must be that of the first two:
a server that cuts long prompts without a word counts fewer tokens there."""

CUT_SLOPE = 0.8
"""A slope below this share of the one before it is a prompt that was cut."""


class Calibration(Struct, frozen=True, kw_only=True):
    """tokens = template_tok + tok_per_word · pieces, for servers that cannot tokenize."""

    template_tok: float
    tok_per_word: float


def word_count(text: str) -> int:
    """Return the number of pieces of a text made by this module."""
    return len(PIECE.findall(text))


def calibration_prompts(
    kind: ContentKind, seed: int, words: Sequence[int] = CALIBRATION_WORDS
) -> list[str]:
    """Return texts of so many pieces, to be sent to a server that reports `prompt_tokens`.

    They begin with words of their own, so that they leave nothing in a prompt cache.
    """
    own_seed = derive(seed, 0xCA11B)
    texts = []
    for index, count in enumerate(words):
        head = nonce(own_seed, index) + INSTRUCTIONS[kind][0]
        filling = islice(pieces(kind, own_seed, index), max(0, count - word_count(head)))
        texts.append(head + "".join(filling))
    return texts


def fit_calibration(words: Sequence[int], prompt_tok: Sequence[int]) -> Calibration:
    """Return the least-squares line through (pieces, tokens that the server counted).

    Points from where the counts grow by less than before are left out: there the server cuts.
    Raises UsageError where the counts do not grow with the prompts.
    """
    words, prompt_tok = _uncut(words, prompt_tok)
    mean_words = math.fsum(words) / max(1, len(words))
    mean_tok = math.fsum(prompt_tok) / max(1, len(prompt_tok))
    spread = math.fsum((w - mean_words) ** 2 for w in words)
    joint = math.fsum(
        (w - mean_words) * (t - mean_tok) for w, t in zip(words, prompt_tok, strict=True)
    )
    if spread == 0 or joint <= 0:
        raise UsageError(
            "the server's prompt_tokens do not grow with the prompt, so lengths cannot be "
            "calibrated; give the prompts with --prompts FILE"
        )
    slope = joint / spread
    return Calibration(template_tok=max(0.0, mean_tok - slope * mean_words), tok_per_word=slope)


def _uncut(words: Sequence[int], prompt_tok: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the points up to where the slope falls, at least two."""
    kept = list(zip(words, prompt_tok, strict=True))
    for place in range(2, len(kept)):
        (a, x), (b, y), (c, z) = kept[place - 2 : place + 1]
        before, after = (y - x) / max(1, b - a), (z - y) / max(1, c - b)
        if after < CUT_SLOPE * before:
            kept = kept[:place]
            break
    return [point[0] for point in kept], [point[1] for point in kept]

"""Token-exact prompts that no prompt cache can answer, and prompts from a file.

A prompt is a head (a nonce, then an instruction: `heads`) and a filling from the grammar
(`content`) that is cut to the token. Its length counts the chat template too.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from concbench.errors import UsageError
from concbench.plan.calibration import (
    TOK_PER_WORD,
    Calibration,
    calibration_prompts,
    fit_calibration,
    word_count,
)
from concbench.plan.content import ContentKind, alphabet, pieces
from concbench.plan.costs import Tokenizer, TokenizerSilent, counted, learn_costs
from concbench.plan.heads import INSTRUCTIONS, nonce
from concbench.plan.vocabulary import NOUNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "Calibration",
    "Prompt",
    "Tokenizer",
    "calibration_prompts",
    "fit_calibration",
    "make_prompts",
    "prompt_of",
    "prompts_sha256",
    "repeated_starts",
    "word_count",
]

MAX_TRIES = 8
"""How often a prompt's tail is repaired before it is taken as it is."""

_SPARES = [" " + word for word in NOUNS[:60]]


class Prompt(Struct, frozen=True, kw_only=True):
    """One prompt. `tok` counts the chat template; None where nothing counted or estimated it.

    `exact` says whether `tok` was counted and is what was asked for. `index` counts over the
    run. `messages` are sent as they are, where the file gave them; `text` is then their JSON.
    """

    text: str
    tok: int | None
    exact: bool
    sha256: str
    index: int
    messages: list[dict[str, Any]] | None = None


class _Draft:
    """A prompt in the making: its head, the rest of its stream, and the filling so far."""

    def __init__(self, head: str, stream: Iterator[str], budget_tok: int) -> None:
        self.head = head
        self.budget_tok = budget_tok
        self.best: tuple[int, int, str] | None = None
        self._stream = stream
        self._filling: list[str] = []
        self._filling_tok = 0

    @property
    def text(self) -> str:
        """The whole prompt."""
        return self.head + "".join(self._filling)

    def fit(self, costs: dict[str, int], spares: dict[int, list[str]], attempt: int) -> None:
        """Make the filling cost `budget_tok`: drop from its end, go on, then fit the last words."""
        while self._filling and self._filling_tok > self.budget_tok:
            self._filling_tok -= costs.get(self._filling.pop(), 1)
        room = self.budget_tok - self._filling_tok
        append = self._filling.append
        while room > 0:
            piece = next(self._stream)
            # A repaired budget can reach pieces that were not priced: the next count corrects it.
            cost = costs.get(piece, 1)
            if cost > room:
                break
            append(piece)
            room -= cost
        room = _fill(self._filling, room, costs, spares, attempt)
        self._filling_tok = self.budget_tok - room

    def keep(self, tok: int, target_tok: int) -> None:
        """Remember the text if it is nearer to the target than any before."""
        error_tok = abs(tok - target_tok)
        if self.best is None or error_tok < self.best[0]:
            self.best = (error_tok, tok, self.text)


def make_prompts(
    n: int,
    target_tok: int,
    kind: ContentKind = "prose",
    seed: int = 0,
    first_index: int = 0,
    tokenizer: Tokenizer | None = None,
    template_tok: int = 0,
    *,
    calibration: Calibration | None = None,
    costs: dict[str, int] | None = None,
    same_prompt: bool = False,
) -> list[Prompt]:
    """Return `n` prompts of `target_tok` tokens, the chat template's `template_tok` included.

    Prompt `i` has the index `first_index + i`, which decides its first words; a run must not use
    an index twice. With a tokenizer the length is exact; without one, or where it returns None,
    it is estimated by `calibration` (whose own template length then counts).
    `costs` is filled with what was learned of the tokenizer, and saves learning it again.
    `same_prompt` gives one text `n` times. Raises UsageError for a target that is too small.
    """
    distinct = min(n, 1) if same_prompt else n
    indices = range(first_index, first_index + distinct)
    made: list[Prompt] | None = None
    if tokenizer is not None:
        known = {} if costs is None else costs
        try:
            made = _counted_prompts(indices, target_tok, kind, seed, tokenizer, template_tok, known)
        except TokenizerSilent:
            made = None
    if made is None:
        assumed = calibration or Calibration(
            template_tok=template_tok, tok_per_word=TOK_PER_WORD[kind]
        )
        made = [_estimated_prompt(index, target_tok, kind, seed, assumed) for index in indices]
    if same_prompt:
        return [
            msgspec.structs.replace(prompt, index=first_index + i)
            for prompt in made
            for i in range(n)
        ]
    return made


def _counted_prompts(
    indices: range,
    target_tok: int,
    kind: ContentKind,
    seed: int,
    tokenizer: Tokenizer,
    template_tok: int,
    costs: dict[str, int],
) -> list[Prompt]:
    """Return prompts cut to the token: heads counted, filling added up, the whole verified."""
    streams = [pieces(kind, seed, index) for index in indices]
    starts = [
        (nonce(seed, index), next(stream)) for index, stream in zip(indices, streams, strict=True)
    ]
    if not starts:
        return []
    heads, head_toks = _heads(starts, target_tok, kind, tokenizer, template_tok)
    needed = _needed(indices, target_tok - template_tok, kind, seed)
    costs |= learn_costs((piece for piece in needed if piece not in costs), tokenizer)
    spares = _spares(costs)
    drafts = [
        _Draft(head, stream, target_tok - template_tok - head_tok)
        for head, head_tok, stream in zip(heads, head_toks, streams, strict=True)
    ]
    _settle(drafts, target_tok, template_tok, tokenizer, costs, spares)
    return [
        prompt_of(draft.best[2], draft.best[1], index, exact=draft.best[0] == 0)
        for index, draft in zip(indices, drafts, strict=True)
        if draft.best is not None
    ]


def _heads(
    starts: Sequence[tuple[str, str]],
    target_tok: int,
    kind: ContentKind,
    tokenizer: Tokenizer,
    template_tok: int,
) -> tuple[list[str], list[int]]:
    """Return the heads with the longest instruction that fits all of them, and their tokens.

    A head includes the first piece of the filling: only from a letter on do pieces add up.
    Raises UsageError when even bare nonces are too long.
    """
    head_toks: list[int] = []
    for instruction in INSTRUCTIONS[kind]:
        heads = [start + instruction + first for start, first in starts]
        head_toks = counted(tokenizer, heads)
        if max(head_toks) + template_tok <= target_tok:
            return heads, head_toks
    raise _too_small(target_tok, template_tok, template_tok + max(head_toks))


def _settle(
    drafts: Sequence[_Draft],
    target_tok: int,
    template_tok: int,
    tokenizer: Tokenizer,
    costs: dict[str, int],
    spares: dict[int, list[str]],
) -> None:
    """Fit every draft, count it whole, and move its budget by what the count was off."""
    pending = list(drafts)
    for attempt in range(MAX_TRIES):
        for draft in pending:
            draft.fit(costs, spares, attempt)
        counts = counted(tokenizer, [draft.text for draft in pending])
        for draft, count in zip(pending, counts, strict=True):
            draft.keep(count + template_tok, target_tok)
            draft.budget_tok += target_tok - template_tok - count
        pending = [draft for draft in pending if draft.best is None or draft.best[0] != 0]
        if not pending:
            return


def _needed(indices: range, most: int, kind: ContentKind, seed: int) -> list[str]:
    """Return the pieces whose cost is to be known: those of short prompts, else all there are."""
    everything = alphabet(kind)
    if len(indices) * most > len(everything):
        return list(dict.fromkeys(everything + _SPARES))
    used = (islice(pieces(kind, seed, index), most) for index in indices)
    return list(dict.fromkeys([*chain.from_iterable(used), *_SPARES]))


def _spares(costs: dict[str, int]) -> dict[int, list[str]]:
    """Return plain words by their cost, the dearest first, to fit the end of a text with."""
    by_cost: dict[int, list[str]] = {}
    for piece in _SPARES:
        by_cost.setdefault(costs[piece], []).append(piece)
    return dict(sorted(by_cost.items(), reverse=True))


def _fill(
    filling: list[str],
    room_tok: int,
    costs: dict[str, int],
    spares: dict[int, list[str]],
    attempt: int,
) -> int:
    """Append spare words worth `room_tok`; return what is left of it, 0 unless no sum fits.

    Each attempt takes other words: where tokens do not quite add up, another word may fit.
    Where no word is small enough (vocabularies of bytes), pieces are taken back to make room.
    """
    smallest = min(spares)
    taken_back = 0
    while room_tok > 0:
        fitting = [c for c in spares if c == room_tok or room_tok - c >= smallest]
        if fitting:
            words = spares[fitting[0]]
            filling.append(words[(len(filling) + 7 * attempt) % len(words)])
            room_tok -= fitting[0]
        elif filling and taken_back < MAX_TRIES:
            room_tok += costs.get(filling.pop(), 1)
            taken_back += 1
        else:
            break
    return room_tok


def _estimated_prompt(
    index: int, target_tok: int, kind: ContentKind, seed: int, calibration: Calibration
) -> Prompt:
    """Return a prompt whose length follows from its number of pieces. Raises UsageError."""
    start, stream = nonce(seed, index), pieces(kind, seed, index)
    room = (target_tok - calibration.template_tok) / calibration.tok_per_word
    for instruction in INSTRUCTIONS[kind]:
        head = start + instruction
        words = word_count(head)
        if words + 1 <= room:
            break
    else:
        template_tok = math.ceil(calibration.template_tok)
        least_tok = math.ceil(
            calibration.template_tok + (words + 1) * calibration.tok_per_word - 1e-9
        )
        raise _too_small(target_tok, template_tok, least_tok)
    filling = list(islice(stream, max(1, round(room) - words)))
    estimate = calibration.template_tok + calibration.tok_per_word * (words + len(filling))
    return prompt_of(head + "".join(filling), round(estimate), index, exact=False)


def _too_small(target_tok: int, template_tok: int, least_tok: int) -> UsageError:
    """Return the error that names the smallest prompt that can be made."""
    return UsageError(
        f"--prompt-tokens {target_tok} is too small: the chat template takes {template_tok} and a "
        f"distinct prompt {least_tok - template_tok}; the minimum is {least_tok}"
    )


def prompt_of(
    text: str,
    tok: int | None,
    index: int,
    *,
    exact: bool,
    messages: list[dict[str, Any]] | None = None,
) -> Prompt:
    """Return the prompt with its hash."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Prompt(text=text, tok=tok, exact=exact, sha256=digest, index=index, messages=messages)


def prompts_sha256(prompts: Sequence[Prompt]) -> str:
    """Return one hash that identifies these prompts in this order."""
    whole = hashlib.sha256()
    for prompt in prompts:
        whole.update(bytes.fromhex(prompt.sha256))
    return whole.hexdigest()


def repeated_starts(prompts: Sequence[Prompt], start_chars: int = 64) -> int:
    """Return how many prompts begin with the same characters as an earlier one."""
    starts = Counter(prompt.text[:start_chars] for prompt in prompts)
    return sum(count - 1 for count in starts.values())

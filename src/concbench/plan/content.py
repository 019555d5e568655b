r"""Natural text from a seeded grammar, in pieces whose token counts add up.

A *piece* is a run of other characters followed by a run of ASCII letters: `" river"`, `", and"`,
`".\n\nThe"`, `"(count"`. Text is cut only between a letter and what follows it, and the
pre-tokenizers of the usual vocabularies never join across that cut, so the tokens of a text are
the sum of the tokens of its pieces. A space or a newline at the end of a piece would break this:
how such a run is split depends on what comes next.

`pieces(kind, seed, index)` is a pure function; its output is part of the workload's definition
and pinned by golden tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Literal, get_args

from concbench.errors import UsageError
from concbench.plan.splitmix import derive, uint16s
from concbench.plan.vocabulary import (
    ADJECTIVES,
    ADVERBS,
    CODE_VERBS,
    IDENTIFIERS,
    NOUNS,
    PREPOSITIONS,
    VERBS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ContentKind = Literal["prose", "code", "json", "repetition", "words"]
KINDS: tuple[ContentKind, ...] = get_args(ContentKind)

PIECE = re.compile(r"[^A-Za-z]*[A-Za-z]+")
"""Cuts a text into pieces; what follows its last letter is left over."""

_SLOTS = {
    "N": NOUNS,
    "J": ADJECTIVES,
    "V": VERBS,
    "D": ADVERBS,
    "P": PREPOSITIONS,
    "I": IDENTIFIERS,
    "C": CODE_VERBS,
    # Records take fewer words: each position has its own pieces, and every piece is to be priced.
    "K": NOUNS[::5],
    "Q": ADJECTIVES[::4],
}
# In a template `@N` stands for a word of that class; a template ends with a letter and starts
# with whatever has to follow the letter before it. No "a" or "an", which would depend on the word.
_SENTENCES = (
    ". The @J @N @V the @N @P the @N, and the @N @V it @D",
    ". One @N @V every @N that the @J @N @V @P the @N",
    ". When the @N @V the @J @N, nobody @P the @N knew why",
    ". In the @N there was one @J @N, which the @N @D @V",
    ". Some of the @J @N @V the @N, but the @N @P the @N @V another @N",
    ". She @D @V the @N and @V her @J @N for the @N",
    ". They had their @J, @J @N @P the @N, so the @N @V them",
    ". Nothing in the @N was as @J as the @N that he @V @P the @N",
    ". It was the @J @N, and the @N of the @N @V it @D",
    ". He @V his @N to the @J @N @P the @N, then @V her @N",
)
_FUNCTIONS = (
    "\n\n\ndef @C_@I(@I, @I):\n    @I = []\n    for @I in @I:\n        if @I > @I:\n"
    "            @I.append(@I)\n    return @I",
    "\n\n\ndef @C_@I(@I):\n    @I = @C_@I(@I, @I)\n    @I += @I * @I\n    return @I - @I",
    '\n\n\ndef @C_@I(@I, @I):\n    """@C the @J @I of the @I."""\n    while @I < len(@I):\n'
    "        @I[@I] = @I.@C(@I)\n    return sorted(@I) or @I",
    "\n\n\ndef @C_@I(@I=None):\n    # the @I is @J when the @I was @V\n    with open(@I) as @I:\n"
    "        @I = {@I: @I for @I in @I.@C(@I)}\n    return @I",
    "\n\n\ndef @C_@I(self, @I):\n    try:\n        self.@I = @I.@C(@I)\n"
    "    except ValueError as error:\n        raise @C_error(@I) from error",
)
_RECORDS = (
    '"},\n  {"name": "@K", "kind": "@Q", "size": {"@I": "@K", "@I": "@Q"}, "note": "the @J @N',
    '"},\n  {"name": "@K", "tags": ["@Q", "@Q", "@K"], "open": true, "note": "@V @D',
    '"},\n  {"name": "@Q @N", "user": null, "place": "@K @P the @N", "owner": "@K", "state": "@V',
    '"},\n  {"name": "@K", "parts": [{"@I": "@K"}, {"@I": "@K"}], "open": false, "note": "one @N',
)


Slot = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grammar:
    """Templates of slots, each slot the pieces to choose from; `opening` starts the text.

    `opening`, where there is one, takes the place of the very first piece.
    """

    templates: tuple[tuple[Slot, ...], ...]
    opening: str | None = None


def _compile(template: str) -> tuple[Slot, ...]:
    """Turn a template into slots: every piece of it, with the words of its class where marked."""
    slots: list[Slot] = []
    for part in re.findall(r"[^A-Za-z@]*(?:@[A-Z]|[A-Za-z]+)", template):
        before, marker, name = part.partition("@")
        slots.append(tuple(before + word for word in _SLOTS[name]) if marker else (part,))
    return tuple(slots)


def _prose() -> tuple[tuple[Slot, ...], ...]:
    """Return the sentences, each five times in a row's place and once as a paragraph's start."""
    plain = tuple(_compile(sentence) for sentence in _SENTENCES)
    fresh = tuple(_compile(sentence.replace(". ", ".\n\n", 1)) for sentence in _SENTENCES)
    return plain * 5 + fresh


_WORDS: Slot = tuple(" " + word for word in dict.fromkeys(NOUNS + ADJECTIVES + VERBS + ADVERBS))
_PROSE = Grammar(_prose())
GRAMMARS: dict[ContentKind, Grammar] = {
    "prose": _PROSE,
    "code": Grammar(tuple(map(_compile, _FUNCTIONS)), opening=":\n\ndef"),
    "json": Grammar(tuple(map(_compile, _RECORDS)), opening=': [\n  {"name'),
    "repetition": _PROSE,
    "words": Grammar(((_WORDS,),)),
}


def known_kind(kind: str) -> ContentKind:
    """Return `kind` as one of KINDS. Raises UsageError for another name."""
    for known in KINDS:
        if kind == known:
            return known
    raise UsageError(f'content "{kind}" is unknown; expected one of {", ".join(KINDS)}')


def pieces(kind: ContentKind, seed: int, index: int) -> Iterator[str]:
    """Yield the pieces of text number `index` of a run, without end."""
    draws = uint16s(derive(seed, index, KINDS.index(kind)))
    grammar = GRAMMARS[kind]
    if kind == "repetition":
        return cycle(_sentence_pair(draws))
    return _endless(grammar, draws)


def _endless(grammar: Grammar, draws: Iterator[int]) -> Iterator[str]:
    """Yield template after template; `draw · n >> 16` is a choice among n."""
    templates = grammar.templates
    stream = (
        slot[next(draws) * len(slot) >> 16] if len(slot) > 1 else slot[0]
        for draw in draws
        for slot in templates[draw * len(templates) >> 16]
    )
    if grammar.opening is not None:
        next(stream)
        yield grammar.opening
    yield from stream


def _sentence_pair(draws: Iterator[int]) -> list[str]:
    """Return the pieces of two sentences of prose, to be said over and over."""
    sentences = len(_SENTENCES)
    return [
        slot[next(draws) * len(slot) >> 16]
        for draw in islice(draws, 2)
        for slot in GRAMMARS["prose"].templates[draw * sentences >> 16]
    ]


def alphabet(kind: ContentKind) -> list[str]:
    """Return every piece that a text of this kind can hold, each once, in a fixed order."""
    grammar = GRAMMARS[kind]
    found = dict.fromkeys(
        piece for template in grammar.templates for slot in template for piece in slot
    )
    if grammar.opening is not None:
        found[grammar.opening] = None
    return list(found)

"""What each piece costs in tokens, learned from a tokenizer with few short texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ANCHOR = "The answer"
_GROUP = 16


class Tokenizer(Protocol):
    """Counts tokens; may ask a server."""

    def count(self, texts: Sequence[str]) -> list[int] | None:
        """Return the tokens of each text, or None where they cannot be counted."""
        ...


class TokenizerSilent(Exception):
    """The tokenizer cannot count: no error of the user's but a reason to estimate."""


def counted(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Return the tokens of each text. Raises TokenizerSilent where they cannot be counted."""
    counts = tokenizer.count(texts)
    if counts is None or len(counts) != len(texts):
        raise TokenizerSilent
    return counts


def learn_costs(pieces: Iterable[str], tokenizer: Tokenizer) -> dict[str, int]:
    """Return the tokens of each piece, at least 1.

    Most pieces are one token, and a group whose tokens equal its pieces holds no other. So
    pieces are counted sixteen at a time and only the other groups are halved: about
    pieces ÷ 16 + 4 · (pieces of several tokens) short texts in five calls.
    Raises TokenizerSilent.
    """
    todo = list(dict.fromkeys(pieces))
    groups = [todo[start : start + _GROUP] for start in range(0, len(todo), _GROUP)]
    base, *sums = counted(tokenizer, [_ANCHOR, *(_text(group) for group in groups)])
    pending = [(group, total - base) for group, total in zip(groups, sums, strict=True)]
    costs: dict[str, int] = {}
    while pending:
        halved = []
        for group, total in pending:
            if total == len(group):
                costs |= dict.fromkeys(group, 1)
            elif len(group) == 1:
                costs[group[0]] = max(1, total)
            else:
                halved.append((group[: len(group) // 2], group[len(group) // 2 :], total))
        if not halved:
            break
        lefts = counted(tokenizer, [_text(left) for left, _, _ in halved])
        pending = []
        for (left, right, total), left_count in zip(halved, lefts, strict=True):
            pending += [(left, left_count - base), (right, total - left_count + base)]
    return costs


def _text(group: list[str]) -> str:
    """Return the pieces after a letter, as they always stand."""
    return _ANCHOR + "".join(group)

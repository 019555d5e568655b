"""The longest prompt that a lane accepts, found by trying: bisected to within 1 %."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

WITHIN = 0.01


class Ceiling(Struct, frozen=True, kw_only=True):
    """`accepted_tok` is the longest prompt that was served, `rejected_tok` the shortest refused.

    Either is None where there was none; `tries` counts the requests.
    """

    accepted_tok: int | None
    rejected_tok: int | None
    tries: int


def find_ceiling(
    accepts: Callable[[int], bool],
    *,
    low: int,
    declared: int | None = None,
    most: int,
    within: float = WITHIN,
) -> Ceiling:
    """Bisect between the longest accepted and the shortest rejected prompt, in tokens.

    `low` is where to begin, `most` the longest to try. `declared`, the limit that the engine
    tells of, is only a good place to look: it and the length 1 % above it are tried first, so that
    an engine that keeps its word takes three requests.
    """
    known: dict[int, bool] = {}

    def ask(tokens: int) -> bool:
        if tokens not in known:
            known[tokens] = accepts(tokens)
        return known[tokens]

    accepted = low if ask(low) else None
    rejected = None if accepted else low
    for guess in _guesses(low, declared, most, within):
        if (accepted and guess <= accepted) or (rejected and guess >= rejected):
            continue
        if ask(guess):
            accepted = guess
        else:
            rejected = guess
    while rejected is None and accepted is not None and accepted < most:
        longer = min(most, 2 * accepted)
        if ask(longer):
            accepted = longer
        else:
            rejected = longer
    floor = accepted or 0
    while rejected is not None and rejected - floor > max(1, int(within * rejected)):
        middle = (floor + rejected) // 2
        if ask(middle):
            floor = accepted = middle
        else:
            rejected = middle
    return Ceiling(accepted_tok=accepted, rejected_tok=rejected, tries=len(known))


def _guesses(low: int, declared: int | None, most: int, within: float) -> list[int]:
    if declared is None or declared <= low:
        return []
    above = declared + max(1, int(within * declared))
    return [guess for guess in (declared, above) if guess <= most]

"""Messages that say the same with other numbers, told once with the range of each number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MOST_PLACES = 12
"""Groups of cells that a message names before it only counts the rest."""

# A number that stands alone: none inside a name, an address, a date or a path.
_NUMBER = re.compile(r"(?<![\w.,:/@+−-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w:/@-]|[.,]\d)")

_LEVEL = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def merged(messages: Mapping[str, Sequence[str]]) -> list[tuple[str, list[str]]]:
    """Return the messages with their cells; those that differ in numbers alone become one.

    Each number that differs is given as `least–greatest`, as it was written.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for message in messages:
        alike.setdefault(tuple(_NUMBER.split(message)), []).append(message)
    return [
        (_ranged(words, group), [cell for message in group for cell in messages[message]])
        for words, group in alike.items()
    ]


def places(labels: Sequence[str]) -> str:
    """Return the cells of a message: `N = 4, 8`, or nothing where it is about the whole.

    Labels that differ in their last word alone share the others; last words that are numbers are in
    ascending order, whatever order they came in.
    """
    groups: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        start, _, last = label.rpartition(" ")
        groups.setdefault(start, []).append(last)
    told = [f"{start} {', '.join(_ascending(found))}".strip() for start, found in groups.items()]
    shown = told[:MOST_PLACES]
    left = sum(len(found) for found in list(groups.values())[MOST_PLACES:])
    return "; ".join([*shown, f"and {left} more cells"] if left else shown)


def _ascending(words: Sequence[str]) -> Sequence[str]:
    """Return the words by the numbers that they are; as they came where one is no number."""
    if not all(_LEVEL.fullmatch(word) for word in words):
        return words
    return sorted(words, key=_number)


def _ranged(words: Sequence[str], group: Sequence[str]) -> str:
    if len(group) == 1:
        return group[0]
    columns = zip(*(_NUMBER.findall(message) for message in group), strict=True)
    spans = [*map(_span, columns), ""]
    return "".join(part + span for part, span in zip(words, spans, strict=True))


def _span(numbers: Sequence[str]) -> str:
    ordered = sorted(numbers, key=_number)
    first, last = ordered[0], ordered[-1]
    return first if _number(first) == _number(last) else f"{first}–{last}"


def _number(text: str) -> float:
    return float(text.replace(",", ""))

"""Words that the tables of a matrix share: places, and the mark of a fatal doubt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from concbench.report.inert import inert

FATAL = "✗"
NO_DIFFERENCE = "no difference seen"
"""Of a change whose interval holds 0: which does not show that both are equal."""


def context_text(label: str, tokens: int) -> str:
    """Return a context as tables call it."""
    return f"{tokens:,}" if label == str(tokens) else f"{inert(label, 20)} ({tokens:,})"


def lane_text(lane: str, link: str | None) -> str:
    """Return a lane with its link, where there is one."""
    return inert(lane, 60) if link is None else f"{inert(lane, 60)} · {inert(link, 40)}"


def marked(text: str, fatal: Sequence[str]) -> str:
    """Return the text, with the mark before it where there is a fatal doubt."""
    return f"{FATAL} {text}" if fatal else text


def fatal_notes(rows: Iterable[tuple[Sequence[str], Sequence[str]]]) -> list[str]:
    """Return one note that names the fatal doubts, each with the rows it stands on."""
    places: dict[str, list[str]] = {}
    for codes, where in rows:
        for code in codes:
            places.setdefault(code, []).append(" · ".join(where))
    told = [f"{code} ({'; '.join(found)})" for code, found in places.items()]
    return [f"{FATAL} a fatal doubt, nothing is made of it: {'; '.join(told)}"] if told else []

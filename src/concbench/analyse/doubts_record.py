"""The doubt about a study's own record: what is written down and cannot be read any more."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from concbench.analyse.severity import doubt
from concbench.domain import Doubt

NAMED = 3
"""So many rounds are named in a message; all are in the evidence."""

ONE_CRASH = 1
"""A crash between a round and its line in the log leaves one round that the log does not know."""


def record_doubts(
    unreadable: Mapping[str, str],
    lost: Sequence[str],
    damaged_lines: int,
    unlogged: Collection[str],
    *,
    log_empty: bool = False,
) -> list[Doubt]:
    """Return one doubt for rounds that cannot be read, are gone, and for a log that lacks lines.

    `unreadable` maps rounds to what is wrong, `lost` are logged and gone, `unlogged` are there and
    not logged; `log_empty`: there is no event at all.
    """
    found: list[Doubt] = []
    for names, what in ((list(unreadable), "cannot be read"), (list(lost), "is gone")):
        if names:
            several = "are gone" if what == "is gone" else what
            text = f"{_count(len(names), 'round')} on record {what if len(names) == 1 else several}"
            found.append(
                doubt("record_damaged", None, f"{text} ({_named(names)})", {"rounds": names})
            )
    missing = len(unlogged) if log_empty or len(unlogged) > ONE_CRASH else 0
    said = [_count(damaged_lines, "line") + " of the log cannot be read"] if damaged_lines else []
    if missing:
        said.append(f"{_count(missing, 'round')} on record {_are(missing)} not in the log")
    if said:
        text = f"{' and '.join(said)}: corrections and other notes may be missing"
        evidence = {"lines": damaged_lines, "unlogged": missing}
        found.append(doubt("record_damaged", None, text, evidence))
    return found


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _named(names: Sequence[str]) -> str:
    more = [f"and {len(names) - NAMED:,} more"] if len(names) > NAMED else []
    return ", ".join([*names[:NAMED], *more])

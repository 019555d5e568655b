"""Rates from the engine's own log reports: only windows that were wholly at N count.

An engine reports every few seconds what it did since the last report, so the report during which
the N-th request began, or the first one ended, is diluted. Of every unbroken run of reports with
`Running == N` the first is dropped (it holds the ramp) and so is the last (the count is that of its
end only by luck); fewer than three windows left are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from concbench.domain import ServerSample

RATE: Final = "log_output_tok_per_s"
RUNNING: Final = "log_running"
AGGREGATED: Final = "key=all"
MIN_WINDOWS: Final = 3


@dataclass(frozen=True, slots=True)
class LogWindow:
    """One report: when it was seen (ns), requests running at its end, and its rate in tok/s."""

    at_ns: int
    running: float
    tok_per_s: float


def whole_windows(samples: Sequence[ServerSample], n: int) -> list[LogWindow]:
    """Return the whole windows at `n` running requests, in order of time; none below three."""
    kept: list[LogWindow] = []
    run: list[LogWindow] = []
    for window in [*log_windows(samples), None]:
        if window is not None and window.running == n:
            run.append(window)
            continue
        kept += run[1:-1]
        run = []
    return kept if len(kept) >= MIN_WINDOWS else []


def log_windows(samples: Sequence[ServerSample]) -> list[LogWindow]:
    """Return all reports that have both a rate and a count, engines added up.

    Engines that report one after the other belong together until one of them reports again. A
    line that aggregates engines replaces theirs.
    """
    reports = _reports([s for s in samples if s.name in (RATE, RUNNING) and s.value is not None])
    if any(labels == AGGREGATED for labels, _ in reports):
        reports = [item for item in reports if item[0] == AGGREGATED]
    engines = {labels for labels, _ in reports}
    windows: list[LogWindow] = []
    group: dict[str, LogWindow] = {}
    for labels, window in reports:
        if labels in group:
            windows += _together(group, engines)
            group = {}
        group[labels] = window
    return windows + _together(group, engines)


def _reports(samples: Sequence[ServerSample]) -> list[tuple[str, LogWindow]]:
    """Pair rates with counts: the k-th of an engine's reports in one chunk of log is one report."""
    pairs: dict[tuple[int, int, str, int], dict[str, float]] = {}
    counts: dict[tuple[int, int, str, str], int] = {}
    for sample in samples:
        chunk = (sample.received_ns, sample.sent_ns, sample.labels)
        number = counts.get((*chunk, sample.name), 0)
        counts[(*chunk, sample.name)] = number + 1
        pairs.setdefault((*chunk, number), {})[sample.name] = sample.value or 0.0
    return [
        (labels, LogWindow(received_ns, values[RUNNING], values[RATE]))
        for (received_ns, _, labels, _), values in sorted(
            pairs.items(), key=lambda item: (item[0][0], item[0][3])
        )
        if RATE in values and RUNNING in values
    ]


def _together(group: dict[str, LogWindow], engines: set[str]) -> list[LogWindow]:
    """Add up the engines of one report; nothing while one of them is missing."""
    if not group or set(group) != engines:
        return []
    windows = list(group.values())
    return [
        LogWindow(
            max(window.at_ns for window in windows),
            sum(window.running for window in windows),
            sum(window.tok_per_s for window in windows),
        )
    ]

"""Lanes beside each other: every fact of each, what differs marked, what is unfair named."""

from __future__ import annotations

from concbench.analyse.unlike import unlike
from concbench.domain import TargetFacts
from concbench.report.header import UNKNOWN, lane_facts
from concbench.report.inert import inert
from concbench.report.view import SideRow, SidesView
from concbench.result import Result

_NAMES = {
    "model": "model",
    "quantization": "quantization",
    "KV cache type": "kv_cache_dtype",
    "context, tokens": "context",
    "running at most": "slots",
    "prefix caching": "prompt_cache",
    "speculation": "speculation",
    "eager (no graphs)": "eager",
}
"""Names of facts as `--accept` calls them."""

_OF_THE_RUN = frozenset({"address", "cold start, s", "first request, s"})
"""Facts that differ between any two lanes and tell nothing about fairness."""


def sides_of(result: Result) -> SidesView | None:
    """Return the lanes that were measured, beside each other; None for fewer than two."""
    measured = dict.fromkeys(cell.lane for cell in result.cells)
    known = [result.targets[lane] for lane in measured if lane in result.targets]
    if len(known) < 2:
        return None
    columns = [lane_facts(facts) for facts in known]
    unfair = _unfair(known)
    told = [place for place in range(len(columns[0]))
            if any(facts[place].text != UNKNOWN for facts in columns)]  # fmt: skip
    rows = [
        _row([facts[place].text for facts in columns], columns[0][place].name, unfair)
        for place in told
    ]
    return SidesView(tuple(inert(facts.lane, 60) for facts in known), tuple(rows))


def _unfair(known: list[TargetFacts]) -> set[str]:
    """Return the names of what makes some lane unlike the first."""
    first, *others = known
    return {one.name for other in others for one in unlike(first, other) if one.unfair}


def _row(texts: list[str], name: str, unfair: set[str]) -> SideRow:
    """Return one fact of every lane."""
    differs = tuple(text != texts[0] for text in texts)
    mark = ""
    if any(differs) and name not in _OF_THE_RUN:
        mark = "differs"
        if _NAMES.get(name, name) in unfair:
            mark = "unfair"
        elif UNKNOWN in texts:
            mark = "unknown"
    return SideRow(name, tuple(texts), differs, mark)

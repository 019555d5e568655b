"""Every doubt that rounds and facts can raise about one cell, fatal ones first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from concbench.analyse import (
    doubts_client,
    doubts_log,
    doubts_requests,
    doubts_rounds,
    doubts_server,
    doubts_tokens,
    hostview,
)
from concbench.analyse.evidence import Evidence
from concbench.analyse.severity import FATAL_ABOVE, SEVERITY
from concbench.domain import Doubt
from concbench.result import CellResult

__all__ = ["FATAL_ABOVE", "SEVERITY", "doubts_of"]

Check = Callable[[Evidence, CellResult], Iterator[Doubt]]

CHECKS: tuple[Check, ...] = (
    *doubts_requests.CHECKS,
    *doubts_tokens.CHECKS,
    *doubts_client.CHECKS,
    *doubts_server.CHECKS,
    *doubts_rounds.CHECKS,
    *doubts_log.CHECKS,
    *hostview.CHECKS,
)

_RANK = {"fatal": 0, "warning": 1, "note": 2}


def doubts_of(seen: Evidence, result: CellResult) -> list[Doubt]:
    """Return the cell's doubts, fatal before warning before note, in the checks' order."""
    found = [item for check in CHECKS for item in check(seen, result)]
    return sorted(found, key=lambda item: _RANK[item.severity])

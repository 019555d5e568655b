"""What the page of a running study shows: plain data, made harmless, and the page around it.

The page itself holds nothing of the study. It asks for `state.json` and puts every text in as
text, so that no name and no answer of a model can become markup or a script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Literal

import msgspec
from msgspec import Struct

from concbench.analyse.estimate import mean_estimate
from concbench.domain import Cell, Estimate, Severity
from concbench.report.inert import inert
from concbench.report.numbers import estimate_number, estimate_spread

StudyState = Literal["running", "finished", "interrupted", "stopped"]
"""`stopped`: nobody writes into it, and neither an end nor a signal is on record."""

LAST_ROUNDS = 20
MOST_SIGNS = 8
_TEMPLATES = resources.files("concbench.report") / "templates"
_STYLE_PLACE, _SCRIPT_PLACE = "/* style */", "/* script */"


class RoundLine(Struct, frozen=True, kw_only=True):
    """One round on record; rates in tok/s, None where it has none. `took_s` in seconds."""

    round: str
    cell: str
    phase: str
    outcome: str
    ok: int
    sent: int
    took_s: float
    batch_tok_per_s: float | None = None
    steady_tok_per_s: float | None = None
    retracted: bool = False

    @property
    def counts(self) -> bool:
        """Whether it goes into its cell's figures."""
        return self.phase == "measured" and not self.retracted


class CellLine(Struct, frozen=True, kw_only=True):
    """One cell so far. A rate is a mean over rounds with its interval or range as text.

    `points` are the rounds' steady rates (tok/s), else their batch rates.
    """

    cell: str
    series: str
    level: float
    label: str
    rounds: int
    ok: int
    sent: int
    steady: str
    steady_spread: str
    batch: str
    batch_spread: str
    points: list[float]
    point: float | None
    steady_known: bool
    outcome: str


class RunningLine(Struct, frozen=True, kw_only=True):
    """The round that is running, as its process last said; None is what it does not know.

    Rates in tok/s over the last 2 s. `left_s` is a limit where `asked` is None, else an estimate.
    `signs` are what may become doubts, `half_width` a share.
    """

    cell: str
    phase: str
    elapsed_s: float
    in_flight: int
    ended: int
    left_s: float | None = None
    asked: int | None = None
    running: float | None = None
    waiting: float | None = None
    client_tok_per_s: float | None = None
    server_tok_per_s: float | None = None
    half_width: float | None = None
    signs: list[str] = []


def running_line(said: Mapping[str, Any] | None) -> RunningLine | None:
    """Return what a process said is running, made harmless; None where it makes no sense."""
    if said is None:
        return None
    try:
        line = msgspec.convert(said, RunningLine)
    except msgspec.ValidationError:
        return None
    return msgspec.structs.replace(
        line,
        cell=inert(line.cell, 120),
        phase=inert(line.phase, 20),
        signs=[inert(sign, 200) for sign in line.signs[:MOST_SIGNS]],
    )


class DoubtLine(Struct, frozen=True, kw_only=True):
    """A doubt as it is shown."""

    code: str
    severity: Severity
    cell: str
    message: str


class Judged(Struct, frozen=True, kw_only=True):
    """The last judgement of the whole study: over how many measured rounds, sentence, doubts."""

    rounds: int
    sentence: str
    verdicts: list[str] = []
    doubts: list[DoubtLine] = []


class FollowState(Struct, frozen=True, kw_only=True):
    """All that the page shows of one study. `planned` and `left_s` are None where unknown.

    `version` changes with what is on disk; `judging` says that a judgement is being worked out.
    `corrections` are the events that stand above all; `unread` rounds are not in the figures yet.
    """

    study: str
    name: str
    command: str
    state: StudyState
    began_utc: str
    now_utc: str
    version: str
    lanes: list[str]
    done: int
    planned: int | None
    left_s: float | None
    cells: list[CellLine]
    last_rounds: list[RoundLine]
    events: list[str]
    judged: Judged | None = None
    judging: bool = False
    judge_error: str = ""
    studies: list[str] = []
    corrections: list[str] = []
    retracted: int = 0
    unread: int = 0
    running: RunningLine | None = None


def cell_line(
    cell: Cell, rounds: Sequence[RoundLine], estimate: Estimate | None = None
) -> CellLine:
    """Return a cell's figures from its rounds, of which those that count are taken.

    `estimate` is the steady rate where more is known of it than the rounds' rates.
    """
    counted = [each for each in rounds if each.counts]
    steady = [r.steady_tok_per_s for r in counted if r.steady_tok_per_s is not None]
    batch = [r.batch_tok_per_s for r in counted if r.batch_tok_per_s is not None]
    if 2 * len(steady) < len(counted):
        steady, estimate = [], None  # as in the report: most rounds have no window
    rate, classic = estimate or mean_estimate(steady), mean_estimate(batch)
    shown = rate or classic
    return CellLine(
        cell=inert(cell.cell),
        series=series_name(cell),
        level=cell.rate_rps if cell.rate_rps is not None else cell.concurrency,
        label=level_name(cell),
        rounds=len(counted),
        ok=sum(each.ok for each in counted),
        sent=sum(each.sent for each in counted),
        steady=estimate_number(rate),
        steady_spread=_spread(rate),
        batch=estimate_number(classic),
        batch_spread=_spread(classic),
        points=steady if rate is not None else batch,
        point=None if shown is None else shown.point,
        steady_known=rate is not None,
        outcome=next((r.outcome for r in reversed(rounds) if r.outcome != "measured"), ""),
    )


def _spread(estimate: Estimate | None) -> str:
    return "(1 round)" if estimate is not None and estimate.n == 1 else estimate_spread(estimate)


def series_name(cell: Cell) -> str:
    """Return lane, link and context of a cell in one harmless text."""
    parts = [cell.lane, cell.link or "", cell.context_label]
    return " · ".join(inert(part, 60) for part in parts if part)


def level_name(cell: Cell) -> str:
    """Return `N = 8`, or `4 req/s` of an open loop."""
    return f"N = {cell.concurrency}" if cell.rate_rps is None else f"{cell.rate_rps:g} req/s"


def left_s(done: int, planned: int | None, took_s: float, idle_s: float) -> float | None:
    """Return how long the rest takes at the pace so far, s; None where that is not known.

    `took_s` is how long the `done` rounds took, `idle_s` how long ago the last one ended.
    """
    if planned is None or done < 1 or took_s <= 0:
        return None
    return max(0.0, took_s / done * max(0, planned - done) - idle_s)


def page() -> str:
    """Return the page: one file, its style and script inside, nothing of any study in it."""
    text = _read("follow.html")
    return text.replace(_STYLE_PLACE, _read("follow.css")).replace(_SCRIPT_PLACE, _script())


def page_policy() -> str:
    """Return the page's content security policy: its own script alone, and its own origin.

    The icon is an empty `data:` address, so that no browser asks for one.
    """
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _script() -> str:
    return _read("follow.js")


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")

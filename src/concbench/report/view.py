"""View models: what every format shows, as plain data. Built by `concbench.report.build`.

Numbers keep their full precision beside the text that may be shown of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from concbench.domain import Severity
from concbench.result import CellResult

FOOTNOTE_MARKS = "*†‡§¶#"


@dataclass(frozen=True, slots=True)
class Quantity:
    """One typed cell: a number in `unit`, the text of it, its interval and a note.

    `spread` is the interval as text (`± 0.4 %`) or the range (`(55–57)`); `is_range` tells which
    of the two `interval` holds. `note` is a footnote's text.
    """

    number: float | None
    unit: str
    text: str
    spread: str = ""
    interval: tuple[float, float] | None = None
    is_range: bool = False
    note: str | None = None

    @property
    def whole(self) -> str:
        """Number and spread in one text."""
        return f"{self.text} {self.spread}".rstrip()


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `group` is the first header line, `label` the second, `definition` a key."""

    key: str
    group: str
    label: str
    unit: str
    definition: str | None = None

    @property
    def heading(self) -> str:
        """Both header lines in one text."""
        return f"{self.group} {self.label}".strip()


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the study: `cells` go with the table's columns, `doubts` are its codes.

    `level` is the number behind the label: the concurrency, or the rate in requests a second.
    `suspect` are the doubts among them that are more than notes.
    """

    label: str
    level: float
    cell: str
    cells: tuple[Quantity, ...]
    doubts: tuple[str, ...] = ()
    fatal: bool = False
    suspect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by level. `footnotes` are pairs of mark and text, in order of appearance."""

    level_heading: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[tuple[str, str], ...] = ()

    def mark(self, quantity: Quantity) -> str:
        """Return the footnote mark of a cell, or an empty string."""
        return next((mark for mark, text in self.footnotes if text == quantity.note), "")

    def column(self, key: str) -> list[Quantity] | None:
        """Return the cells of one column, top to bottom, or None where it is not shown."""
        keys = [column.key for column in self.columns]
        if key not in keys:
            return None
        return [row.cells[keys.index(key)] for row in self.rows]


@dataclass(frozen=True, slots=True)
class PlainTable:
    """A table of texts. The first `words` columns are words (to the left), the others figures."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    words: int = 1


@dataclass(frozen=True, slots=True)
class FactView:
    """One fact of a lane, and where it is known from."""

    name: str
    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class PanelRow:
    """The client's own error in one cell, as texts that go with `PANEL_HEADINGS`."""

    label: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeriesView:
    """The cells of one lane, link and context. `title` is empty when it is the only series.

    `known` are the parts of the line on recipe, traps and end of the lane, `cells` the results
    behind the rows, in their order.
    """

    lane: str
    title: tuple[str, ...]
    engine: tuple[str, ...]
    instrument: tuple[str, ...]
    table: Table
    finding: str
    facts: tuple[FactView, ...]
    panel: tuple[PanelRow, ...]
    known: tuple[str, ...] = ()
    context: str = ""
    context_tok: int = 0
    cells: tuple[CellResult, ...] = ()

    @property
    def name(self) -> str:
        """The title in one text, or the lane's name where there is no title."""
        return " · ".join(self.title) or self.lane


@dataclass(frozen=True, slots=True)
class DoubtView:
    """All doubts of one code and severity: messages with the cells that they apply to."""

    code: str
    severity: Severity
    messages: tuple[tuple[str, str], ...]
    effect: str
    action: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Banner:
    """What stands above everything else. `was` are sentences that no longer hold."""

    kind: Literal["correction", "amended", "damaged", "interrupted", "unfinished"]
    text: str
    was: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SideRow:
    """One fact of every lane beside each other: `differs` from the first lane, by lane.

    `mark` is `unfair` where the difference forbids a verdict until it is accepted, `differs` where
    it does not, `unknown` where a side does not tell, else empty.
    """

    name: str
    texts: tuple[str, ...]
    differs: tuple[bool, ...]
    mark: str = ""


@dataclass(frozen=True, slots=True)
class SidesView:
    """Two lanes or more beside each other."""

    lanes: tuple[str, ...]
    rows: tuple[SideRow, ...]


@dataclass(frozen=True, slots=True)
class ReportView:
    """The whole report. `sentence` is the answer in one line, `beside` what stands beside cells.

    `matrix` are the tables over several lanes, links or contexts; none of them otherwise.
    `objectives` are the levels against objectives, where a command was asked for that.
    """

    command: str
    began_utc: str
    tool_version: str
    banners: tuple[Banner, ...]
    sentence: str
    series: tuple[SeriesView, ...]
    verdicts: tuple[str, ...]
    beside: tuple[str, ...]
    doubts: tuple[DoubtView, ...]
    reproduce: tuple[str, ...]
    machine: tuple[FactView, ...]
    study: str | None
    page: str | None
    matrix: tuple[PlainTable, ...] = ()
    sides: SidesView | None = None
    objectives: tuple[PlainTable, ...] = ()

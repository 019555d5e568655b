"""From a result to the view that every format shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.domain import Doubt, Severity
from concbench.report.alike import merged, places
from concbench.report.beside import beside_lines
from concbench.report.capacity import capacity_answers, capacity_tables
from concbench.report.doubts_text import advice
from concbench.report.findings import finding
from concbench.report.header import engine_line, instrument_line, lane_facts, panel_row
from concbench.report.inert import inert
from concbench.report.lanes import lane_details, lane_line
from concbench.report.matrix import matrix_tables
from concbench.report.matrix_sentence import matrix_sentence
from concbench.report.reproduce import command_lines
from concbench.report.rows import level_of, level_text, table_of
from concbench.report.sides import sides_of
from concbench.report.verdicts import verdict_sentences
from concbench.report.view import Banner, DoubtView, FactView, ReportView, SeriesView
from concbench.result import CellResult, Result

SEVERITIES: tuple[Severity, ...] = ("fatal", "warning", "note")
MESSAGE_LIMIT = 400
PATH_LIMIT = 400
SeriesKey = tuple[str, str | None, str, int]


def build_view(result: Result, page: str | None = None) -> ReportView:
    """Return what to show of a result. `page` is where its HTML report lies, if there is one."""
    series = _series(result)
    verdicts = verdict_sentences(result.verdicts, result.crossovers)
    told = (result.payload or {}).get("spec")
    if told:
        verdicts = (inert(told["sentence"], MESSAGE_LIMIT), *verdicts)
    # Who asked for objectives reads that answer first.
    answers = verdicts or capacity_answers(result.payload)
    return ReportView(
        command=inert(result.command, 40),
        began_utc=inert(result.began_utc, 40),
        tool_version=inert(result.tool_version, 40),
        banners=_banners(result),
        sentence=_sentence(result, series, answers),
        series=series,
        verdicts=verdicts,
        beside=beside_lines(result, _cell_labels(result.cells)),
        doubts=_doubts(result),
        reproduce=command_lines(result),
        machine=_machine(result.machine),
        study=inert(result.study, PATH_LIMIT) if result.study else None,
        page=inert(page, PATH_LIMIT) if page else None,
        matrix=matrix_tables(result.payload),
        sides=sides_of(result),
        objectives=capacity_tables(result.payload),
    )


def _banners(result: Result) -> tuple[Banner, ...]:
    """Return what stands at the very top: corrections, then damage and an interruption."""
    banners = [
        Banner(
            "amended" if _is_amendment(entry) else "correction",
            _correction(entry),
            tuple(inert(old, MESSAGE_LIMIT) for old in entry.get("was") or ()),
        )
        for entry in result.corrections
    ]
    banners += [
        Banner("damaged", inert(doubt.message, MESSAGE_LIMIT))
        for doubt in result.doubts
        if doubt.code == "record_damaged"
    ]
    if result.interrupted:
        text = "stopped before its end: what follows is what was measured until then"
        banners.append(Banner("interrupted", text))
    elif (result.payload or {}).get("unfinished"):
        text = (
            "nothing says that it came to its end: it is still being measured, or was killed; what "
            "follows is what was measured until then"
        )
        banners.append(Banner("unfinished", text))
    return tuple(banners)


def _is_amendment(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry is about a newer or older study, none of them wrong."""
    return bool(entry.get("supersedes") or entry.get("superseded_by"))


def _correction(entry: Mapping[str, Any]) -> str:
    """Return one correction: which round, why, what replaces it, and when it was made."""
    what = entry.get("round")
    text = f"round {inert(what)} is retracted" if what else "this result is corrected"
    if entry.get("reading"):
        text = f"reading {inert(entry['reading'])} is retracted"
    if entry.get("superseded_by"):
        text = f"superseded by {_other_study(entry, entry['superseded_by'])}"
    elif entry.get("supersedes"):
        text = f"supersedes {_other_study(entry, entry['supersedes'])}"
    if _is_amendment(entry) and entry.get("reading"):
        text = f"reading {inert(entry['reading'])} is {text}"
    text += f": {inert(entry.get('why') or 'no reason given', MESSAGE_LIMIT)}"
    if entry.get("by"):
        text += f" (replaced by {inert(entry['by'])})"
    return text + (f" [{inert(entry['at_utc'], 40)}]" if entry.get("at_utc") else "")


def _other_study(entry: Mapping[str, Any], study: object) -> str:
    """Return the folder of another study with its id, the id where that is all there is."""
    folder = entry.get("folder")
    return f"{inert(folder)} (study {inert(study)})" if folder else inert(study)


def _sentence(result: Result, series: Sequence[SeriesView], answers: Sequence[str]) -> str:
    """Return the answer in one line: what forbids one first, then a verdict, then a finding."""
    everywhere = [d.code for d in result.doubts if d.severity == "fatal" and d.cell is None]
    if everywhere:
        return f"do not use these numbers: {_names(everywhere)}"
    if answers:
        fatal = [d.code for d in result.doubts if d.severity == "fatal"]
        stands = f"; a fatal doubt stands: {_names(fatal)}"
        return answers[0].removesuffix(".") + (stands if fatal else "")
    if not series:
        return "no cells were measured"
    first = series[0]
    if len(series) == 1:
        return first.finding
    # A name keeps its own spelling: what stands first may become a capital.
    return matrix_sentence(result.payload) or f"on {first.name}: {first.finding}"


def _names(codes: Sequence[str]) -> str:
    """Return doubt codes, each once."""
    return ", ".join(inert(code, 60) for code in dict.fromkeys(codes))


def _series(result: Result) -> tuple[SeriesView, ...]:
    """Return the cells grouped by lane, link and context, in order of appearance."""
    groups: dict[SeriesKey, list[CellResult]] = {}
    for cell in result.cells:
        key = (cell.lane, cell.link, cell.context_label, cell.context_tok)
        groups.setdefault(key, []).append(cell)
    by_cell: dict[str | None, list[Doubt]] = {}
    for doubt in result.doubts:
        by_cell.setdefault(doubt.cell, []).append(doubt)
    return tuple(
        _one_series(key, cells, result, groups, _doubts_on(cells, by_cell))
        for key, cells in groups.items()
    )


def _doubts_on(
    cells: Sequence[CellResult], by_cell: Mapping[str | None, Sequence[Doubt]]
) -> list[Doubt]:
    """Return the doubts that concern a series: of its cells, and of the whole."""
    ids: list[str | None] = [None, *(cell.cell for cell in cells)]
    found = [doubt for cell in dict.fromkeys(ids) for doubt in by_cell.get(cell, ())]
    return sorted(found, key=lambda doubt: SEVERITIES.index(doubt.severity))


def _one_series(
    key: SeriesKey,
    cells: list[CellResult],
    result: Result,
    groups: Mapping[SeriesKey, object],
    doubts: Sequence[Doubt],
) -> SeriesView:
    """Return the view of one group of cells."""
    lane = key[0]
    facts = result.targets.get(lane) or (
        result.target if result.target is not None and result.target.lane == lane else None
    )
    known = result.lanes.get(lane)
    ordered = sorted(cells, key=level_of)
    return SeriesView(
        lane=inert(lane, 60),
        title=_title(key, groups),
        engine=engine_line(facts, cells),
        instrument=instrument_line(cells),
        table=table_of(ordered, doubts),
        finding=finding(ordered, doubts, facts),
        facts=(*lane_facts(facts), *lane_details(facts, known)),
        panel=tuple(panel_row(cell) for cell in ordered),
        known=lane_line(facts, known),
        context=inert(key[2], 40),
        context_tok=key[3],
        cells=tuple(ordered),
    )


def _title(key: SeriesKey, groups: Mapping[SeriesKey, object]) -> tuple[str, ...]:
    """Return what tells this series from the others: lane, link and context where they vary."""
    if len(groups) == 1:
        return ()
    lane, link, label, context_tok = key
    parts = [inert(lane, 60)]
    if len({other[1] for other in groups}) > 1:
        parts.append(f"link {inert(link, 40)}" if link else "no link named")
    if len({other[2:] for other in groups}) > 1:
        parts.append(f"{inert(label, 40)} context ({context_tok:,} tokens)")
    return tuple(parts)


def _doubts(result: Result) -> tuple[DoubtView, ...]:
    """Return the doubts, one entry for each severity and code, fatal ones first."""
    labels = _cell_labels(result.cells)
    views: list[DoubtView] = []
    for severity in SEVERITIES:
        codes = dict.fromkeys(d.code for d in result.doubts if d.severity == severity)
        for code in codes:
            found = [d for d in result.doubts if d.severity == severity and d.code == code]
            views.append(_doubt(code, severity, found, labels))
    return tuple(views)


def _doubt(
    code: str, severity: Severity, found: Sequence[Doubt], labels: Mapping[str, str]
) -> DoubtView:
    """Return one entry: messages that are alike share a line that names their cells."""
    where: dict[str, list[str]] = {}
    for doubt in found:
        cells = where.setdefault(inert(doubt.message, MESSAGE_LIMIT), [])
        if doubt.cell is not None:
            cells.append(labels.get(doubt.cell, inert(doubt.cell)))
    told = advice(code)
    return DoubtView(
        inert(code, 60),
        severity,
        tuple((message, places(cells)) for message, cells in merged(where)),
        told.effect,
        told.action,
        tuple(_evidence(doubt.evidence) for doubt in found if doubt.evidence),
    )


def _cell_labels(cells: Sequence[CellResult]) -> dict[str, str]:
    """Return how each cell is called among the doubts, by its id."""
    lanes, links = {cell.lane for cell in cells}, {cell.link for cell in cells}
    contexts = {(cell.context_label, cell.context_tok) for cell in cells}
    alike = len({tok for _, tok in contexts}) < len(contexts)
    labels: dict[str, str] = {}
    for cell in cells:
        parts = [inert(cell.lane, 40)] if len(lanes) > 1 else []
        parts += [inert(cell.link or "no link", 40)] if len(links) > 1 else []
        # Kinds of content are told apart by their name, contexts by their length.
        place = inert(cell.context_label, 40) if alike else f"{cell.context_tok:,} tokens"
        parts += [place] if len(contexts) > 1 else []
        unit = "N" if cell.rate_rps is None else "req/s"
        parts.append(f"{unit} = {level_text(cell)}")
        labels[cell.cell] = " · ".join(parts)
    return labels


def _evidence(evidence: Mapping[str, Any]) -> str:
    """Return the evidence of a doubt as `name = value` pairs."""
    pairs = (f"{inert(name, 60)} = {inert(value, 80)}" for name, value in evidence.items())
    return inert(", ".join(pairs), MESSAGE_LIMIT)


def _machine(machine: Mapping[str, Any], prefix: str = "") -> tuple[FactView, ...]:
    """Return the facts of the client's machine; nested ones are named with dots."""
    facts: list[FactView] = []
    for name, value in machine.items():
        label = f"{prefix}{inert(name, 60)}"
        if isinstance(value, Mapping) and len(prefix) < 200:
            facts.extend(_machine(value, f"{label}."))
        else:
            facts.append(FactView(label, "unknown" if value is None else inert(value, 200)))
    return tuple(facts)

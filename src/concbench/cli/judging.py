"""From stored studies to verdicts: rows for `concbench.analyse`, and what was said before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from concbench.analyse.compare import Outcome, Party, compare
from concbench.analyse.doubts_record import record_doubts
from concbench.analyse.pairing import runs_of
from concbench.analyse.runvalues import BATCH, CellKey, RoundValues, round_values
from concbench.analyse.speculation import judge_speculation
from concbench.analyse.study import COMPANIONS
from concbench.analyse.told import with_told
from concbench.analyse.verdict import DELTA
from concbench.domain import Doubt, TargetFacts
from concbench.report.build import build_view
from concbench.result import CellResult, Result, VerdictResult
from concbench.store.read import StudyReader

COMPARING = frozenset({"ab", "spec"})
"""Commands whose studies are comparisons: their result carries verdicts."""

RAISED_BY_VERDICTS = ("drifted", "not_comparable")
_RANK = {"fatal": 0, "warning": 1, "note": 2}
Rejudge = Callable[[Collection[str]], Result]


def completed(
    result: Result, reader: StudyReader, gone: Mapping[str, str], rejudge: Rejudge | None
) -> Result:
    """Return a study's result with what its rounds alone do not say.

    Figures that another tool told, verdicts of a comparison, amendments, and for each correction
    the sentences that it took back. `rejudge` judges the study again without the rounds given;
    None where the past is being judged already.
    """
    told = reader.notes("imported")
    if told:
        result = with_told(result, told)
    if reader.record.command in COMPARING:
        layout = next(iter(reader.notes("ab")), {})
        spec = add_speculation(result, reader, gone) if layout.get("contents") else {}
        if not spec:
            parties = parties_of(reader, result, gone)
            add_outcome(result, compare(parties, accepted_of(reader), delta_of(reader)))
        result.verdicts = result.verdicts or undecided(layout)
        result.payload = {"ab": course_of(reader), **spec}
    if rejudge is not None:
        add_past(result, rejudge)
        result.corrections += amendments_of(reader)
    return result


def add_speculation(result: Result, reader: StudyReader, gone: Mapping[str, str]) -> dict[str, Any]:
    """Put the verdicts of speculation by content into a result; return its payload `spec`."""
    layout = next(iter(reader.notes("ab")), {})
    values = _values(reader)
    parties: dict[str, Sequence[Party]] = {}
    for content in layout.get("contents", ()):
        cells = [cell for cell in result.cells if cell.context_label == content]
        names = {cell.cell for cell in cells}
        part = msgspec.structs.replace(result, cells=cells)
        mine = [each for each in values if each.cell in names]
        parties[str(content)] = parties_of(reader, part, gone, values=mine)
    off, on = str(layout.get("a")), str(layout.get("b"))
    judged = judge_speculation(parties, accepted_of(reader), off, on, delta_of(reader))
    add_outcome(result, judged.outcome)
    return {"spec": msgspec.to_builtins(judged.speculation)}


def undecided(layout: Mapping[str, Any]) -> list[VerdictResult]:
    """Return a verdict for each cell of a comparison in which not even one pair was begun."""
    a, b = str(layout.get("a")), str(layout.get("b"))
    return [
        VerdictResult(
            metric=BATCH,
            better="higher",
            a=a,
            b=b,
            cell_a="",
            cell_b="",
            concurrency=level,
            context_tok=context,
            ratio=None,
            verdict="inconclusive",
            why="no pair is complete",
        )
        for context in layout.get("contexts", ())
        for level in layout.get("levels", ())
    ]


def course_of(reader: StudyReader) -> dict[str, Any]:
    """Return how a comparison went: `a`, `b`, `looks`, `order` of the completed runs (`ABBA…`),
    `pairs` complete, `ended_by`, and `crashes` with what each came to.
    """
    layout = next(iter(reader.notes("ab")), {})
    runs = runs_of(reader.notes("ab_run"))
    ends = reader.notes("ab_end")
    halves = [run.pair for run in runs if run.pair is not None]
    return {
        "a": layout.get("a"),
        "b": layout.get("b"),
        "looks": layout.get("looks"),
        "order": "".join(run.letter for run in runs),
        "pairs": sum(halves.count(pair) == 2 for pair in set(halves)),
        "ended_by": ends[-1].get("ended_by") if ends else None,
        "crashes": [
            {"cell": line.cell, "why": line.why} for line in reader.log if line.event == "failed"
        ],
    }


def add_outcome(result: Result, outcome: Outcome) -> None:
    """Put verdicts, crossovers and their doubts into a result."""
    result.verdicts = list(outcome.verdicts)
    result.crossovers = [dict(entry) for entry in outcome.crossovers]
    result.doubts = by_severity([*result.doubts, *outcome.doubts])


def by_severity(doubts: Sequence[Doubt]) -> list[Doubt]:
    """Return the doubts, fatal before warning before note."""
    return sorted(doubts, key=lambda one: _RANK[one.severity])


def doubts_of_record(reader: StudyReader) -> list[Doubt]:
    """Return the doubts about what of a study's record cannot be read."""
    return record_doubts(
        reader.unreadable,
        reader.lost,
        reader.damaged_lines,
        reader.unlogged,
        log_empty=not reader.log,
    )


def add_past(result: Result, rejudge: Rejudge) -> None:
    """Put into each retraction what was said before it, where that was something else."""
    now = said(result)
    before: list[str] = []
    for entry in result.corrections:
        round_id = entry.get("round")
        if round_id is None:
            continue
        old = said(rejudge(tuple(before)))
        before.append(str(round_id))
        entry["was"] = [sentence for sentence in old if sentence not in now]


def said(result: Result) -> tuple[str, ...]:
    """Return the sentences that a report makes of a result: its verdicts, else its answer."""
    view = build_view(result)
    return view.verdicts or (view.sentence,)


def amendments_of(reader: StudyReader) -> list[dict[str, Any]]:
    """Return the amendments of a study as entries of `corrections`, without a round."""
    return [
        {
            "round": None,
            "why": entry["why"],
            "by": None,
            "at_utc": entry["at_utc"],
            "supersedes": entry["supersedes"],
            "superseded_by": entry["superseded_by"],
            "folder": entry["folder"],
        }
        for entry in reader.amendments()
    ]


def accepted_of(reader: StudyReader) -> list[str]:
    """Return what the user accepted when the comparison was run."""
    options = reader.plan.get("options")
    found = reader.plan.get("accept") or (
        options.get("accept") if isinstance(options, dict) else None
    )
    return [str(name) for name in found] if isinstance(found, list) else []


def delta_of(reader: StudyReader) -> float:
    """Return the margin that was fixed before the comparison was run."""
    found = reader.plan.get("delta")
    return found if isinstance(found, float) and 0 < found <= 1 else DELTA


def gone_of(reader: StudyReader) -> dict[str, str]:
    """Return the retracted rounds, each with the reason."""
    return {
        str(entry["round"]): str(entry["why"] or "no reason given")
        for entry in reader.corrections()
    }


def parties_of(
    reader: StudyReader,
    result: Result,
    gone: Mapping[str, str],
    prefix: str = "",
    *,
    values: Sequence[RoundValues] | None = None,
) -> list[Party]:
    """Return the sides of a study: its lanes, each with its link where there are several.

    `prefix` is what `renamed` put before lanes and cells of the result. `values` are the rounds
    that count, all of the study where it is None.
    """
    rounds = _values(reader) if values is None else values
    # In the order in which they were measured: A is the lane that came first.
    sides = dict.fromkeys((each.lane, each.link) for each in rounds)
    sides |= dict.fromkeys((cell.lane.removeprefix(prefix), cell.link) for cell in result.cells)
    several_links = len({link for _, link in sides}) > 1
    starts = [str(note.get("lane")) for note in reader.notes("start")]
    extras = {str(note.get("lane")): note for note in reader.notes("lane_facts")}
    layout = next(iter(reader.notes("ab")), {})
    found: list[Party] = []
    for lane, link in sorted(sides, key=lambda side: side[0] != layout.get("a", side[0])):
        facts = reader.targets().get(lane)
        name = f"{prefix}{lane}" + (f" · {link or 'no link'}" if several_links else "")
        cells = _cells(result, f"{prefix}{lane}", link)
        if not cells:
            continue
        found.append(
            Party(
                name=name,
                study=reader.record.study,
                facts=facts or TargetFacts(lane=lane, engine="openai", base_url="unknown"),
                rounds=[each for each in rounds if (each.lane, each.link) == (lane, link)],
                cells=cells,
                extra=extras.get(lane, {}).get("extra", {}),
                flags=extras.get(lane, {}).get("flags", {}),
                fatal=_fatal(result.doubts, of_verdicts=reader.record.command in COMPARING),
                gone=dict(gone),
                starts=max(1, starts.count(lane)),
                runs=runs_of(reader.notes("ab_run")),
                looks=_looks(layout.get("looks")),
            )
        )
    return found


def _looks(found: object) -> tuple[int, ...] | None:
    """Return the planned looks on record, or None where the comparison was looked at once."""
    if not isinstance(found, list):
        return None
    return tuple(pairs for pairs in found if isinstance(pairs, int) and pairs > 0) or None


def _values(reader: StudyReader) -> list[RoundValues]:
    """Return the values of the measured rounds, retracted ones included, in order of time."""
    template = {str(note["lane"]): note["template_tok"] for note in reader.notes("lane")}
    targets = reader.targets()
    found: list[RoundValues] = []
    for place, info in enumerate(reader.rounds()):
        if info.phase != "measured" or info.interrupted:
            continue
        if info.cell.context_label in COMPANIONS:
            continue
        lane = info.cell.lane
        round_ = reader.load_round(info.round_id)
        found.append(
            round_values(round_, place, targets.get(lane), template_tok=template.get(lane, 0))
        )

    return found


def _cells(result: Result, lane: str, link: str | None) -> dict[CellKey, CellResult]:
    return {
        (cell.context_tok, cell.concurrency, cell.rate_rps): cell
        for cell in result.cells
        if (cell.lane, cell.link) == (lane, link)
    }


def _fatal(doubts: Sequence[Doubt], *, of_verdicts: bool) -> dict[str, list[str]]:
    """Return the codes of fatal doubts by cell, "" for those of the whole study.

    `of_verdicts`: its own verdicts raised some, which are judged anew and no reason for anything.
    """
    found: dict[str, list[str]] = {}
    for one in doubts:
        if one.severity == "fatal" and not (of_verdicts and one.code in RAISED_BY_VERDICTS):
            found.setdefault(one.cell or "", []).append(one.code)
    return found


def renamed(result: Result, prefix: str) -> Result:
    """Return the result with a prefix on its lanes and cells, so that two studies can be one."""
    if not prefix:
        return result
    for cell in result.cells:
        cell.cell, cell.lane = f"{prefix}{cell.cell}", f"{prefix}{cell.lane}"
    result.doubts = [
        msgspec.structs.replace(one, cell=f"{prefix}{one.cell}") if one.cell else one
        for one in result.doubts
    ]
    result.lanes = {f"{prefix}{lane}": known for lane, known in result.lanes.items()}
    result.targets = {
        f"{prefix}{lane}": msgspec.structs.replace(facts, lane=f"{prefix}{lane}")
        for lane, facts in result.targets.items()
    }
    return result

"""Verdicts as sentences: who is faster where, by how much, and what stands in the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from concbench.report.inert import inert
from concbench.report.numbers import percent, ratio_estimate
from concbench.result import VerdictResult

METRICS = {
    "steady_output_tok_per_s": "steady tok/s",
    "output_tok_per_s": "batch tok/s",
    "server_output_tok_per_s": "the server's own tok/s",
    "per_request_tok_per_s": "per-request tok/s",
    "decode_tok_per_s": "decode tok/s",
    "prefill_tok_per_s": "prefill tok/s",
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "itl_ms": "ITL",
    "e2e_ms": "E2E",
}
SUFFIXES = {"worst_quarter": "worst quarter"}
_NAME_LIMIT = 40
WHY_LIMIT = 400
"""Characters of a reason: those of the program itself are never longer."""
_ORDER = (
    "b_faster",
    "equivalent",
    "a_faster",
    "inconclusive",
    "drifted",
    "not_comparable",
    "invalid",
)
NO_VERDICT = ("drifted", "not_comparable", "invalid")
Group = tuple[str, str, str, int]
Level = Callable[[VerdictResult], int]


def verdict_sentences(
    verdicts: Sequence[VerdictResult], crossovers: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return one sentence for each metric, pair of lanes and context.

    The steady rate comes first and the others in the order of `METRICS`, but metrics without any
    verdict last: the first sentence is the headline. Ratios are b / a throughout, so that a factor
    below 1 in a rate means that b is slower.
    """
    groups: dict[Group, list[VerdictResult]] = {}
    for row in verdicts:
        groups.setdefault((row.metric, row.a, row.b, row.context_tok), []).append(row)
    groups = {
        key: rows for key, rows in groups.items() if not _told_by_points(key, rows, crossovers)
    }
    groups = dict(sorted(groups.items(), key=_headline_first(groups)))
    contexts = {key[3] for key in groups}
    told: list[str] = []
    for rows in _joined(groups):
        if len({row.context_tok for row in rows}) > 1:
            told.append(_by_context(rows))
        else:
            told.append(_sentence(rows, crossovers, with_context=len(contexts) > 1))
    judged = {key[0] for key in groups}
    told += [_ranges(entry) for entry in crossovers if _tells_alone(entry, judged)]
    return tuple(told)


def _headline_first(
    groups: Mapping[Group, Sequence[VerdictResult]],
) -> Callable[[tuple[Group, object]], tuple[bool, int]]:
    """Return the key that sorts groups by their metric."""
    told = {
        key[0] for key, rows in groups.items() if any(r.verdict not in NO_VERDICT for r in rows)
    }
    places = {name: place for place, name in enumerate(METRICS)}

    def key_of(item: tuple[Group, object]) -> tuple[bool, int]:
        metric = item[0][0]
        base = metric.partition(".")[0]
        place = places.get(base, places.get(base.rpartition("_")[0], len(places)))
        return metric not in told, place

    return key_of


def _told_by_points(
    key: Group, rows: Sequence[VerdictResult], crossovers: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether rows are single readings without an interval that a crossover sums up."""
    single = all(
        row.verdict == "inconclusive" and row.n_pairs == 0 and row.ratio and row.ratio.low is None
        for row in rows
    )
    return single and any(
        entry.get("metric") == key[0]
        and {key[1], key[2]} <= set(entry.get("lanes") or ())
        and entry.get("basis") == "points"
        for entry in crossovers
    )


def metric_label(metric: str) -> str:
    """Return how a metric is called in a sentence; percentiles keep their suffix."""
    base, _, tail = metric.rpartition("_")
    if tail in ("p50", "p90", "p95", "p99") and base:
        return f"{METRICS.get(base, inert(base, _NAME_LIMIT))} {tail}"
    name, _, suffix = metric.partition(".")
    label = METRICS.get(name, inert(name, _NAME_LIMIT))
    return f"{label} {inert(SUFFIXES.get(suffix, suffix), _NAME_LIMIT)}" if suffix else label


def _joined(groups: Mapping[Group, Sequence[VerdictResult]]) -> list[list[VerdictResult]]:
    """Return the groups, those over several contexts at one and the same level joined into one."""
    together: dict[tuple[str, str, str], list[VerdictResult]] = {}
    for key, rows in groups.items():
        together.setdefault(key[:3], []).extend(rows)
    found: list[list[VerdictResult]] = []
    for rows in together.values():
        contexts = dict.fromkeys(row.context_tok for row in rows)
        if len({row.concurrency for row in rows}) == 1:
            found.append(rows)
        else:
            found += [[row for row in rows if row.context_tok == one] for one in contexts]
    return found


def _by_context(rows: Sequence[VerdictResult]) -> str:
    """Return the sentence on one level over several contexts."""
    ordered = sorted(rows, key=lambda row: row.context_tok)
    clauses = _all_clauses(ordered, lambda row: row.context_tok, "context ")
    first = ordered[0]
    said = f"{metric_label(first.metric)} at N = {first.concurrency}: {', '.join(clauses)}."
    return said + _qualifiers(ordered)


def _all_clauses(rows: Sequence[VerdictResult], level: Level, prefix: str) -> list[str]:
    """Return the clauses of all verdicts; a sentence's first names the lanes and the axis."""
    levels = [level(row) for row in rows]
    clauses: list[str] = []
    for verdict in _ORDER:
        found = [row for row in rows if row.verdict == verdict]
        clauses += _clauses(verdict, found, levels, level, "" if clauses else prefix)
    return clauses


def _sentence(
    rows: Sequence[VerdictResult], crossovers: Sequence[Mapping[str, Any]], *, with_context: bool
) -> str:
    """Return the sentence on one group: clauses by verdict, then what qualifies them."""
    ordered = sorted(rows, key=lambda row: row.concurrency)
    first = ordered[0]
    clauses = _all_clauses(ordered, lambda row: row.concurrency, "N = ")
    subject = f"{metric_label(first.metric)}: "
    subject += f"at {first.context_tok:,} tokens of context " if with_context else ""
    bracket = _bracket(first, crossovers, with_context=with_context)
    return f"{subject}{', '.join(clauses)}{bracket}." + _qualifiers(ordered)


def _clauses(
    verdict: str, rows: Sequence[VerdictResult], levels: Sequence[int], level: Level, prefix: str
) -> list[str]:
    """Return the clauses on the levels of one verdict.

    `prefix` is what the levels are of (`N = `), said in a sentence's first clause alone, which
    also names the lanes.
    """
    if not rows:
        return []
    a, b = inert(rows[0].a, _NAME_LIMIT), inert(rows[0].b, _NAME_LIMIT)
    named = bool(prefix)
    where = _where([level(row) for row in rows], levels, prefix)
    ratios = _ratios(rows, level)
    if verdict in ("b_faster", "a_faster"):
        word = "faster" if verdict == "b_faster" else "slower"
        lead = f"{b} is {word} than {a} " if named else f"{word} "
        return [f"{lead}{where} ({ratios})"]
    if verdict == "equivalent":
        lead = (
            f"{b} and {a} are equal within ±{percent(100 * rows[0].delta)} " if named else "a tie "
        )
        return [f"{lead}{where}" if named else f"{lead}{where} ({ratios})"]
    lead = f"{b} against {a}: " if named else ""
    if verdict == "inconclusive":
        return [f"{lead}undecided {where} ({ratios}{_pairs(rows)})"]
    said = [f"no verdict at {prefix}{level(row):,}: {_obstacle(row)}" for row in rows[:1]]
    said += [f"no verdict at {level(row):,}: {_obstacle(row)}" for row in rows[1:]]
    return [lead + said[0], *said[1:]]


def _where(found: Sequence[int], levels: Sequence[int], prefix: str) -> str:
    """Return `from N = 4`, `up to N = 4` or `at N = 2, 8`; the prefix only where first said."""
    texts = [f"{one:,}" for one in found]
    if len(found) == len(levels) and len(levels) > 1:
        every = "context" if prefix.startswith("context") else "N"
        return f"at every {every} ({', '.join(texts)})"
    if len(found) > 1 and list(found) == list(levels[-len(found) :]):
        return f"from {prefix}{texts[0]}"
    if len(found) > 1 and list(found) == list(levels[: len(found)]):
        return f"up to {prefix}{texts[-1]}"
    return f"at {prefix}{', '.join(texts)}"


def _ratios(rows: Sequence[VerdictResult], level: Level) -> str:
    """Return the ratios of some levels: `1.92 × [1.88, 1.96] at 4, …`; one alone needs no level."""
    said: list[str] = []
    for row in rows:
        if row.ratio is None:
            continue
        text = ratio_estimate(row.ratio)
        text += f" at {level(row):,}" if len(rows) > 1 else ""
        said.append(text + _size(row))
    return ", ".join(said) or "no ratio"


def _size(row: VerdictResult) -> str:
    """Return what is to be said of a difference that is real, and small or not surely large."""
    if row.verdict not in ("a_faster", "b_faster") or row.beyond_delta or row.ratio is None:
        return ""
    inside = 1 / (1 + row.delta) < row.ratio.point < 1 + row.delta
    return f", {'under' if inside else 'not surely over'} {percent(100 * row.delta)}"


def _pairs(rows: Sequence[VerdictResult]) -> str:
    """Return how many pairs would settle what is undecided."""
    needed = [row.pairs_needed for row in rows if row.pairs_needed is not None]
    return f"; about {max(needed):,} pairs would settle it" if needed else ""


def _obstacle(row: VerdictResult) -> str:
    """Return why there is no verdict."""
    if row.verdict == "drifted":
        drift = "" if row.drift_pct is None else f" by {percent(row.drift_pct, signed=True)}"
        return f"the control drifted{drift}"
    if row.verdict == "not_comparable":
        unlike = [name for name in row.unlike if name not in row.accepted]
        names = ", ".join(inert(name, _NAME_LIMIT) for name in unlike)
        return f"not comparable ({names or inert(row.why or 'no reason given', WHY_LIMIT)})"
    return inert(row.why, WHY_LIMIT) if row.why else "the measurement is not valid"


def _bracket(
    row: VerdictResult, crossovers: Sequence[Mapping[str, Any]], *, with_context: bool
) -> str:
    """Return `; crossover in (1, 4)` where one is known for these two over concurrency."""
    if with_context:
        return ""
    for entry in crossovers:
        bounds, lanes = entry.get("bracket"), entry.get("lanes")
        if entry.get("metric") != row.metric or entry.get("axis") != "concurrency":
            continue
        if lanes is not None and set(lanes) != {row.a, row.b}:
            continue
        if bounds:
            return f"; crossover in ({bounds[0]}, {bounds[1]})"
        return f"; {inert(entry['note'], _NAME_LIMIT)}" if entry.get("note") else ""
    return ""


def _qualifiers(rows: Sequence[VerdictResult]) -> str:
    """Return the short sentences that follow: unlike, provisional, corrected, own error."""
    unlike = dict.fromkeys(name for row in rows for name in row.unlike)
    accepted = {name for row in rows for name in row.accepted}
    names = ", ".join(
        inert(name, _NAME_LIMIT) + (" (accepted)" if name in accepted else "") for name in unlike
    )
    said = f" Unlike: {names}." if names else ""
    if any(row.provisional for row in rows if row.verdict not in NO_VERDICT):
        said += " Provisional: one start of a server."
    if any(row.adjusted == "holm" for row in rows):
        said += " Adjusted for several levels (Holm)."
    fixes = dict.fromkeys(inert(row.corrected, WHY_LIMIT) for row in rows if row.corrected)
    return said + "".join(f" Corrected: {text}." for text in fixes)


def _tells_alone(entry: Mapping[str, Any], judged: set[str]) -> bool:
    """Return whether a crossover says something that no verdict's sentence says."""
    more = len(entry.get("lanes") or ()) > 2 or entry.get("basis") == "points"
    alone = entry.get("axis") != "concurrency" or entry.get("metric") not in judged or more
    return alone and bool(entry.get("ranges"))


def _ranges(entry: Mapping[str, Any]) -> str:
    """Return a crossover's ranges: `steady tok/s by context: gguf 512–4096, tie 8192`."""
    said = []
    for part in entry["ranges"]:
        low, high = part.get("from"), part.get("to")
        where = f"{low}" if low == high else f"{low}–{high}"
        winner = inert(part.get("winner"), _NAME_LIMIT)
        near = part.get("within") or ()
        if len(near) and len(entry.get("lanes") or ()) > 2:
            winner += f" ({', '.join(inert(name, _NAME_LIMIT) for name in near)} within noise)"
        said.append(f"{winner} at {where}")
    axis = inert(entry.get("axis"), _NAME_LIMIT)
    text = f"{metric_label(str(entry.get('metric')))} by {axis}"
    if entry.get("concurrency") is not None:
        text += f" at N = {entry['concurrency']}"
    return f"{text}: {', '.join(said)}{_crossing(entry)}."


def _crossing(entry: Mapping[str, Any]) -> str:
    """Return where the winner changes, and what the ranges rest on where no interval did."""
    bounds, said = entry.get("bracket"), ""
    if bounds:
        said = f"; crossover in ({bounds[0]}, {bounds[1]})"
    if entry.get("note"):
        said = f"; {inert(entry['note'], _NAME_LIMIT)}"
    if entry.get("basis") == "points":
        said += "; by single readings, beyond ±3 % and without intervals"
    return said

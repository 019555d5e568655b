"""Verdicts as sentences: who is faster where, by how much, and what stands in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concbench.report.inert import inert
from concbench.report.numbers import percent, ratio_estimate
from concbench.result import VerdictResult

METRICS = {
    "steady_output_tok_per_s": "steady tok/s",
    "output_tok_per_s": "batch tok/s",
    "per_request_tok_per_s": "per-request tok/s",
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "itl_ms": "ITL",
    "e2e_ms": "E2E",
}
_NAME_LIMIT = 40
_ORDER = (
    "b_faster",
    "equivalent",
    "a_faster",
    "inconclusive",
    "drifted",
    "not_comparable",
    "invalid",
)
Group = tuple[str, str, str, int]


def verdict_sentences(
    verdicts: Sequence[VerdictResult], crossovers: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return one sentence for each metric, pair of lanes and context, in order of appearance.

    Ratios are b / a throughout, so that a factor below 1 in a rate means that b is slower.
    """
    groups: dict[Group, list[VerdictResult]] = {}
    for row in verdicts:
        groups.setdefault((row.metric, row.a, row.b, row.context_tok), []).append(row)
    contexts = {key[3] for key in groups}
    told = [_sentence(rows, crossovers, with_context=len(contexts) > 1) for rows in groups.values()]
    judged = {key[0] for key in groups}
    told += [_ranges(entry) for entry in crossovers if _tells_alone(entry, judged)]
    return tuple(told)


def metric_label(metric: str) -> str:
    """Return how a metric is called in a sentence; percentiles keep their suffix."""
    base, _, tail = metric.rpartition("_")
    if tail in ("p50", "p90", "p95", "p99") and base:
        return f"{METRICS.get(base, inert(base, _NAME_LIMIT))} {tail}"
    name, _, suffix = metric.partition(".")
    label = METRICS.get(name, inert(name, _NAME_LIMIT))
    return f"{label} {inert(suffix, _NAME_LIMIT)}" if suffix else label


def _sentence(
    rows: Sequence[VerdictResult], crossovers: Sequence[Mapping[str, Any]], *, with_context: bool
) -> str:
    """Return the sentence on one group: clauses by verdict, then what qualifies them."""
    ordered = sorted(rows, key=lambda row: row.concurrency)
    first = ordered[0]
    levels = [row.concurrency for row in ordered]
    clauses: list[str] = []
    for verdict in _ORDER:
        found = [row for row in ordered if row.verdict == verdict]
        clauses += _clauses(verdict, found, levels, named=not clauses)
    subject = f"{metric_label(first.metric)}: "
    subject += f"at {first.context_tok:,} tokens of context " if with_context else ""
    bracket = _bracket(first.metric, crossovers, with_context=with_context)
    return f"{subject}{', '.join(clauses)}{bracket}." + _qualifiers(ordered)


def _clauses(
    verdict: str, rows: Sequence[VerdictResult], levels: Sequence[int], *, named: bool
) -> list[str]:
    """Return the clauses on the levels of one verdict; a sentence's first names the lanes."""
    if not rows:
        return []
    a, b = inert(rows[0].a, _NAME_LIMIT), inert(rows[0].b, _NAME_LIMIT)
    where = _where([row.concurrency for row in rows], levels, named=named)
    if verdict in ("b_faster", "a_faster"):
        word = "faster" if verdict == "b_faster" else "slower"
        lead = f"{b} is {word} than {a} " if named else f"{word} "
        return [f"{lead}{where} ({_ratios(rows)})"]
    if verdict == "equivalent":
        lead = (
            f"{b} and {a} are equal within ±{percent(100 * rows[0].delta)} " if named else "a tie "
        )
        return [f"{lead}{where}" if named else f"{lead}{where} ({_ratios(rows)})"]
    lead = f"{b} against {a}: " if named else ""
    if verdict == "inconclusive":
        return [f"{lead}undecided {where} ({_ratios(rows)}{_pairs(rows)})"]
    said = [
        f"no verdict at {'N = ' if named else ''}{row.concurrency}: {_obstacle(row)}"
        for row in rows
    ]
    return [lead + said[0], *said[1:]]


def _where(found: Sequence[int], levels: Sequence[int], *, named: bool) -> str:
    """Return `from N = 4`, `up to N = 4` or `at N = 2, 8`; `N =` only where it is first said."""
    prefix = "N = " if named else ""
    if len(found) == len(levels) and len(levels) > 1:
        return f"at every N ({', '.join(map(str, found))})"
    if len(found) > 1 and list(found) == list(levels[-len(found) :]):
        return f"from {prefix}{found[0]}"
    if len(found) > 1 and list(found) == list(levels[: len(found)]):
        return f"up to {prefix}{found[-1]}"
    return f"at {prefix}{', '.join(map(str, found))}"


def _ratios(rows: Sequence[VerdictResult]) -> str:
    """Return the ratios of some levels: `1.92 × [1.88, 1.96] at 4, …`; one alone needs no level."""
    said: list[str] = []
    for row in rows:
        if row.ratio is None:
            continue
        text = ratio_estimate(row.ratio)
        text += f" at {row.concurrency}" if len(rows) > 1 else ""
        small = row.verdict in ("a_faster", "b_faster") and not row.beyond_delta
        said.append(text + (f", under {percent(100 * row.delta)}" if small else ""))
    return ", ".join(said) or "no ratio"


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
        return f"not comparable ({names or inert(row.why or 'no reason given')})"
    return inert(row.why) if row.why else "the measurement is not valid"


def _bracket(metric: str, crossovers: Sequence[Mapping[str, Any]], *, with_context: bool) -> str:
    """Return `; crossover in (1, 4)` where one is known for this metric over concurrency."""
    if with_context:
        return ""
    for entry in crossovers:
        bounds = entry.get("bracket")
        if entry.get("metric") == metric and entry.get("axis") == "concurrency" and bounds:
            return f"; crossover in ({bounds[0]}, {bounds[1]})"
    return ""


def _qualifiers(rows: Sequence[VerdictResult]) -> str:
    """Return the short sentences that follow: unlike, provisional, corrected, own error."""
    unlike = dict.fromkeys(name for row in rows for name in row.unlike)
    accepted = {name for row in rows for name in row.accepted}
    names = ", ".join(
        inert(name, _NAME_LIMIT) + (" (accepted)" if name in accepted else "") for name in unlike
    )
    said = f" Unlike: {names}." if names else ""
    if any(row.provisional for row in rows):
        said += " Provisional: one start of a server."
    if any(row.adjusted == "holm" for row in rows):
        said += " Adjusted for several levels (Holm)."
    fixes = dict.fromkeys(inert(row.corrected) for row in rows if row.corrected)
    return said + "".join(f" Corrected: {text}." for text in fixes)


def _tells_alone(entry: Mapping[str, Any], judged: set[str]) -> bool:
    """Return whether a crossover says something that no verdict's sentence says."""
    alone = entry.get("axis") != "concurrency" or entry.get("metric") not in judged
    return alone and bool(entry.get("ranges"))


def _ranges(entry: Mapping[str, Any]) -> str:
    """Return a crossover's ranges: `steady tok/s by context: gguf 512–4096, tie 8192`."""
    said = []
    for part in entry["ranges"]:
        low, high = part.get("from"), part.get("to")
        where = f"{low}" if low == high else f"{low}–{high}"
        said.append(f"{inert(part.get('winner'), _NAME_LIMIT)} at {where}")
    axis = inert(entry.get("axis"), _NAME_LIMIT)
    return f"{metric_label(str(entry.get('metric')))} by {axis}: {', '.join(said)}."

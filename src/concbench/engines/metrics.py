"""Reading a metrics page: samples, canonical quantities, histograms over a window.

A page that `prometheus_client` accepts is read by it. One that it refuses (a garbage line, a
page cut in the middle, exemplars) is read line by line, and what can be kept is kept. Absent is
None and never 0: a renamed counter must not look like an idle server.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from concbench.engines.reading import json_value, number
from concbench.engines.spec import Metric

# Above this a line is no metric: the library's label parser copies the rest of the line at every
# label, which is quadratic.
_LINE_LIMIT = 20_000
_HEAD = re.compile(r"\s*([A-Za-z_:][\w:.]*)\s*(\{)?")
_LABEL = re.compile(r'\s*([A-Za-z_][\w.]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|(?=\}))')
_CLOSING = re.compile(r"\s*\}")
_VALUE = re.compile(r"\s*(\S+)")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", '"': '"', "\\": "\\"}
# Tensor- and pipeline-parallel ranks of one engine repeat the same numbers.
_RANK_LABELS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "moe_dp_rank", "pid"})

AT_END = "_at_end"
"""Suffix of the counter that only moves when a request ends, beside a live one of that name."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a metrics page; `value` is None where the page says NaN."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative buckets (upper edge, count) in ascending order, with total and sum."""

    buckets: tuple[tuple[float, float], ...]
    count: float
    total: float | None


def read_page(text: str) -> list[Sample]:
    """Return the samples of a page; of several with equal name and labels the last. Never raises.

    A JSON page (TensorRT-LLM's iteration statistics, of which the newest counts) gives one sample
    a number, named by its path: `kvCacheStats.usedNumBlocks`.
    """
    if text.lstrip()[:1] in ("[", "{"):
        return list(_json_samples(json_value(text)))
    lines = [
        line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")
    ]
    samples = _by_library(lines)
    if samples is None:
        samples = [sample for line in lines if (sample := _read_line(line))]
    unique = {(s.name, tuple(sorted(s.labels.items()))): s for s in samples}
    return list(unique.values())


def _by_library(lines: Sequence[str]) -> list[Sample] | None:
    """Return the samples of a sound page, None for one that the library refuses or misreads.

    It is given no TYPE comments, since it renames counters whose names lack `_total`, and no
    exemplars, which it takes for timestamps.
    """
    if any(len(line) > _LINE_LIMIT or " # " in line for line in lines):
        return None
    try:
        return [
            Sample(sample.name, dict(sample.labels), _known(float(sample.value)))
            for family in text_string_to_metric_families("\n".join(lines) + "\n")
            for sample in family.samples
        ]
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _read_line(line: str) -> Sample | None:
    """Return the sample of one line, None for comments and for what is no sample."""
    head = _HEAD.match(line)
    if head is None:
        return None
    labels: dict[str, str] = {}
    position = head.end()
    if head.group(2):
        while match := _LABEL.match(line, position):
            labels[match.group(1)] = _ESCAPE.sub(_unescape, match.group(2))
            position = match.end()
        closing = _CLOSING.match(line, position)
        if closing is None:
            return None
        position = closing.end()
    value = _VALUE.match(line, position)
    if value is None:
        return None
    try:
        return Sample(head.group(1), labels, _known(float(value.group(1))))
    except ValueError:
        return None


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPED.get(match.group(1), match.group(0))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _json_samples(value: object, path: str = "") -> Iterable[Sample]:
    if isinstance(value, list):
        if value:
            yield from _json_samples(value[-1], path)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _json_samples(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and path:
        yield Sample(path, {}, number(value))


def chosen(samples: Sequence[Sample], metric: Metric) -> list[Sample]:
    """Return the samples of the metric's first alias that the page has."""
    for alias in metric.aliases:
        found = [s for s in samples if s.name == alias and _carries(s.labels, metric.labels)]
        if found:
            return found
    return []


def _carries(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key, "") in value.split("|") for key, value in wanted.items())


def pick(samples: Sequence[Sample], metric: Metric) -> float | None:
    """Return the quantity, combined over engines and replicas; None where the page lacks it.

    NaN and the infinities (a mean before there was anything to take it of) count as lacking.
    Ranks of one engine repeat each other, so of samples that differ in nothing but their rank
    only the largest counts. A label value `a|b` accepts either, and `a|` also a sample that lacks
    the label.
    """
    engines: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in chosen(samples, metric):
        if sample.value is None or math.isinf(sample.value):
            continue
        key = tuple(sorted(i for i in sample.labels.items() if i[0] not in _RANK_LABELS))
        engines[key] = max(sample.value, engines.get(key, sample.value))
    if not engines:
        return None
    values = list(engines.values())
    combined = {"sum": sum(values), "max": max(values), "min": min(values), "first": values[0]}[
        metric.combine
    ]
    return combined * metric.scale


def live(metrics: Mapping[str, Metric], name: str, samples: Sequence[Sample]) -> Metric | None:
    """Return the metric that serves `name` on this page: the live one, else the one at the end."""
    for candidate in (name, name + AT_END):
        metric = metrics.get(candidate)
        if metric is not None and chosen(samples, metric):
            return metric
    return None


def by_label(samples: Sequence[Sample], metric: Metric, label: str) -> dict[str, float]:
    """Return the quantity for each value of one label, such as `position` or `finished_reason`."""
    values: dict[str, float] = {}
    for sample in chosen(samples, metric):
        if sample.value is not None and label in sample.labels:
            key = sample.labels[label]
            values[key] = values.get(key, 0.0) + sample.value * metric.scale
    return values


def info(samples: Sequence[Sample], metric: Metric) -> list[Mapping[str, str]]:
    """Return the labels of an info metric, one mapping an engine."""
    return [sample.labels for sample in chosen(samples, metric)]


def histogram(samples: Sequence[Sample], metric: Metric) -> Histogram | None:
    """Return a histogram summed over engines; the aliases are base names, without `_bucket`.

    None where the page has no such buckets.
    """
    for base in metric.aliases:
        edges: dict[float, float] = {}
        for sample in samples:
            if sample.name == f"{base}_bucket" and sample.value is not None:
                edge = _edge(sample.labels.get("le", ""))
                if edge is not None and _carries(sample.labels, metric.labels):
                    edges[edge] = edges.get(edge, 0.0) + sample.value
        # An infinite count is none, and so is a histogram that lacks one.
        if not all(map(math.isfinite, edges.values())):
            return None
        if edges:
            buckets = tuple(sorted(edges.items()))
            part = Metric((f"{base}_sum",), labels=metric.labels)
            return Histogram(buckets, buckets[-1][1], pick(samples, part))
    return None


def _edge(text: str) -> float | None:
    try:
        edge = float(text)
    except ValueError:
        return None
    return None if math.isnan(edge) else edge


def over_window(before: Histogram | None, after: Histogram | None) -> Histogram | None:
    """Return what was observed between two readings; None after a restart or new buckets."""
    if after is None:
        return None
    if before is None:
        return after
    if [edge for edge, _ in before.buckets] != [edge for edge, _ in after.buckets]:
        return None
    counts = [
        late - early for (_, early), (_, late) in zip(before.buckets, after.buckets, strict=True)
    ]
    if any(count < 0 for count in counts):
        return None
    total = None if before.total is None or after.total is None else after.total - before.total
    edges = [edge for edge, _ in after.buckets]
    return Histogram(tuple(zip(edges, counts, strict=True)), counts[-1], total)


def quantile(observed: Histogram, q: float, scale: float = 1.0) -> float | dict[str, float] | None:
    """Return a quantile, linear inside its bucket; None without observations.

    In the first bucket `{"le": edge}`, in the last `{"gt": edge}`: no interpolation where one
    side is open.
    """
    if observed.count <= 0:
        return None
    rank = q * observed.count
    below_edge, below = None, 0.0
    for edge, cumulative in observed.buckets:
        if cumulative >= rank and cumulative > below:
            if math.isinf(edge):
                return None if below_edge is None else {"gt": below_edge * scale}
            if below_edge is None:
                return {"le": edge * scale}
            inside = (rank - below) / (cumulative - below)
            return (below_edge + (edge - below_edge) * inside) * scale
        below_edge, below = edge, cumulative
    return None


def summary_ms(observed: Histogram | None) -> dict[str, float | dict[str, float] | None] | None:
    """Return `mean`, `p50` and `p95` in ms of a histogram in seconds; None without observations."""
    if observed is None or observed.count <= 0:
        return None
    mean = None if observed.total is None else observed.total / observed.count * 1e3
    return {"mean": mean, "p50": quantile(observed, 0.5, 1e3), "p95": quantile(observed, 0.95, 1e3)}


def cache_reuse(
    samples: Sequence[Sample], metrics: Mapping[str, Metric]
) -> tuple[float, float] | None:
    """Return prompt tokens looked up and prompt tokens found in the cache, both since the start.

    Engines count differently: vLLM has a pair of counters, SGLang's prompt tokens include the
    cached ones, llama.cpp's leave them out.
    """

    def value(name: str) -> float | None:
        return pick(samples, metrics[name]) if name in metrics else None

    looked_up, found = value("prefix_queries_tok"), value("prefix_hits_tok")
    if looked_up is not None and found is not None:
        return looked_up, found
    computed, cached = value("prompt_computed_tok"), value("cached_tok")
    if computed is not None and cached is not None:
        return computed + cached, cached
    prompt = value("prompt_tok")
    cached = value("cached_tok" + AT_END) if cached is None else cached
    return None if prompt is None or cached is None else (prompt, cached)

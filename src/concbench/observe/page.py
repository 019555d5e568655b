"""A metrics page as rows: canonical names, counters told apart by when they move.

Only the lines that some canonical name needs are parsed: a page holds ten times as many. Counters
keep the value that the page shows; what they grew by is judged in `analyse`. `generated_tok` is
only ever a counter that moves at every step; one that moves when a request ends is called
`generated_tok_at_end`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from concbench.domain import ServerSample
from concbench.engines.metrics import AT_END, Sample, by_label, chosen, histogram, pick, read_page
from concbench.engines.spec import EngineSpec, Metric

GENERATED: Final = "generated_tok"
PER_POSITION: Final = "spec_accepted_per_pos"
HISTOGRAMS: Final = ("queue_s", "ttft_s")
_NOT_SCALAR = frozenset({"kv_config", PER_POSITION})
_STARTED = "process_start_time_seconds"


@dataclass(frozen=True, slots=True)
class Page:
    """One page, read. `identity` tells one life of a server from another; empty where unsaid.

    `scalars` are by canonical name, `positions` the accepted tokens by draft position, `buckets`
    maps a histogram's name to its rows (suffix, label, value).
    """

    scalars: dict[str, float]
    positions: dict[str, float]
    buckets: dict[str, tuple[tuple[str, str, float], ...]]
    identity: tuple[float, ...]


class PageReader:
    """Reads the pages of one engine."""

    def __init__(self, spec: EngineSpec, only: Sequence[str] | None = None) -> None:
        """`only` restricts to these canonical names (and their `…_at_end`)."""
        self._metrics = {
            name: metric
            for name, metric in spec.metrics.items()
            if _wanted(name) and (only is None or name.removesuffix(AT_END) in only)
        }
        self._created = _created(self._metrics)
        self._pattern = _lines_of(self._metrics.values())

    def read(self, body: bytes) -> Page:
        """Return what the page says; a page that says nothing known is empty. Never raises."""
        if body.lstrip()[:1] not in (b"[", b"{"):
            body = b"\n".join(self._pattern.findall(body)) + b"\n"
        samples = read_page(body.decode("utf-8", "replace"))
        if not samples:
            return Page({}, {}, {}, ())
        return Page(
            dict(self._scalars(samples)),
            by_label(samples, self._metrics[PER_POSITION], "position")
            if PER_POSITION in self._metrics
            else {},
            {name: rows for name in HISTOGRAMS if (rows := self._buckets(name, samples))},
            self._identity(samples),
        )

    def _scalars(self, samples: Sequence[Sample]) -> Iterator[tuple[str, float]]:
        for name, metric in self._metrics.items():
            if name in _NOT_SCALAR or name in HISTOGRAMS:
                continue
            value = pick(samples, metric)
            if value is None:
                continue
            base = name.removesuffix(AT_END)
            if base == GENERATED:
                yield (GENERATED if metric.moves == "step" else GENERATED + AT_END), value
            elif name == base or not chosen(samples, self._metrics.get(base, _NOTHING)):
                yield base, value

    def _buckets(self, name: str, samples: Sequence[Sample]) -> tuple[tuple[str, str, float], ...]:
        found = histogram(samples, self._metrics[name]) if name in self._metrics else None
        if found is None:
            return ()
        rows = [("_bucket", f"le={edge:g}", count) for edge, count in found.buckets]
        rows.append(("_count", "", found.count))
        if found.total is not None:
            rows.append(("_sum", "", found.total))
        return tuple(rows)

    def _identity(self, samples: Sequence[Sample]) -> tuple[float, ...]:
        # Of the `_created` stamps of several ranks the whole set: one rank's restart changes it.
        found = {
            (sample.name, sample.value)
            for sample in samples
            if sample.value is not None
            and (sample.name == _STARTED or sample.name in self._created)
        }
        return tuple(value for _, value in sorted(found))


class PageRows:
    """Turns pages into rows; a histogram is repeated only where it has changed."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[tuple[str, str, float], ...]] = {}

    def rows(
        self, page: Page, sent_ns: int, received_ns: int, *, whole: bool = False
    ) -> Iterator[ServerSample]:
        """Yield the page's rows; `whole` repeats histograms that stand still."""

        def row(name: str, value: float, labels: str = "") -> ServerSample:
            return ServerSample(
                sent_ns=sent_ns,
                received_ns=received_ns,
                source="metrics",
                name=name,
                labels=labels,
                value=value,
            )

        for name, value in page.scalars.items():
            yield row(name, value)
        for position, value in page.positions.items():
            yield row(PER_POSITION, value, f"position={position}")
        for name, rows in page.buckets.items():
            if whole or self._shown.get(name) != rows:
                self._shown[name] = rows
                for suffix, labels, value in rows:
                    yield row(name + suffix, value, labels)


_NOTHING = Metric(())


def _wanted(name: str) -> bool:
    """Leave out the histograms that no reader has a use for; they are most of a page."""
    return name in HISTOGRAMS or not (
        (name.endswith("_s") and not name.endswith("_per_s")) or name.startswith("request_")
    )


def _created(metrics: dict[str, Metric]) -> frozenset[str]:
    """Return the names under which clients of Prometheus say when a counter began."""
    aliases = {
        alias for name in (GENERATED, GENERATED + AT_END) for alias in _aliases(metrics, name)
    }
    return frozenset(alias.removesuffix("_total") + "_created" for alias in aliases)


def _aliases(metrics: dict[str, Metric], name: str) -> tuple[str, ...]:
    return metrics[name].aliases if name in metrics else ()


def _lines_of(metrics: Iterable[Metric]) -> re.Pattern[bytes]:
    names = {_STARTED}
    for metric in metrics:
        for alias in metric.aliases:
            names |= {alias, alias.removesuffix("_total")}
    one_of = b"|".join(re.escape(name.encode()) for name in sorted(names))
    return re.compile(
        rb"^(?:" + one_of + rb")(?:_bucket|_sum|_count|_created|_total)?[ \t{][^\r\n]*", re.M
    )

"""Raw records → rows: what a round keeps of the server's own view and the machine's.

Names are canonical (see `page`, `slots`, `logs`, `activity`, `hostload`, `gpu`); `source` says
where a row is from: `metrics`, `slots`, `log`, `activity`, `host`, `gpu` or `observer`. Rows named
`event` mark what may spoil them (see `events`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from concbench.domain import ServerSample
from concbench.engines.registry import parse_any_log
from concbench.engines.spec import EngineSpec
from concbench.observe.activity import ActivityRows, read_activity
from concbench.observe.events import (
    LOG_ENDED,
    LOG_UNPARSED,
    NOT_POLLED,
    OBSERVER_LOST,
    OBSERVER_RESTARTED,
    SCRAPE_FAILED,
    Reading,
    counter_events,
    event,
)
from concbench.observe.logs import log_rows
from concbench.observe.page import PageReader, PageRows
from concbench.observe.slots import SlotCounter, read_slots
from concbench.observe.spool import RawSample

_OF_OBSERVER = frozenset(
    {"observer_cpu_s", "scrapes", "scrapes_skipped", "scrapes_failed", "records_lost"}
)
_NOTES = {
    "restarted": OBSERVER_RESTARTED,
    "lost": OBSERVER_LOST,
    "log_ended": LOG_ENDED,
    "not_polled": NOT_POLLED,
}
_POLLED = ("metrics", "slots", "activity")


@dataclass(frozen=True, slots=True)
class ScrapeCost:
    """What polling cost the server's time and the observer's; ms are per request."""

    scrapes: int
    failed: int
    mean_ms: float | None
    p50_ms: float | None
    max_ms: float | None
    page_bytes: int


def samples(records: Sequence[RawSample], spec: EngineSpec) -> list[ServerSample]:
    """Return all rows of some records, in order of their stamps. Never raises on what was read.

    `spec` is the engine whose pages they are (behind a proxy: that of the one behind).
    """
    ok = [record for record in records if 200 <= record.status < 300]
    rows = [
        *_counters(ok, spec),
        *_activity(ok),
        *log_rows(
            [record for record in ok if record.kind == "log"],
            parse_any_log if spec.name == "llama-swap" else spec.parse_log,
        ),
        *_machine(ok),
        *_failures(records),
        *_notes(ok),
    ]
    return sorted(rows, key=lambda row: (row.received_ns, row.sent_ns))


def scrape_cost(records: Sequence[RawSample]) -> ScrapeCost:
    """Return how long the server took to answer the polls, and how much it sent."""
    polled = [record for record in records if record.kind in _POLLED]
    ok = [record for record in polled if 200 <= record.status < 300]
    took_ms = sorted((record.received_ns - record.sent_ns) / 1e6 for record in ok)
    count = len(took_ms)
    return ScrapeCost(
        scrapes=count,
        failed=len(polled) - count,
        mean_ms=sum(took_ms) / count if count else None,
        p50_ms=took_ms[(count - 1) // 2] if count else None,
        max_ms=took_ms[-1] if count else None,
        page_bytes=sum(len(record.body) for record in ok),
    )


def _counters(records: Sequence[RawSample], spec: EngineSpec) -> Iterator[ServerSample]:
    """Yield the rows of metrics pages and slots, which explain each other."""
    reader, shown, slots = PageReader(spec), PageRows(), SlotCounter()
    readings: list[Reading] = []
    last = max(
        (index for index, record in enumerate(records) if record.kind == "metrics"), default=-1
    )
    ended_tok: float | None = None
    for index, record in enumerate(records):
        if record.kind == "metrics":
            page = reader.read(record.body)
            readings.append((record.sent_ns, record.received_ns, page))
            ended_tok = page.scalars.get("generated_tok_at_end")
            whole = index == last
            yield from shown.rows(page, record.sent_ns, record.received_ns, whole=whole)
        elif record.kind == "slots" and (running := read_slots(record.body)) is not None:
            yield from slots.rows(running, ended_tok, record.sent_ns, record.received_ns)
            ended_tok = None
    yield from _unknown_pages(records, readings)
    yield from counter_events(readings)


def _unknown_pages(
    records: Sequence[RawSample], readings: Sequence[Reading]
) -> Iterator[ServerSample]:
    """Yield an event where pages came and none held a name that is known; its value is lines."""
    lines = [record.body.count(b"\n") for record in records if record.kind == "metrics"]
    known = any(page.scalars or page.positions or page.buckets for _, _, page in readings)
    if readings and not known and max(lines):
        first, last = readings[0], readings[-1]
        yield event(LOG_UNPARSED, first[0], last[1], float(max(lines)))


def _activity(records: Sequence[RawSample]) -> Iterator[ServerSample]:
    told = ActivityRows()
    for record in records:
        if record.kind == "activity" and (listed := read_activity(record.body)) is not None:
            yield from told.rows(listed, record.sent_ns, record.received_ns)


def _machine(records: Sequence[RawSample]) -> Iterator[ServerSample]:
    for record in records:
        if record.kind not in ("host", "gpu"):
            continue
        try:
            found = json.loads(record.body)
        except (ValueError, RecursionError):
            continue
        for item in found if isinstance(found, list) else ():
            if isinstance(item, list) and len(item) == 3:
                name, labels, value = item
                yield ServerSample(
                    sent_ns=record.sent_ns,
                    received_ns=record.received_ns,
                    source="observer" if name in _OF_OBSERVER else record.kind,
                    name=str(name),
                    labels=str(labels),
                    value=value if isinstance(value, float) else None,
                )


def _failures(records: Sequence[RawSample]) -> Iterator[ServerSample]:
    """Yield an event for every poll without an answer; its value is the HTTP status, 0 for none."""
    for record in records:
        if record.kind in _POLLED and not 200 <= record.status < 300:
            value = float(record.status)
            yield event(SCRAPE_FAILED, record.sent_ns, record.received_ns, value, record.kind)


def _notes(records: Sequence[RawSample]) -> Iterator[ServerSample]:
    for record in records:
        if record.kind == "note" and (label := _NOTES.get(record.body.decode("utf-8", "replace"))):
            yield event(label, record.sent_ns, record.received_ns, source="observer")

"""Doubts about requests that did not go well: failed, cut, empty, refused, stalled."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from concbench.analyse.counters import GENERATED, between, points
from concbench.analyse.evidence import Evidence
from concbench.analyse.flight import count_at_once
from concbench.analyse.openloop import GIVEN_UP
from concbench.analyse.severity import doubt
from concbench.analyse.streams import Stream, icl_ns
from concbench.domain import Doubt, RequestRecord, Round
from concbench.result import CellResult

STALL_NS = 10_000_000_000
STALL_GAPS = 10
TOGETHER_NS = 50_000_000
MIN_STALL_NS = 1_000_000_000

_CONTEXT = re.compile(r"context|max_model_len|maximum.{0,20}(length|tokens)|too (long|many tokens)")


def failed(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Requests that failed for whatever cause."""
    counts = result.requests
    if not counts.failed:
        return
    share = counts.failed / counts.sent
    detail = next((r.error_detail for r in seen.failed if r.error_detail), None)
    kinds = ", ".join(f"{kind} × {count}" for kind, count in counts.errors.items())
    together = broke_off_together(seen.failed)
    hint = (
        f" {together} broke off at the same time in the midst of their answers: one event ended "
        "them all (a full KV cache, a crash), they do not count as independent."
        if together
        else ""
    )
    if silent := counts.errors.get("inactive"):
        hint += (
            f" {silent} got no byte for so long that they were cut (--inactivity-s) while the "
            "round went on: what they waited for is in the engine's log, if anywhere."
        )
    yield doubt(
        "requests_failed",
        result.cell,
        f"{counts.failed} of {counts.sent} requests failed ({kinds}): they are out of every "
        "latency, and what they did not ask of the server flatters the rest. Find the cause, "
        f"starting with the error's text, and measure again.{hint}",
        {
            "failed": counts.failed,
            "sent": counts.sent,
            "errors": counts.errors,
            "detail": detail,
            "broke_off_together": together,
        },
        share,
    )


def broke_off_together(records: Sequence[RequestRecord]) -> int:
    """Return the most requests that broke off within 50 ms of each other, 0 where none did.

    Only those count that had tokens already and failed in the same way, time-outs apart: those
    of a burst are due at the same time.
    """
    ends: dict[str, list[int]] = {}
    for record in records:
        if record.events and record.end_ns is not None and record.error not in (None, *GIVEN_UP):
            ends.setdefault(f"{record.error}: {record.error_detail}", []).append(record.end_ns)
    most = 0
    for times in map(sorted, ends.values()):
        within = [bisect_right(times, end + TOGETHER_NS) - k for k, end in enumerate(times)]
        most = max(most, *within)
    return most if most > 1 else 0


def in_stream(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Errors that came inside a stream that had begun with 200."""
    yield from _of_kind(
        seen,
        result,
        "errors_in_stream",
        lambda r: "stream" in (r.error or "") and "error" in (r.error or ""),
        "carried an error after a 200: counted as failed, since their short latency and partial "
        "answer would flatter the result. Read the error's text and the engine's log.",
    )


def truncated(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Streams that ended without a finish."""
    cut = [r for r in seen.failed if (r.error or "").startswith("truncated")]
    lasted = sorted(
        (r.end_ns - r.sent_ns) / 1e9 for r in cut if r.end_ns is not None and r.sent_ns is not None
    )
    alike = len(lasted) >= 2 and lasted[-1] - lasted[0] <= 0.02 * lasted[-1]
    hint = f" All were cut after {lasted[0]:.0f} s: suspect a proxy's time-out." if alike else ""
    if result.outcome == "crashed":
        hint = " The engine's end cut them: see how the cell ended."
    yield from _of_kind(
        seen,
        result,
        "truncated_streams",
        lambda r: (r.error or "").startswith("truncated"),
        "ended without a finish: counted as failed, their tokens are in no latency. Look for a "
        f"proxy's or gateway's time-out, or a crash in the engine's log.{hint}",
    )


def empty(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Answers without any token."""
    yield from _of_kind(
        seen,
        result,
        "empty_responses",
        lambda r: "empty" in (r.error or "") or (r.outcome == "ok" and not r.output_tok),
        "were answered without a single token: nothing was generated, so no rate can rest on "
        "them. Check the prompt's length against the context, and the stop conditions.",
    )


def capped(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Requests that a limit in front of the engine refused with 429: with that limit."""
    refused = sum(map(_is_refused, seen.records))
    if not refused:
        return
    let_in, known = max(map(_let_in, seen.rounds)), seen.inflight_limit
    whose = "" if known is None else f"; the proxy's default is {known}"
    how = "the proxy's default" if let_in == known else f"seen{whose}"
    yield doubt(
        "concurrency_capped",
        result.cell,
        f"{refused} of {result.requests.sent} requests were refused with 429: at most {let_in} "
        f"were let in at once ({how}), so this is not N = {result.concurrency}. Raise the limit of "
        "requests in flight (llama-swap: the model's concurrencyLimit), or measure up to "
        f"{let_in}.",
        {
            "refused": refused,
            "sent": result.requests.sent,
            "let_in": let_in,
            "default_limit": known,
        },
    )


def _is_refused(record: RequestRecord) -> bool:
    return record.http_status == 429 or record.error == "http_429"


def _let_in(round_: Round) -> int:
    """Return how many requests that were not refused were under way at once, at most."""
    return count_at_once(
        (record.sent_ns, round_.end_ns if record.end_ns is None else record.end_ns)
        for record in round_.requests
        if record.sent_ns is not None and not _is_refused(record)
    ).peak


def context_rejected(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Requests that the server refused for their length."""
    refused = [r for r in seen.failed if is_context_error(r)]
    if not refused and result.outcome != "context_rejected":
        return
    detail = next((r.error_detail for r in refused if r.error_detail), result.outcome_detail)
    yield doubt(
        "context_rejected",
        result.cell,
        f"the server refused {len(refused)} of {result.requests.sent} requests as too long: the "
        "cell lies outside its context. Shorten prompt or answer, or start it with more context "
        "a slot.",
        {"refused": len(refused), "sent": result.requests.sent, "detail": detail},
    )


def stalled(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """The whole server fell silent while answers were under way."""
    worst = max(
        (_silence_ns(r, s) for r, s in zip(seen.rounds, seen.streams, strict=True)), default=0
    )
    hung = result.outcome == "hung"
    if not worst and not hung:
        return
    what = f"no token came from any stream for {worst / 1e9:.1f} s while answers were under way"
    if hung and result.outcome_detail:
        what = result.outcome_detail
    yield doubt(
        "stalled",
        result.cell,
        f"{what}: every time in this cell holds that. Look at the engine's log and at the host, "
        "then measure again.",
        {"silent_s": worst / 1e9, "outcome": result.outcome},
    )


CHECKS = (failed, in_stream, truncated, empty, capped, context_rejected, stalled)


def is_context_error(record: RequestRecord) -> bool:
    """Whether a failed request was refused because prompt and answer exceed the context."""
    if "context" in (record.error or ""):
        return True
    refused = record.http_status in (400, 413, 422) or record.error in ("http_400", "http_413")
    return refused and _CONTEXT.search((record.error_detail or "").lower()) is not None


def _of_kind(
    seen: Evidence,
    result: CellResult,
    code: str,
    chosen: Callable[[RequestRecord], bool],
    effect: str,
) -> Iterator[Doubt]:
    found = [record for record in seen.records if chosen(record)]
    if not found:
        return
    sent = result.requests.sent
    details = Counter(r.error_detail for r in found if r.error_detail)
    yield doubt(
        code,
        result.cell,
        f"{len(found)} of {sent} requests {effect}",
        {"requests": len(found), "sent": sent, "details": dict(details.most_common(3))},
        len(found) / sent,
    )


def _silence_ns(round_: Round, streams: Sequence[Stream]) -> int:
    """The longest stall: no token from any stream for 10 s while one was between two tokens.

    A stream that timed out counts from its last token, and sooner than 10 s where that is far
    beyond its own pace. A long prefill beside it is no stall as long as somebody gets tokens.
    """
    arrivals = [stream.times_ns for stream in streams if stream.times_ns.size]
    if not arrivals:
        return _mute_ns(round_, streams)
    suspects = _suspects(streams)
    everyone = np.sort(np.concatenate(arrivals)) if suspects else np.empty(0, dtype=np.int64)
    worst = 0
    for stream in suspects:
        end = stream.record.end_ns or round_.end_ns
        cut = _is_cut(stream)
        stamps = np.append(stream.times_ns, end) if cut else stream.times_ns
        gaps = np.diff(stamps)
        limit = _stall_limit(stream) if cut else STALL_NS
        for place in np.flatnonzero(gaps >= min(limit, STALL_NS)):
            final = cut and place == gaps.size - 1
            if gaps[place] < STALL_NS and not final:
                continue
            begin, until = stamps[place], stamps[place + 1]
            inside = everyone[(everyone >= begin) & (everyone <= until)]
            silences = np.diff(np.concatenate((inside, [until])))
            longest = int(silences.argmax())
            silent, since = int(silences[longest]), int(inside[longest])
            long = silent >= (limit if final else STALL_NS)
            if long and not _generated_meanwhile(round_, since, since + silent):
                worst = max(worst, silent)
    return worst


def _suspects(streams: Sequence[Stream]) -> list[Stream]:
    """Return the streams that can hold a stall: those cut, and all where one's gap is long."""
    told = [stream for stream in streams if stream.times_ns.size]
    gaps = icl_ns(*told)
    if gaps.size and int(gaps.max()) >= STALL_NS:
        return told
    return [stream for stream in told if _is_cut(stream)]


def _is_cut(stream: Stream) -> bool:
    return stream.record.outcome != "ok" and stream.record.error in (*GIVEN_UP, "stalled")


def _generated_meanwhile(round_: Round, start_ns: int, end_ns: int) -> bool:
    """Whether the server's counter moved inside a silence: then something on the way held it.

    The second at either end is left out, in which readings and tokens may be out of step.
    """
    span = (start_ns + MIN_STALL_NS, end_ns - MIN_STALL_NS)
    inside = between(points(round_.samples, GENERATED), *span)
    return len(inside) > 1 and inside[-1].value > inside[0].value


def _stall_limit(stream: Stream) -> int:
    """What counts as silence before a time-out: ten of the stream's own gaps, 1 s at least."""
    gaps = icl_ns(stream)
    if gaps.size < 2:
        return STALL_NS
    return min(STALL_NS, max(MIN_STALL_NS, int(STALL_GAPS * np.median(gaps))))


def _mute_ns(round_: Round, streams: Sequence[Stream]) -> int:
    """How long a round was silent in which everything timed out before the first byte."""
    records = [stream.record for stream in streams]
    if not records or not all(r.error in GIVEN_UP and r.first_byte_ns is None for r in records):
        return 0
    waits = [(r.end_ns or round_.end_ns) - r.sent_ns for r in records if r.sent_ns is not None]
    return max(waits, default=0)

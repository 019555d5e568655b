"""What about a target would spoil a result: the way to it, how it streams, counts and caches."""

from __future__ import annotations

import socket
import statistics
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from concbench.analyse.bundling import BUFFERED_SHARE, bundling
from concbench.analyse.streams import streams_of, ttft_ns
from concbench.clock import now_ns
from concbench.domain import RequestRecord, Round
from concbench.engines.spec import Answer
from concbench.load.stream import kind_of
from concbench.measure.doctor import Check
from concbench.measure.session import Session, one_request
from concbench.measure.silence import Patience

CONNECTS, GETS = 10, 20
CONNECT_TIMEOUT_S = 3.0
STREAM_TOK = 48
CACHE_PROMPT_TOK = 512
FAR_MS = 5.0
QUICKER = 0.7
"""A prompt sent again that takes less than this share of a fresh one's time was cached."""

QUICKER_MS = 5.0
CACHED_SHARE = 0.05


def target_checks(session: Session, seed: int) -> list[Check]:
    """Return the checks of a target that was reached. Raises TargetError where a request fails."""
    parts = urlsplit(session.http.base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    text = session.prompts(1, 64, "prose", seed)[0].text
    probe = one_request(session, text, STREAM_TOK)
    return [
        names(parts.hostname or "", port),
        round_trip(session, parts.hostname or "", port),
        streaming(probe, asked=session.ask.stream),
        buffering(probe),
        counts(probe.requests[0]),
        caching(*_three_prompts(session, seed + 1)),
    ]


def names(hostname: str, port: int) -> Check:
    """What the name resolves to, and whether the first address is one that answers."""
    try:
        found = socket.getaddrinfo(hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return Check(name="name", state="bad", message=f"{hostname} has no address: {error}")
    tried = [_tried(family, address) for family, _, _, _, address in found]
    failed = [one for one in tried if one["error"]]
    values = {"addresses": tried}
    families = " then ".join(f"{one['address']} ({one['family']})" for one in tried)
    if failed and failed[0] is tried[0] and len(failed) < len(tried):
        return Check(
            name="name",
            state="warn",
            message=f"{hostname} is {families}; the first does not answer ({failed[0]['error']}): "
            "clients that try it first lose time; name the address that does",
            values=values,
        )
    return Check(name="name", state="ok", message=f"{hostname} is {families}", values=values)


def _tried(family: int, address: Sequence[object]) -> dict[str, object]:
    began, error = now_ns(), None
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(CONNECT_TIMEOUT_S)
        try:
            sock.connect(tuple(address))
        except OSError as failed:
            error = kind_of(failed)
    return {
        "address": str(address[0]),
        "family": "IPv6" if family == socket.AF_INET6 else "IPv4",
        "connect_ms": (now_ns() - began) / 1e6,
        "error": error,
    }


def round_trip(session: Session, hostname: str, port: int) -> Check:
    """How long a connection and a small request take: the floor under every latency."""
    connects = [_timed(lambda: _connected(hostname, port)) for _ in range(CONNECTS)]
    path = f"{session.ask.prefix}/models"
    gets = [_timed(lambda: session.http.get(path)) for _ in range(GETS)]
    middle_ms = statistics.median(connects)
    far = middle_ms > FAR_MS
    message = (
        f"connect {middle_ms:.2f} ms, GET {path} {statistics.median(gets):.2f} ms "
        f"(slowest of {GETS} {max(gets):.2f})"
    )
    if far:
        message += ": the way is a part of every TTFT; measure from nearer where you can"
    return Check(
        name="round trip",
        state="warn" if far else "ok",
        message=message,
        values={"connect_ms": middle_ms, "get_ms": statistics.median(gets), "get_max": max(gets)},
    )


def _timed(act: Callable[[], Answer | None]) -> float:
    began = now_ns()
    act()
    return (now_ns() - began) / 1e6


def _connected(hostname: str, port: int) -> None:
    try:
        socket.create_connection((hostname, port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError:
        return


def streaming(probe: Round, *, asked: bool) -> Check:
    """Whether tokens come one by one when a stream was asked for."""
    record = probe.requests[0]
    values = {"events": record.events, "reads": record.reads, "notes": list(record.notes)}
    if not asked:
        message = "not asked for: there is no time to the first token"
        return Check(name="streaming", state="unknown", message=message, values=values)
    if "not_streamed" in record.notes or record.events <= 1 < record.output_tok:
        return Check(
            name="streaming",
            state="bad",
            message=f"a stream was asked for and {record.output_tok} tokens came at once: no "
            "latency inside an answer can be known; look for a proxy, or a server without streams",
            values=values,
        )
    message = f"{record.events} events in {record.reads} reads for {record.output_tok} tokens"
    if "compressed_response" in record.notes:
        message += "; compressed although identity was asked for: switch that off"
        return Check(name="streaming", state="warn", message=message, values=values)
    return Check(name="streaming", state="ok", message=message, values=values)


def buffering(probe: Round) -> Check:
    """Whether something on the way holds events back and lets them go in lumps."""
    found = bundling(streams_of(probe))
    values = {
        "zero_gap_pct": 100 * found.bundled_share,
        "events_per_instant": found.events_per_instant,
    }
    if found.events < 2:
        message = "too few events to tell"
        return Check(name="buffering", state="unknown", message=message, values=values)
    if found.bundled_share > BUFFERED_SHARE:
        return Check(
            name="buffering",
            state="bad",
            message=f"{100 * found.bundled_share:.0f} % of the events come together with the one "
            "before: a proxy buffers, so TTFT and gaps are its; go round it or switch it off",
            values=values,
        )
    message = f"{100 * found.bundled_share:.0f} % of the events come together with the one before"
    return Check(name="buffering", state="ok", message=message, values=values)


def counts(record: RequestRecord) -> Check:
    """Where token counts come from, and whether events can stand for tokens."""
    ratio = record.output_tok / record.events if record.events else None
    values = {
        "source": record.token_source,
        "output_tok": record.output_tok,
        "events": record.events,
        "tok_per_event": ratio,
    }
    if record.token_source == "chunks":
        message = "the server counts no tokens: chunks are counted, which is a guess; ask it for "
        message += "usage (stream_options.include_usage), or use another endpoint"
        return Check(name="token counts", state="warn", message=message, values=values)
    each = "" if ratio is None else f", {ratio:.2f} tokens an event"
    message = f"from {record.token_source}{each}"
    if "usage_inconsistent" in record.notes:
        message += "; the server's counts contradict each other: compare with its log"
        return Check(name="token counts", state="warn", message=message, values=values)
    return Check(name="token counts", state="ok", message=message, values=values)


def _three_prompts(session: Session, seed: int) -> tuple[Round, Round, Round]:
    """Send a fresh prompt, the same again, and another fresh one, a token each."""
    tok = min(CACHE_PROMPT_TOK, (session.facts.max_context_tok or CACHE_PROMPT_TOK) // 2)
    first, other = (prompt.text for prompt in session.prompts(2, tok, "prose", seed))
    silent_s = Patience(session.prefill_ns).limit_s(1, tok)
    sent = [one_request(session, text, 1, silent_s) for text in (first, first, other)]
    return sent[0], sent[1], sent[2]


def caching(fresh: Round, again: Round, other: Round) -> Check:
    """Whether a prompt that is sent again is answered from a cache."""
    times_ms = [_ttft_ms(each) for each in (fresh, again, other)]
    cached = again.requests[0].cached_tok
    already = other.requests[0].cached_tok or 0
    prompt_tok = again.requests[0].prompt_tok or 0
    values = {
        "fresh_ttft_ms": times_ms[0],
        "again_ttft_ms": times_ms[1],
        "other_ttft_ms": times_ms[2],
        "cached_tok": cached,
        "prompt_tok": prompt_tok or None,
    }
    told = cached is not None and cached - already > CACHED_SHARE * max(1, prompt_tok)
    known = [value for value in (times_ms[0], times_ms[2]) if value is not None]
    quicker = False
    if times_ms[1] is not None and known:
        quicker = times_ms[1] < QUICKER * min(known) and min(known) - times_ms[1] > QUICKER_MS
    if told or quicker:
        said = f"{cached} of {prompt_tok} tokens" if told else "by its time to the first token"
        return Check(
            name="prompt cache",
            state="warn",
            message=f"the same prompt again comes from the cache ({said}): prompts are distinct by "
            "default; with --same-prompt or --prompts the cache would answer",
            values=values,
        )
    message = "the same prompt again takes as long as a fresh one"
    return Check(name="prompt cache", state="ok", message=message, values=values)


def _ttft_ms(round_: Round) -> float | None:
    found = ttft_ns(streams_of(round_)[0])
    return None if found is None else found / 1e6

"""A lane that is ready to be measured: reached, described, its template and pace known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from concbench.clock import now_ns, sleep_s
from concbench.domain import Cell, RequestRecord, Round, StampKind, TargetFacts, Workload
from concbench.engines.registry import ENGINES
from concbench.engines.spec import EngineSpec
from concbench.errors import (
    ConcbenchError,
    NotReady,
    PromptTooLong,
    Refused,
    TargetError,
    Unreachable,
    WrongModel,
    WrongPath,
)
from concbench.load import stamps
from concbench.load.generator import LoadPlan, resolve, run
from concbench.load.script import Once
from concbench.load.stream import Peer
from concbench.load.tls import context
from concbench.measure.carrier import Carrier
from concbench.measure.digest import digest
from concbench.measure.requests import Ask
from concbench.measure.silence import FIRST_SILENT_S, later_silent_s, probe_guard
from concbench.measure.tokenizer import ServerTokenizer
from concbench.observe.observer import Observer
from concbench.plan.prompts import (
    Calibration,
    Prompt,
    calibration_prompts,
    fit_calibration,
    make_prompts,
    word_count,
)
from concbench.serve.http import Access, Http
from concbench.serve.probe import Attached
from concbench.serve.swap import LLAMA_SWAP, ROUTER, kind_of

PACE_TOK = 24
"""Output tokens of the request that finds the pace of decoding."""

LOADING_WAIT_NS = 30 * 1_000_000_000
LOADING_POLL_S = 0.25


class StillLoading(NotReady):
    """502, 503 or 504 to the first request: what a server, or the proxy before it, says meanwhile.

    Waiting may mend it.
    """


@dataclass(frozen=True, slots=True)
class Inner:
    """The engine behind a proxy: its pages lie below `prefix`, or are asked for with `query`."""

    spec: EngineSpec
    prefix: str = ""
    query: str = ""

    @classmethod
    def of(cls, attached: Attached) -> Inner | None:
        """Return what is behind an attached server; None where it is the engine itself."""
        if kind_of(attached) == ROUTER:
            model = quote(attached.model, safe="")
            return cls(attached.spec, query=f"?model={model}&autoload=false")
        upstream = attached.extra.get("upstream_engine")
        if kind_of(attached) != LLAMA_SWAP or upstream not in ENGINES:
            return None
        return cls(ENGINES[upstream], prefix=f"/upstream/{quote(attached.model)}")


@dataclass(slots=True)
class Session:
    """One lane, ready. `template_tok` is what chat template and BOS add to every prompt.

    `step_ns` is the time between tokens of one request alone, `prefill_ns` its time to the first;
    `first_request` is the very first request of this session, measured on its own.
    `bytes_per_tok` is what one more output token adds to an answer, 0 where that is not known.
    `observer` watches the server while it is set; `carrier` carries the rounds' load. Behind a
    proxy or router `inner` says which engine it is and where it tells of itself. `dossier` is what
    the study keeps of the lane beyond its facts, `loading_wait_ns` how long the first request may
    be answered with 502, 503 or 504, `loading_waited_ns` how long it was, `silent_s` how long a
    short one may be silent. `extra` is what is known of the server beyond `TargetFacts`.
    """

    lane: str
    facts: TargetFacts
    spec: EngineSpec
    http: Http
    peer: Peer
    ask: Ask
    stamp: StampKind
    tokenizer: ServerTokenizer | None = None
    template_tok: int = 0
    calibration: Calibration | None = None
    costs: dict[str, int] = field(default_factory=dict)
    step_ns: int = 0
    prefill_ns: int = 0
    first_request: RequestRecord | None = None
    bytes_per_tok: float = 0.0
    next_prompt: int = 0
    observer: Observer | None = None
    carrier: Carrier = field(default_factory=Carrier)
    inner: Inner | None = None
    alive: Callable[[], str | None] = lambda: None
    dossier: dict[str, object] = field(default_factory=dict)
    loading_wait_ns: int = LOADING_WAIT_NS
    loading_waited_ns: int = 0
    silent_s: float = FIRST_SILENT_S
    extra: Mapping[str, Any] = field(default_factory=dict)

    def prompts(
        self, n: int, target_tok: int, kind: str, seed: int, *, same: bool = False
    ) -> list[Prompt]:
        """Make `n` fresh prompts, numbered on from the last; `same` gives one prompt, always."""
        made = make_prompts(
            n,
            target_tok,
            kind,  # type: ignore[arg-type]
            seed,
            0 if same else self.next_prompt,
            self.tokenizer,
            self.template_tok,
            calibration=self.calibration,
            costs=self.costs,
            same_prompt=same,
        )
        self.next_prompt += 0 if same else n
        return made

    def first_answer_s(self) -> float:
        """Return how long the first request took, in seconds; 0 before there was one."""
        record = self.first_request
        if record is None or record.sent_ns is None or record.end_ns is None:
            return 0.0
        return (record.end_ns - record.sent_ns) / 1e9


def open_session(attached: Attached, access: Access, ask_options: dict[str, object]) -> Session:
    """Prepare the load side of a lane that was reached. Nothing is sent yet."""
    parts = urlsplit(attached.root)
    hostname = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    tls = context(access.ca, insecure=access.insecure) if parts.scheme == "https" else None
    stream = bool(ask_options.get("stream", True))
    ignore_eos = bool(ask_options.pop("ignore_eos", True)) and attached.spec.ignores_eos
    headers = {"Authorization": f"Bearer {access.api_key}"} if access.api_key else {}
    ask = Ask(
        host=parts.netloc,
        prefix=attached.api_prefix,
        model=attached.model,
        engine_fields=_engine_fields(attached.spec, ignore_eos=ignore_eos, stream=stream),
        headers=headers,
        **ask_options,  # type: ignore[arg-type]
    )
    return Session(
        lane=attached.facts.lane,
        facts=attached.facts,
        spec=attached.spec,
        http=attached.http,
        peer=replace(resolve(hostname, port, tls), ca=access.ca, insecure=access.insecure),
        ask=ask,
        stamp=stamps.available(),
        tokenizer=ServerTokenizer.of(attached),
        inner=Inner.of(attached),
        extra=attached.extra,
    )


def _engine_fields(spec: EngineSpec, *, ignore_eos: bool, stream: bool) -> dict[str, object]:
    fields = spec.request_fields(ignore_eos, stream)
    fields.pop("stream_options", None)  # Ask adds it where it streams
    return fields


def calibrate(session: Session, kind: str, seed: int) -> None:
    """Send the first requests: readiness, the template's length, the pace.

    Raises the TargetError that fits when a request fails.
    """
    texts = calibration_prompts(kind, seed)  # type: ignore[arg-type]
    counted = session.tokenizer.count(texts) if session.tokenizer is not None else None
    if counted is None:
        session.tokenizer = None
    rounds = [first_answer(session, texts[0])]
    session.first_request = rounds[0].requests[0]
    session.silent_s = later_silent_s(session.first_answer_s())
    rounds += _longer(session, [] if counted else texts[1:])
    records = [each.requests[0] for each in rounds]
    if counted is not None and records[0].prompt_tok is not None:
        session.template_tok = max(0, records[0].prompt_tok - counted[0])
    elif records[0].prompt_tok is not None and len(records) > 1:
        prompt_tok = [record.prompt_tok or 0 for record in records]
        words = [word_count(text) for text in texts[: len(records)]]
        session.calibration = fit_calibration(words, prompt_tok)
        session.template_tok = round(session.calibration.template_tok)
    find_pace(session, texts[0], rounds[0].instrument.received_bytes)


def _longer(session: Session, texts: Sequence[str]) -> list[Round]:
    """Send longer texts, which tell how prompts are counted, up to one that is too long.

    Raises what `one_request` raises, PromptTooLong where not even the first of them fits.
    """
    rounds: list[Round] = []
    for text in texts:
        try:
            rounds.append(one_request(session, text, 1))
        except PromptTooLong:
            if not rounds:
                raise
            break
    return rounds


def first_answer(session: Session, text: str) -> Round:
    """Send the first request again until a token comes, while the server or a proxy still loads.

    What it waits for is in no figure: the round returned is that of the request that was answered,
    and the wait is in `loading_waited_ns`. Raises what `one_request` raises, NotReady after
    `loading_wait_ns`.
    """
    began_ns = now_ns()
    end_ns = began_ns + session.loading_wait_ns
    while True:
        session.loading_waited_ns = now_ns() - began_ns
        try:
            return one_request(session, text, 1)
        except StillLoading:
            if now_ns() >= end_ns:
                raise
        sleep_s(LOADING_POLL_S)


def find_pace(session: Session, text: str, one_token_bytes: int) -> None:
    """Find how long a step and the first token take alone, from one short request.

    `one_token_bytes` is the size of an answer of one token, for `bytes_per_tok`.
    """
    answer = one_request(session, text, PACE_TOK)
    record = answer.requests[0]
    more_bytes = answer.instrument.received_bytes - one_token_bytes
    if record.output_tok > 1 and more_bytes > 0:
        session.bytes_per_tok = more_bytes / (record.output_tok - 1)
    sent, first, last = record.sent_ns, record.first_token_ns, record.last_token_ns
    if sent is not None and first is not None and last is not None and record.events > 1:
        session.step_ns = (last - first) // max(1, record.output_tok - 1)
        session.prefill_ns = first - sent
    elif sent is not None and record.end_ns is not None:
        session.step_ns = (record.end_ns - sent) // max(1, record.output_tok)


def one_request(
    session: Session, text: str, output_tok: int, silent_s: float | None = None
) -> Round:
    """Send one request and return its round. Raises the TargetError that fits a failure.

    It may be silent for `silent_s`, by default what the session bears of a short one.
    """
    outgoing = session.ask.render(text, output_tok, 0, "concbench-probe")
    step_s = session.step_ns / 1e9 or session.first_answer_s()
    guard = probe_guard(silent_s or session.silent_s, output_tok, step_s, session.bytes_per_tok)
    raw = run(guard.over(LoadPlan(session.peer, [Once(outgoing)], session.stamp)))
    if raw.interrupted:
        raise KeyboardInterrupt
    if guard.hung is not None:
        raise NotReady(f"{session.facts.base_url}{session.ask.path}: {guard.hung}")
    cell = Cell(cell="probe", lane=session.lane, concurrency=1, context_tok=0)
    workload = Workload(
        prompt_tokens=0,
        output_tokens=output_tok,
        seed=0,
        arrival="burst",
        endpoint=session.ask.endpoint,
        stream=session.ask.stream,
    )
    parsed: Round = digest(
        raw, round_id="probe", cell=cell, index=0, phase="warmup", workload=workload, prompts=[]
    )
    record = parsed.requests[0]
    if record.outcome != "ok":
        raise failure(session, record)
    return parsed


def failure(session: Session, record: RequestRecord) -> ConcbenchError:
    """Return the error that a failed first request amounts to: one line with what to do."""
    kind, detail = record.error or "unknown", record.error_detail or "no reason given"
    if session.http.access.api_key:
        detail = detail.replace(session.http.access.api_key, "***")
    url = f"{session.facts.base_url}{session.ask.path}"
    if kind == "connect_refused":
        return Unreachable(f"{url}: connection refused; is the server running there?")
    if kind in ("connect_timeout", "connect_failed", "tls", "client_limit"):
        return Unreachable(f"{url}: {kind.replace('_', ' ')}: {detail}")
    if kind in ("http_401", "http_403"):
        return Refused(f"{url}: {kind[5:]}: {detail}; name the key's variable with --api-key-env")
    if kind == "http_404" and "model" in detail.lower():
        return WrongModel(f"{url}: {detail}; choose one with --model")
    if kind in ("http_404", "http_405"):
        return WrongPath(
            f"{url} answered {kind[5:]}: {detail}; give the base URL, http://host:port"
        )
    if kind == "http_400" and "context" in detail.lower():
        return PromptTooLong(f"{url}: {detail}; use a shorter --prompt-tokens")
    if kind in ("http_502", "http_503", "http_504"):
        return StillLoading(f"{url}: {kind.replace('_', ' ')}: {detail}")
    if kind in ("timeout", "no_response"):
        return NotReady(f"{url}: {kind.replace('_', ' ')}: {detail}")
    return TargetError(f"{url}: the first request failed: {kind.replace('_', ' ')}: {detail}")


def with_first_request(session: Session) -> TargetFacts:
    """Return the session's facts with the first request's time, in seconds, added."""
    took_s = round(session.first_answer_s(), 4)
    return msgspec.structs.replace(session.facts, first_request_s=took_s or None)

"""What every campaign does alike: prompts, one round after another, everything kept.

A campaign decides which rounds there are; the recorder runs one: prompt cache emptied where
asked, observer marked, load, digest, store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace

import msgspec

from concbench.analyse.rates import batch_tok_per_s, headline_tok_per_s
from concbench.clock import now_ns, sleep_s
from concbench.domain import Arrival, Cell, CellOutcome, Round, RoundPhase, Workload
from concbench.engines.registry import ENGINES
from concbench.errors import NotReady, PromptTooLong, UsageError
from concbench.load.generator import LoadPlan, RawRound
from concbench.load.script import Once, Script
from concbench.measure.digest import digest
from concbench.measure.glance import Glance
from concbench.measure.interrupts import Insisted, held
from concbench.measure.observed import live, mark, samples
from concbench.measure.requests import render_all
from concbench.measure.session import Session
from concbench.measure.silence import (
    UNKNOWN_STEP_S,
    Deadline,
    Guard,
    Patience,
    Runaway,
    Silence,
)
from concbench.measure.watch import OnLook
from concbench.plan.prompts import Prompt, prompts_sha256
from concbench.plan.splitmix import derive
from concbench.serve.http import parse_json

WARMUP_OUTPUT_TOK = 32
RESET_TRIES_NS = 10_000_000_000
RESET_POLL_S = 0.1

OnRound = Callable[[Round], None]
OnDiscard = Callable[[str, str], None]
OnSay = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asking:
    """What all requests of a campaign have in common. `file_prompts` replace made ones."""

    prompt_tok: int
    content: str
    seed: int
    timeout_s: float | None = None
    inactivity_s: float | None = None
    same_prompt: bool = False
    file_prompts: Sequence[Prompt] = ()
    keep_text: bool = False
    reset_cache: bool = False

    @property
    def timeout_ns(self) -> int | None:
        """The total time a request may take, ns."""
        return None if self.timeout_s is None else int(self.timeout_s * 1e9)

    @property
    def inactivity_ns(self) -> int | None:
        """How long a request may go on without a byte, ns."""
        return None if self.inactivity_s is None else int(self.inactivity_s * 1e9)


class Asks:
    """Options of a campaign that have the fields of `Asking` among their own."""

    __slots__ = ()

    @property
    def asking(self) -> Asking:
        """What all requests have in common."""
        return Asking(**{each.name: getattr(self, each.name) for each in fields(Asking)})


@dataclass(frozen=True, slots=True)
class Kept:
    """What a campaign keeps of a round that is on disk: memory must not grow with the rounds."""

    round_id: str
    outcome: CellOutcome
    batch_tok_per_s: float | None
    headline_tok_per_s: float | None


@dataclass(slots=True)
class Campaign:
    """What a campaign has measured: rounds by cell, and why each cell ended."""

    rounds: dict[str, list[Kept]] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)
    ended_by: dict[str, str] = field(default_factory=dict)
    output_tok: int = 0
    interrupted: bool = False

    def add(self, cell: Cell) -> Cell:
        """Take a cell into the campaign and return it."""
        self.cells[cell.cell] = cell
        self.rounds[cell.cell] = []
        return cell


def context_label(prompt_tok: int) -> str:
    """Return how a context of that many tokens is called."""
    return "short" if prompt_tok <= 50 else str(prompt_tok)


def companion(cell: Cell, label: str, context_tok: int | None = None) -> Cell:
    """Return the cell of rounds of one request that belong to another cell (`half`, `idle`)."""
    return msgspec.structs.replace(
        cell,
        cell=f"{cell.cell}.{label}",
        context_label=label,
        concurrency=1,
        context_tok=cell.context_tok if context_tok is None else context_tok,
    )


def without_key(parsed: Round, key: str | None) -> Round:
    """Return the round with the key blotted out of what the server said: some repeat it."""
    if not key:
        return parsed

    def blotted(text: str | None) -> str | None:
        return None if text is None else text.replace(key, "***")

    records = [
        msgspec.structs.replace(
            record, error_detail=blotted(record.error_detail), text=blotted(record.text)
        )
        if key in f"{record.error_detail}{record.text}"
        else record
        for record in parsed.requests
    ]
    return msgspec.structs.replace(parsed, requests=records)


@dataclass(slots=True)
class Recorder:
    """Runs single rounds and hands each on, once it is digested, to be stored.

    `on_look` is told twice a second how a burst goes, while it goes: it must cost nearly nothing.
    """

    session: Session
    asking: Asking
    campaign: Campaign
    on_round: OnRound
    count: int = 0
    on_look: OnLook | None = None
    patience: Patience = field(init=False)

    def __post_init__(self) -> None:
        self.patience = Patience(self.session.prefill_ns)

    def next_seed(self) -> int:
        """Return the workload seed of the next round: prompts are fresh in each."""
        return derive(self.asking.seed, self.count)

    def tag(self) -> str:
        """Return the beginning of the next round's request ids."""
        return f"concbench-{self.count}"

    def prompts(self, n: int, seed: int, prompt_tok: int | None = None) -> list[Prompt]:
        """Make `n` prompts; `prompt_tok` other than the campaign's where given."""
        asking, session = self.asking, self.session
        if asking.file_prompts:
            first = session.next_prompt
            session.next_prompt += n
            pool = asking.file_prompts
            return [pool[(first + k) % len(pool)] for k in range(n)]
        return session.prompts(
            n,
            prompt_tok or asking.prompt_tok,
            asking.content,
            asking.seed if asking.same_prompt else seed,
            same=asking.same_prompt,
        )

    def burst(
        self,
        cell: Cell,
        phase: RoundPhase,
        output_tok: int,
        *,
        n: int | None = None,
        prompt_tok: int | None = None,
        index: int | None = None,
    ) -> Round:
        """Run a round of `n` requests at once (default: the cell's concurrency)."""
        seed = self.next_seed()
        prompts = self.prompts(n or cell.concurrency, seed, prompt_tok)
        outgoing = render_all(self.session.ask, prompts, [output_tok] * len(prompts), self.tag())
        plan = self.plan([Once(request) for request in outgoing])
        if self.on_look is not None:
            plan = replace(plan, on_tick=self._glance(cell, phase, len(prompts), output_tok).tick)
        workload = self.workload("burst", output_tok, seed, prompts, prompt_tok)
        guard = self.guard(len(prompts), workload.prompt_tokens, [output_tok] * len(prompts))
        return self.record(cell, phase, plan, lambda _: (workload, prompts), index, guard=guard)

    def _glance(self, cell: Cell, phase: RoundPhase, n: int, output_tok: int) -> Glance:
        session = self.session
        assert self.on_look is not None
        asked, bytes_per_tok = (n, n * output_tok), session.bytes_per_tok
        return Glance(cell, phase, asked, bytes_per_tok, lambda: live(session), self.on_look)

    def plan(self, scripts: Sequence[Script]) -> LoadPlan:
        """Return the load plan of some scripts, with what the session fixes."""
        session, asking = self.session, self.asking
        limits = asking.timeout_ns, asking.inactivity_ns
        return LoadPlan(session.peer, scripts, session.stamp, *limits)

    def record(
        self,
        cell: Cell,
        phase: RoundPhase,
        plan: LoadPlan,
        sent: Callable[[RawRound], tuple[Workload, Sequence[Prompt]]],
        index: int | None = None,
        amend: Callable[[Round], Round] = lambda parsed: parsed,
        *,
        guard: Guard | None = None,
    ) -> Round:
        """Run a plan, digest what came and hand it on. `sent` tells afterwards what was asked.

        `amend` adds what the load knew and the bytes do not tell. `guard` ends a round that would
        not end by itself.
        A signal during the load ends it; one that comes while the round is being stored counts as
        soon as it is: both set the campaign's `interrupted`.
        """
        if self.asking.reset_cache:
            reset_cache(self.session)
        since = mark(self.session)
        raw = self.session.carrier.carry(plan if guard is None else guard.over(plan))
        with held(came=raw.interrupted) as late:
            workload, prompts = sent(raw)
            seen = samples(self.session, since)
            measured = self.campaign.rounds.get(cell.cell, [])
            parsed = digest(
                raw,
                round_id=f"{self.count:05d}-{cell.cell}",
                cell=cell,
                index=len(measured) if index is None else index,
                phase=phase,
                workload=workload,
                prompts=[(p.sha256, p.tok) for p in prompts],
                keep_text=self.asking.keep_text,
            )
            ending = self._ending(parsed, None if guard is None else guard.hung)
            parsed = without_key(parsed, self.session.http.access.api_key)
            parsed = amend(msgspec.structs.replace(parsed, samples=seen, **ending))
            self.patience.learn(parsed.requests)
            self.count += 1
            if phase == "measured" and cell.cell in self.campaign.rounds:
                rates = batch_tok_per_s(parsed), headline_tok_per_s(parsed)
                measured.append(Kept(parsed.round_id, parsed.outcome, *rates))
            self.on_round(parsed)
        if late.came:
            self.campaign.interrupted = True
        return parsed

    def _ending(self, parsed: Round, hung: str | None) -> dict[str, str]:
        """Name the death of an engine that was started here, or why the round was cut."""
        died = None if parsed.interrupted else self.session.alive()
        if died is not None:
            return {"outcome": "crashed", "outcome_detail": died}
        return {} if hung is None else {"outcome": "hung", "outcome_detail": hung}

    def guard(self, at_once: int, prompt_tok: int, asked_tok: Sequence[int]) -> Guard:
        """Return what ends a round if nothing else does; `asked_tok` is each request's answer."""
        session = self.session
        limit_s = self.patience.limit_s(at_once, prompt_tok)
        step_s = session.step_ns / 1e9 or UNKNOWN_STEP_S
        return Guard(
            Silence(limit_s, lambda: live(session)),
            Runaway(sum(asked_tok), len(asked_tok), session.bytes_per_tok),
            Deadline(limit_s + sum(asked_tok) * step_s),
        )

    def workload(
        self,
        arrival: Arrival,
        output_tok: int,
        seed: int,
        prompts: Sequence[Prompt],
        prompt_tok: int | None = None,
    ) -> Workload:
        """Return the record of what was asked."""
        ask, asking = self.session.ask, self.asking
        return Workload(
            prompt_tokens=prompt_tok or asking.prompt_tok,
            output_tokens=output_tok,
            seed=seed,
            arrival=arrival,
            distinct_prompts=len({p.sha256 for p in prompts}) == len(prompts),
            content="file" if asking.file_prompts else asking.content,
            endpoint=ask.endpoint,
            stream=ask.stream,
            temperature=ask.temperature,
            ignore_eos=bool(ask.engine_fields.get("ignore_eos", False)),
            extra_body=msgspec.json.decode(msgspec.json.encode(ask.extra_body)),
            prompts_sha256=prompts_sha256(prompts),
        )

    def check_context(self, output_tok: int | None) -> None:
        """Raise PromptTooLong before anything is sent that cannot fit."""
        prompt_tok, limit = self.asking.prompt_tok, self.session.facts.max_context_tok
        need = prompt_tok + (output_tok or 1)
        if limit is not None and need > limit:
            raise PromptTooLong(
                f"{prompt_tok} prompt + {output_tok or 1} output tokens exceed the "
                f"context of {limit} tokens a request: shorten one, or start the server with more "
                "context (or fewer slots)"
            )


@contextmanager
def until_signal(recorder: Recorder) -> Iterator[None]:
    """Run a campaign's rounds; a signal ends the block and is kept as `interrupted`.

    It goes on up where no round was kept yet, and where it is the second one.
    """
    try:
        yield
    except Insisted:
        raise
    except KeyboardInterrupt:
        if not recorder.count:
            raise
        recorder.campaign.interrupted = True


def check_reset(session: Session) -> None:
    """Raise UsageError where the engine has no way to empty its prompt cache."""
    if session.spec.reset_cache is None:
        able = [spec.label for spec in ENGINES.values() if spec.reset_cache is not None]
        raise UsageError(
            f"--reset-cache: {session.spec.label} has no way to empty its prompt cache; "
            f"{' and '.join(able)} have one. Prompts are distinct without it"
        )


def reset_cache(session: Session) -> None:
    """Empty the engine's prompt cache and see that it says so.

    What was cut a moment ago may still hold blocks, so a refusal is tried again for 10 s. Raises
    UsageError where the engine has no such call or has it switched off, NotReady where it keeps
    refusing.
    """
    check_reset(session)
    assert session.spec.reset_cache is not None
    method, path = session.spec.reset_cache
    give_up_ns = now_ns() + RESET_TRIES_NS
    while True:
        answer = session.http.post_json(path, {}) if method == "POST" else session.http.get(path)
        if answer.status in (404, 405):
            raise UsageError(
                f"--reset-cache: {session.http.base_url}{path} answered {answer.status}; vLLM has "
                "it only when started with VLLM_SERVER_DEV_MODE=1"
            )
        said = parse_json(answer)
        refused = isinstance(said, dict) and said.get("success") is False
        if answer.ok and not refused:
            return
        if now_ns() > give_up_ns:
            raise NotReady(
                f"--reset-cache: {session.http.base_url}{path} did not empty the prompt cache: "
                f"{answer.status} {session.http.excerpt(answer)}"
            )
        sleep_s(RESET_POLL_S)
